"""A provider's prompt cache that loses a conversation is told of once, and what we changed ourselves is no loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from everturn import Client, tool
from everturn.testing import ScriptedModel, say
from everturn.testing.script import Say
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds

Scripted = Callable[..., ScriptedModel]


@tool
def look_up(word: str) -> str:
    """Looks a word up."""
    return word


@tool
def refund(order: str) -> str:
    """Gives the money back."""
    return order


def cached(tokens: int) -> Say:
    details = {"cached_tokens": tokens}
    usage = {"prompt_tokens": 9_000, "completion_tokens": 5, "total_tokens": 9_005, "prompt_tokens_details": details}
    return say("Yes.", usage=usage)


@dataclass(frozen=True)
class Turn:
    cached: int
    tools: tuple[str, ...] | None = None
    kept_seconds: float = 270.0
    lost: bool = False


NARROW = ("look_up",)
TURNS = [
    Turn(5_000),
    Turn(5_100),
    Turn(0, lost=True),
    Turn(5_000),
    Turn(0, NARROW),  # we changed the prefix
    Turn(5_000, NARROW),
    Turn(1_000, NARROW),  # a part of it is still read
    Turn(5_000, NARROW, kept_seconds=0),
    Turn(0, NARROW),  # too late
    Turn(1_500, NARROW),
    Turn(0, NARROW),  # it had not much
]


async def test_a_cache_that_loses_what_it_had_is_told_of(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture, bounds: Bounds
) -> None:
    agent = agent_on(scripted([cached(turn.cached) for turn in TURNS]), tools=[look_up, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=5))
        for number, turn in enumerate(TURNS, 1):
            bounds(prompt_cache_seconds=turn.kept_seconds)
            if number > 1:
                await conversation.send(str(number), tools=turn.tools)
            assert await conversation.reply() == "Yes."
            lines = [line for line in caplog.text.splitlines() if "prompt_cache.collapsed" in line]
            assert len(lines) == turn.lost, (number, lines)
            assert not lines or all(part in lines[0] for part in (conversation.id, "5100", "9000", "scripted", "pin"))
            caplog.clear()
