"""A worker that is told to stop: what it runs may finish, for as long as EVERTURN_DRAIN_SECONDS says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from everturn import Client, Worker
from everturn.testing import ScriptedModel, say
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
