"""Clocks that are wrong: a worker's may be hours away from the server's, and nothing is decided by the difference."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import temporalio.worker._activity as sdk

from everturn import Client, tool
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of

Scripted = Callable[..., ScriptedModel]


@pytest.fixture(params=[timedelta(hours=2), timedelta(minutes=11), timedelta(hours=-2)], ids=str)
def clock_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """The worker's clock is so far ahead of the server's: to it, all of the server's times are so much earlier."""
    read = sdk._proto_to_datetime
    monkeypatch.setattr(sdk, "_proto_to_datetime", lambda given: read(given) - request.param)
    return timedelta(seconds=request.param.total_seconds())


async def test_patience_is_measured_on_one_clock(client: Client, scripted: Scripted, clock_ahead: timedelta) -> None:
    agent = agent_on(scripted([fail(503), fail(503), "There."], order="arrival"))
    async with hosting(client, agent):
        assert (await client.run(agent, "Go")).text == "There."


async def test_a_tool_that_was_late_is_tried_again_whatever_the_clock_says(
    client: Client, scripted: Scripted, clock_ahead: timedelta
) -> None:
    tries: list[int] = []

    @tool(effect="read", timeout=timedelta(seconds=0.2), patience=timedelta(minutes=1))
    async def look() -> str:
        tries.append(1)
        if len(tries) == 1:
            await _never()
        return "seen"

    agent = agent_on(scripted([call("look"), "Done."]), tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        assert (await conversation.outcome()).text == "Done."
    assert [result.text for result in results_of(await conversation.transcript())] == ["seen"]


async def _never() -> Any:
    import asyncio

    await asyncio.get_running_loop().create_future()
