"""What people send by signal and the conversation ignores: the worker's log has it, and no event tells it."""

from __future__ import annotations

from collections.abc import Callable

from everturn import Client, Conversation, events
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.operators import signal
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]


async def counted(conversation: Conversation) -> list[tuple[str, str]]:
    """Who decided or commanded what, as events tell it."""
    return [
        (event.verdict if isinstance(event, events.Decided) else event.name, event.by)
        async for event in conversation.events()
        if isinstance(event, events.Decided | events.Switched)
    ]


async def test_decisions_and_commands_that_are_ignored_are_no_events(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """`everturn watch` said "approved by" of a call that went on waiting, and the inbox took its card away."""
    agent = agent_on(scripted([ONE, "Done."]), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Order 81")
        (call_id,) = await waiting(conversation)
        late = "2020-01-01T00:00:00+00:00"
        await signal(conversation, "approve", {"call_id": call_id, "by": "late", "valid_until": late})
        await signal(conversation, "approve", {"call_id": call_id, "by": "stale", "expected": {"order_id": "1"}})
        await signal(conversation, "deny", {"call_id": "ghost", "by": "typo"})
        await signal(conversation, "answer", {"call_id": call_id, "content": "no", "by": "tardy", "valid_until": late})
        await signal(conversation, "resume", {"by": "eager"})
        assert await waiting(conversation) == (call_id,)
        await signal(conversation, "approve", {"call_id": call_id, "by": "ann"})
        await conversation.reply()
        assert await counted(conversation) == [("approve", "ann")]


async def test_what_comes_by_signal_and_counts_is_told_once_before_what_follows_from_it(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted([ONE, "Done."]), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Order 81")
        await waiting(conversation)
        await signal(conversation, "pause", {"by": "bob"})
        await signal(conversation, "deny", {"call_id": "*", "by": "ann"})
        await signal(conversation, "resume", {"by": "bob"})
        await conversation.reply()
        told = [event async for event in conversation.events()]
        assert await counted(conversation) == [("pause", "bob"), ("deny", "ann"), ("resume", "bob")]
        kinds = [type(event) for event in told]
        assert kinds.index(events.Decided) < kinds.index(events.ToolFinished)
        for number, event in enumerate(told):
            assert [later async for later in conversation.events(since=event.cursor)] == told[number + 1 :]
