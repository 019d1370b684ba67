"""Text while it is written: events between those of the history, and not one event of the history for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from everturn import Client, Conversation
from everturn.events import Event, Replied, TextDelta, ThinkingDelta
from everturn.testing import ScriptedModel, say, slow
from tests.conftest import agent_on, hosting

Scripted = Callable[..., ScriptedModel]

STORY = "Once upon a time, a workflow lived by its history. " * 20


async def told(conversation: Conversation, **options: Any) -> list[Event]:
    return [event async for event in conversation.events(**options)]


def joined(events: list[Event], kind: type[TextDelta | ThinkingDelta] = TextDelta) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


async def test_text_is_told_while_it_is_written_and_all_of_it_before_the_reply(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted([slow(say(STORY, thinking="Hm. " * 20), per_chunk=0.02)]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        events = await asyncio.wait_for(told(conversation), 30)
    kinds = [event.kind for event in events]
    assert kinds.count("text_delta") >= 3
    assert kinds[:2] == ["message_received", "turn_started"]
    assert kinds[-2:] == ["replied", "done"]
    replied = next(event for event in events if isinstance(event, Replied))
    assert joined(events) == replied.message.text == STORY
    assert joined(events, ThinkingDelta) == "Hm. " * 20
    assert {event.cursor for event in events if isinstance(event, TextDelta)} == {events[1].cursor}
