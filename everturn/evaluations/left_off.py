"""Where the search for answers left off that an operator has ended: what was answered since is judged, too."""

from __future__ import annotations

from typing import Final

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everturn.evaluations.records import Look, LookingStart
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
            for event in page:
                if look := await _look_of(client, event):
                    return LookingStart(since=look.since, first=look.first)
    except RPCError as error:
        if not (not_found(error) or error.status is RPCStatusCode.UNIMPLEMENTED):
            raise
    except Exception as error:  # noqa: BLE001 - codecs raise all kinds: answers are still looked for
        _log.warning("evaluations.place_lost", error=f"{type(error).__name__}: {error}"[:500])
    return LookingStart()


async def _look_of(client: Client, event: HistoryEvent) -> Look | LookingStart | None:
    if event.event_type == event_types.ACTIVITY_TASK_SCHEDULED:
        payloads = event.activity_task_scheduled_event_attributes.input.payloads
        [look] = await client.data_converter.decode(payloads, [Look])
    elif event.event_type == event_types.WORKFLOW_EXECUTION_STARTED:
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        [look] = await client.data_converter.decode(payloads, [LookingStart])
    else:
        return None
    assert isinstance(look, Look | LookingStart)
    return look
