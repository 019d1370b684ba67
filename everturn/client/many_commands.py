"""`pause` and `resume` for many conversations at once, whether or not a worker runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import temporalio.client
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.at_once import at_once
from everturn.client.connection import ClientConnection
from everturn.client.matching import RUNNING, matching
from everturn.errors import InvalidSetting
from everturn.models import Model, check_provider
from everturn.sizes import check_input
from everturn.spelling import known_options

AT_ONCE: Final = 16
"""Signals that are on their way at the same time."""


@dataclass(frozen=True)
class Steered:
    """One of many that were told."""

    conversation_id: str
    refused: str = ""
    """Why it was not told; empty if it was."""


class ManyCommands(ClientConnection):
    """What a client does to all conversations that a filter finds."""

    by: str

    @known_options("Client.pause_all", InvalidSetting)
    async def pause_all(self, query: str, *, reason: str | None = None) -> list[Steered]:
        """Tells every running conversation that the filter finds to hold before its next model turn. Needs no worker:
        the server keeps it until one runs. Safe to repeat, also after a part of it.

        `query`: in Temporal's language, as for `temporal workflow list`: "EverturnAgent = 'clerk'". A tool call that
        was planned already still runs. Raises Refused for what is no filter, and Unreachable.
        """
        return await self._tell_all(query, names.PAUSE, {"reason": reason})

    @known_options("Client.resume_all", InvalidSetting)
    async def resume_all(self, query: str, *, model: str | None = None) -> list[Steered]:
        """Tells every running conversation that the filter finds to go on after a pause or a stall: "EverturnStatus =
        'paused'". One that is neither goes on as it does. As `pause_all` otherwise. Raises InvalidModel, too."""
        return await self._tell_all(query, names.RESUME, {"model": model and check_provider(Model(model)).name})

    async def _tell_all(self, query: str, name: str, control: dict[str, Any]) -> list[Steered]:
        said = {key: value for key, value in control.items() if value is not None} | {"by": self.by}
        check_input(name, said)
        try:
            return await _steered(self.temporal, query, name, said)
        except RPCError as error:
            raise self.unreachable(error) from error


async def _steered(temporal: temporalio.client.Client, query: str, name: str, said: dict[str, Any]) -> list[Steered]:
    """By signals: those wait on the server for a worker."""

    async def one(execution: WorkflowExecution) -> Steered:
        try:
            await temporal.get_workflow_handle(execution.id).signal(name, said)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return Steered(execution.id, "it is over")
        return Steered(execution.id)

    found = matching(temporal, query, also=RUNNING)
    done = [told async for told in at_once(found, one, most=AT_ONCE)]
    return sorted(done, key=lambda told: told.conversation_id)
