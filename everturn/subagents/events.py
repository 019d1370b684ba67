"""A conversation's events together with those of the agents that work for it, and of the agents that work for those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from temporalio.client import Client

from everturn.errors import NotFound
from everturn.events import Event, ToolStarted
from everturn.history.reader import read_steps
from everturn.history.steps import ToolCompleted, ToolRunFailed, ToolScheduled
from everturn.payloads import AskedAgent

MOST_WAITING = 1_000
"""How many events are read ahead of the caller."""

NOT_YET_SECONDS = 0.2


class _FollowedConversation(Protocol):
    """The part of a Conversation that is used here."""

    def events(self, *, deltas: bool, children: bool) -> AsyncGenerator[Event]: ...


@dataclass(frozen=True)
class _EventsEnded:
    """The last thing in the queue."""

    error: Exception | None = None


async def _at_work(temporal: Client, conversation_id: str, run_id: str) -> list[AskedAgent]:
    """The conversations of the agents that are at work for this run now. CallsByHistory does not say: its `running`
    keeps calls that have ended, and it has no ids of conversations."""
    agents: dict[str, AskedAgent] = {}
    async for step in read_steps(temporal, conversation_id, run_id=run_id):
        match step:
            case ToolScheduled(request=call, conversation_id=child) if child:
                agents[call.call_id] = AskedAgent(call_id=call.call_id, agent=step.tool, conversation_id=child)
            case ToolCompleted(request=call) | ToolRunFailed(request=call):
                agents.pop(call.call_id, None)
            case _:
                pass
    return list(agents.values())


async def with_children(
    own: AsyncGenerator[Event],
    other: Callable[[str], _FollowedConversation],
    temporal: Client,
    conversation_id: str,
    since: str | None,
    *,
    deltas: bool,
) -> AsyncGenerator[Event]:
    """The conversation's `own` events since that cursor, and between them all events of each agent that works for it.
    Those have a `child`, and the cursor of the own event before them. `other`: opens the conversation with an id."""
    queue: asyncio.Queue[Event | _EventsEnded] = asyncio.Queue(MOST_WAITING)
    followers: dict[str, asyncio.Task[None]] = {}
    over = asyncio.Event()

    def follow_child(asked_agent: AskedAgent) -> None:
        if asked_agent.conversation_id not in followers:
            followers[asked_agent.conversation_id] = asyncio.create_task(tell_child(asked_agent))

    async def tell_child(asked_agent: AskedAgent) -> None:
        child = asked_agent.conversation_id
        begun = False
        while not begun:
            try:
                async for event in other(child).events(deltas=deltas, children=True):
                    begun = True
                    there = {"child": event.child or child, "path": (asked_agent, *event.path)}
                    await queue.put(event.model_copy(update=there))
                return
            except NotFound:  # it is about to be started; or was deleted, or is gone with its retention
                if over.is_set():
                    return
                await asyncio.sleep(NOT_YET_SECONDS)

    async def tell_own() -> None:
        try:
            async with aclosing(own) as events:
                async for event in events:
                    await queue.put(event)
                    if isinstance(event, ToolStarted) and event.conversation_id:
                        follow_child(
                            AskedAgent(call_id=event.call_id, agent=event.tool, conversation_id=event.conversation_id)
                        )
            over.set()
            await asyncio.gather(*followers.values())  # children end before it does: these tasks will end
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader of the events gets it
            await queue.put(_EventsEnded(error))
        else:
            await queue.put(_EventsEnded())

    if since:
        for asked_agent in await _at_work(temporal, conversation_id, since.partition("/")[0]):
            follow_child(asked_agent)
    telling = asyncio.create_task(tell_own())
    cursor = ""
    try:
        while not isinstance(event := await queue.get(), _EventsEnded):
            if event.child:
                yield event.model_copy(update={"cursor": cursor})
            else:
                cursor = event.cursor
                yield event
        if event.error:
            raise event.error
    finally:
        tasks = [telling, *followers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
