"""A worker that is told to stop: what it runs may finish, for as long as EVERTURN_DRAIN_SECONDS says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, Worker, tool
from everturn.testing import ScriptedModel, call, say
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually


@pytest.mark.parametrize(("seconds", "asked"), [("60", 1), ("0", 2)], ids=["finished", "handed over"])
async def test_a_model_turn_that_runs_is_finished_in_the_time_that_the_setting_gives(
    client: Client,
    scripted: Callable[..., ScriptedModel],
    monkeypatch: pytest.MonkeyPatch,
    seconds: str,
    asked: int,
) -> None:
    may_answer = threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        may_answer.wait(60)
        return say("There.")

    model = scripted(script, order="arrival")
    agent = agent_on(model)
    monkeypatch.setenv("EVERTURN_DRAIN_SECONDS", seconds)
    worker = Worker(client, agents=[agent])
    await worker.__aenter__()
    conversation = await client.start(agent, "Go")
    await eventually(lambda: model.requests)
    stopping = asyncio.create_task(worker.__aexit__(None, None, None))
    if asked == 2:
        await stopping
        may_answer.set()
    else:
        done, _ = await asyncio.wait([stopping], timeout=0.5)
        assert not done, "it waits for the turn"
        may_answer.set()
        await stopping
    async with hosting(client, agent):
        assert (await conversation.outcome()).text == "There."
    assert len(model.requests) == asked


async def test_a_local_tool_that_is_cut_off_runs_again_on_the_next_worker(
    client: Client,
    scripted: Callable[..., ScriptedModel],
    monkeypatch: pytest.MonkeyPatch,
    cached_conversations: int,
) -> None:
    """Nothing of the run that was cut off is in the history: the model is told what the second one gave."""
    runs, forever = list[int](), asyncio.Event()

    @tool(local=True, effect="read", timeout=timedelta(seconds=10))
    async def look() -> str:
        """Looks."""
        runs.append(len(runs) + 1)
        if len(runs) == 1:
            await forever.wait()
        return f"seen in run {runs[-1]}"

    model = scripted([call("look"), "There."])
    agent = agent_on(model, tools=[look])
    monkeypatch.setenv("EVERTURN_DRAIN_SECONDS", "0")
    worker = Worker(client, agents=[agent])
    await worker.__aenter__()
    conversation = await client.start(agent, "Go")
    await eventually(lambda: runs)
    await worker.__aexit__(None, None, None)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert (await conversation.outcome()).text == "There."
    results = [result for message in await conversation.transcript() for result in message.tool_results]
    assert [result.text for result in results] == ["seen in run 2"]
