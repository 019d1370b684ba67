"""Where the search for answers left off that an operator has ended: what was answered since is judged, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everturn.evaluations.records import LookingStart
from everturn.history import event_types
from everturn.history.last_results import read_backwards
from everturn.logs import get_logger
from everturn.temporal.temporal_errors import not_found

PAGE: Final = 20

_log = get_logger("everturn.evaluations")


async def left_off(client: Client, collector: str) -> LookingStart:
    """By the latest run with this id: its last look. From now on, if there is none. Raises RPCError."""
    try:
        async for page in read_backwards(client, collector, "", page_size=PAGE):
            for payloads in filter(None, map(_input_in, page)):
                last_look: LookingStart
                [last_look] = await client.data_converter.decode(payloads, [LookingStart])
                return last_look
    except RPCError as error:
        if not (not_found(error) or error.status is RPCStatusCode.UNIMPLEMENTED):
            raise
    except Exception as error:  # noqa: BLE001 - codecs raise all kinds: answers are still looked for
        _log.warning("evaluations.place_lost", error=f"{type(error).__name__}: {error}"[:500])
    return LookingStart()


def _input_in(event: HistoryEvent) -> Sequence[Payload]:
    """Of a look, or of the run itself: both say from when on to look. Empty for any other event."""
    match event.event_type:
        case event_types.ACTIVITY_TASK_SCHEDULED:
            return event.activity_task_scheduled_event_attributes.input.payloads
        case event_types.WORKFLOW_EXECUTION_STARTED:
            return event.workflow_execution_started_event_attributes.input.payloads
        case _:
            return ()
