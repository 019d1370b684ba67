"""What was said in a conversation, as its transcript and its events have it."""

from __future__ import annotations

from everturn import Conversation, Message, ToolResult
from everturn.events import Event, ToolFinished


def results_of(transcript: tuple[Message, ...]) -> list[ToolResult]:
    return [result for message in transcript for result in message.tool_results]


async def told(conversation: Conversation, since: str | None = None) -> list[Event]:
    return [event async for event in conversation.events(since, deltas=False)]


def results_told(events: list[Event]) -> dict[str, str]:
    finished = [event.result for event in events if isinstance(event, ToolFinished)]
    assert len({result.call_id for result in finished}) == len(finished), "each once"
    return {result.call_id: result.text for result in finished}


async def texts(conversation: Conversation) -> list[str]:
    return [result.text for result in results_of(await conversation.transcript())]
