"""Sends a message to a conversation that may be over or may not exist yet."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from everturn.agent import Agent
from everturn.client.messages import MessageLike, user_message
from everturn.client.revival import start_of_revival
from everturn.errors import AlreadyStarted, Ended, NotFound, OtherWorkflow
from everturn.payloads import Start
from everturn.temporal.ids import known_id
from everturn.tenants.priorities import AS_BEFORE, Order


class _Conversation(Protocol):
    """The parts of a Conversation that are used here."""

    id: str
    _client: Any
    _temporal: Any

    @property
    def _handle(self) -> Any: ...
    async def _deliver(
        self, message: MessageLike, *, message_id: str | None, stream: bool | None, tenant: str | None
    ) -> None: ...
    async def by_history(self) -> Any: ...
    async def latest_run(self) -> str: ...
    def _explaining_errors(self, what: str = "request") -> AbstractContextManager[None]: ...


async def send_or_revive(
    conversation: _Conversation,
    message: MessageLike,
    *,
    new_start: Start | None = None,
    agent: Agent | str = "",
    message_id: str | None = None,
    stream: bool | None = None,
    order: Order = AS_BEFORE,
) -> bool:
    """As `Client.send`. Returns whether the message revived a conversation that was over. `new_start`: how to start it
    if there is none. Without `new_start`, a revived one keeps its agent and `keep_open`, and if there is none, NotFound
    is raised."""
    parsed = user_message(message)
    while True:
        try:
            tenant = new_start.tenant if new_start else None
            await conversation._deliver(parsed, message_id=message_id, stream=stream, tenant=tenant)
        except Ended:
            by_history = await conversation.by_history()
            if message_id is not None and known_id(message_id) in by_history.state.message_ids:
                return False
            with conversation._explaining_errors():
                start = await start_of_revival(
                    conversation._temporal, conversation.id, by_history, parsed, new_start, message_id, stream
                )
                priority = await order.priority_after(conversation._handle)
            if await conversation.latest_run() != by_history.run_id:
                continue  # somebody else was quicker: the transcript has become longer
            revives = True
        except OtherWorkflow:
            raise
        except NotFound:
            if new_start is None:
                raise
            start = new_start
            priority = order.priority_for(new_start.tenant)
            revives = False
        else:
            return False
        try:
            # One that was not there may have begun, and ended, meanwhile: only what is revived is started over it.
            await conversation._client._start_workflow(
                start, conversation.id, agent or start.agent, after_end=revives, priority=priority
            )
        except AlreadyStarted:
            continue  # somebody else was quicker: it runs now, and takes the message
        return revives
