"""Forks: new conversations that begin with a copy of this one, up to a turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self
from uuid import uuid4

from temporalio.client import WorkflowExecutionDescription

from everturn.client.client_base import ClientBase
from everturn.client.messages import MessageLike, content_of, user_message
from everturn.client.prompts import AskedTurns
from everturn.history.decoding import check_kind
from everturn.history.fork_start import Changes, start_of_fork
from everturn.models import Model
from everturn.records import ResultPart, Text
from everturn.sizes import check_input
from everturn.temporal import temporal_errors
from everturn.tenants.priorities import Order
from everturn.vendor_models.plugins import check_provider


class Forks(AskedTurns):
    """The part of a conversation that forks it."""

    def __init__(self, client: ClientBase, conversation_id: str) -> None:
        super().__init__(client.temporal, conversation_id)
        self._client = client

    async def fork(
        self,
        at_turn: int,
        id: str | None = None,  # noqa: A002 - the contract's name
        *,
        to: ClientBase | None = None,
        message: MessageLike | None = None,
        model: str | None = None,
        results: Mapping[str, str | Iterable[ResultPart]] | None = None,
        priority: int | None = None,
        fairness_key: str | None = None,
        fairness_weight: float | None = None,
    ) -> Self:
        """A new conversation that begins with a copy of this one up to the end of that turn, results included.

        The fork goes on by itself. After a final reply it idles for its next message, as long as this conversation
        would, or for a week if this one ended with that reply. This conversation stays as it is, whether it runs or
        is over. What tools did in later turns is not undone, and the fork's model does not know of it: it may ask for
        the same again. Turns, tokens and cost go on counting; the time starts at zero.

        `message`: sent to the fork after that turn; with turn 0, it replaces the first message. `model`: the fork's
        model, instead of the present one. `results`: by call id, results for calls of that turn, instead of the real
        ones.

        Turns count from 1, across revivals and forks. `to`: a client of another namespace, to make the fork there.
        Raises Refused if the turn has no reply, if one of its calls has no result yet, or if `results` names a call
        that it does not have; NotFound if its history is gone; AlreadyStarted if there is a conversation `id`,
        running or over; InvalidModel.

        `priority`, `fairness_key`, `fairness_weight`: as in `Client.start`; None keeps the value of this
        conversation.
        """
        client = to or self._client
        target_converter = to.temporal.data_converter if to else None
        changes = Changes()
        if message is not None:
            parsed = user_message(message)
            changes = Changes(message=content_of(parsed), provider=parsed.provider, tools=parsed.tools)
        changes = replace(
            changes,
            model=model and check_provider(Model(model)).name,
            results={call_id: _as_parts(result) for call_id, result in (results or {}).items()},
        )
        check_input("results", changes.results)
        with self._explaining_errors():
            start = await start_of_fork(
                self._temporal,
                self.id,
                await self.latest_run(),
                turn=at_turn,
                target_converter=target_converter,
                changes=changes,
            )
            order = await Order(priority, fairness_key, fairness_weight).priority_after(self._handle)
        fork_id = id or f"{self.id}-turn-{at_turn}-{uuid4().hex[:8]}"
        await client._start_workflow(start, fork_id, priority=order)
        return self._handle_on(client, fork_id)

    async def latest_run(self) -> str:
        return (await self._describe()).run_id

    # ------------------------------------------------------------ underneath

    def _handle_on(self, client: ClientBase, conversation_id: str) -> Self:
        """A handle of the same kind on another conversation."""
        return type(self)(client, conversation_id)

    @property
    def _handle(self) -> Any:
        return self._temporal.get_workflow_handle(self.id)

    async def _describe(self) -> WorkflowExecutionDescription:
        with self._explaining_errors():
            described: WorkflowExecutionDescription = await self._handle.describe()
        check_kind(self.id, described.workflow_type)
        return described

    def _explaining_errors(self, what: str = "request") -> AbstractContextManager[None]:
        return temporal_errors.explained(self._temporal, self.id, what)


def _as_parts(result: str | Iterable[ResultPart]) -> tuple[ResultPart, ...]:
    if isinstance(result, str):
        return (Text(text=result),)
    return tuple(result)
