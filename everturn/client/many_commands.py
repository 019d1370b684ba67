"""`pause` and `resume` for many conversations at once, whether or not a worker runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import temporalio.client
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError

from everturn import names
from everturn.client.client_base import ClientBase
from everturn.client.conversations_by_query import find_matching
from everturn.errors import InvalidSetting
from everturn.models import Model
from everturn.sizes import check_input
from everturn.system.bounded_concurrency import at_once
from everturn.temporal.any_status import OPEN_QUERY
from everturn.temporal.temporal_errors import not_found
from everturn.validation.spelling import known_options
from everturn.vendor_models.plugins import check_provider

AT_ONCE: Final = 16
"""How many signals are sent at the same time."""


@dataclass(frozen=True)
class Steered:
    """A conversation that the command was sent to."""

    conversation_id: str
    refused: str = ""
    """Why the command could not be sent; empty if it was sent."""


class ManyCommands(ClientBase):
    """What a client does to all conversations that a filter finds."""

    by: str

    @known_options("Client.pause_all", InvalidSetting)
    async def pause_all(self, query: str, *, reason: str | None = None) -> list[Steered]:
        """Pauses every running conversation that the filter finds before its next model turn. Needs no worker: the
        server keeps the command until one runs. Safe to repeat, also if only some were reached.

        `query`: in Temporal's language, as for `temporal workflow list`: "EverturnAgent = 'clerk'". A tool call that
        was planned already still runs. Raises Refused if the filter is not valid, and Unreachable.
        """
        return await self._tell_all(query, names.PAUSE, {"reason": reason})

    @known_options("Client.resume_all", InvalidSetting)
    async def resume_all(self, query: str, *, model: str | None = None) -> list[Steered]:
        """Resumes every running conversation that the filter finds, after a pause or a stall: "EverturnStatus =
        'paused'". Others are not changed. Otherwise as `pause_all`. Raises InvalidModel, too."""
        return await self._tell_all(query, names.RESUME, {"model": model and check_provider(Model(model)).name})

    async def _tell_all(self, query: str, name: str, control: dict[str, Any]) -> list[Steered]:
        payload = {key: value for key, value in control.items() if value is not None} | {"by": self.by}
        check_input(name, payload)
        try:
            return await _steer_all(self.temporal, query, name, payload)
        except RPCError as error:
            raise self.unreachable_error(error) from error


async def _steer_all(
    temporal: temporalio.client.Client, query: str, name: str, payload: dict[str, Any]
) -> list[Steered]:
    """Sends signals, which the server keeps until a worker runs."""

    async def steer_one(execution: WorkflowExecution) -> Steered:
        try:
            await temporal.get_workflow_handle(execution.id).signal(name, payload)
        except RPCError as error:
            if not not_found(error):
                raise
            return Steered(execution.id, "it is over")
        return Steered(execution.id)

    executions = find_matching(temporal, query, also=OPEN_QUERY)
    steered = [sent async for sent in at_once(executions, steer_one, max_running=AT_ONCE)]
    return sorted(steered, key=lambda sent: sent.conversation_id)
