"""One reply can ask for more than a run of Temporal's may hold: each call is told how much its result may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from everturn import Client, Image, Limits, tool
from everturn.errors import Refused
from everturn.records import ToolResult
from everturn.testing import ScriptedModel, call
from everturn.workflows import history_space
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

PICTURE = 140_000


@pytest.fixture(autouse=True)
def _small_runs(bounds: Bounds) -> None:
    """A tenth of what Temporal takes: the tests need not move 50 MB."""
    bounds(run_bytes=2_000_000, task_bytes=250_000, fair_bytes=25_000, least_bytes=1_000)


@tool(effect="read")
def draw(number: int) -> Image:
    return Image(data="A" * PICTURE, media_type="image/png")


async def size_of_run(client: Client, conversation_id: str) -> int:
    described = await client.temporal.get_workflow_handle(conversation_id).describe()
    return described.raw_description.workflow_execution_info.history_size_bytes


def whole(results: list[ToolResult]) -> int:
    return sum(isinstance(result.content[0], Image) for result in results)


@pytest.mark.long_if(lambda local, at_once: local == (at_once == 4))
@pytest.mark.parametrize("local", [False, True], ids=["activities", "local"])
@pytest.mark.parametrize("at_once", [4, 40])
async def test_forty_pictures_do_not_end_a_conversation(
    client: Client, scripted: Scripted, cached_conversations: int, *, local: bool, at_once: int
) -> None:
    drawing = replace(draw, local=local, timeout=timedelta(seconds=5)) if local else draw
    script = [[call("draw", {"number": number}) for number in range(40)], "Done."]
    agent = agent_on(scripted(script), tools=[drawing], limits=Limits(max_parallel_calls=at_once))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Draw")
        assert await conversation.reply() == "Done."
        results = results_of(await conversation.transcript())
    assert await size_of_run(client, conversation.id) < history_space.RUN_BYTES * 1.25
    assert len(results) == 40
    assert 1 <= whole(results) < 16
    assert "Left out because it is too large: image (image/png, 140,000 base64 characters)" in results[-1].text


async def test_what_agents_answer_has_to_fit_too(client: Client, scripted: Scripted, bounds: Bounds) -> None:
    bounds(run_bytes=600_000)
    below = agent_on(scripted(["long " * 30_000], order="position"), name="below")
    calls = [call("below", {"message": f"{number}"}, id=f"c{number}") for number in range(6)]
    agent = agent_on(scripted([calls, "Done."]), tools=[below])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Ask")
        assert await conversation.reply() == "Done."
        results = results_of(await conversation.transcript())
    assert await size_of_run(client, conversation.id) < history_space.RUN_BYTES * 1.25
    lengths = [len(result.text) for result in results]
    assert max(lengths) == 150_000
    assert min(lengths) < 20_000


async def test_an_answer_that_no_longer_fits_is_refused_and_a_shorter_one_taken(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(run_bytes=200_000)

    @tool(runs_on="client")
    def ask(number: int) -> str: ...

    calls = [call("ask", {"number": number}, id=f"c{number}") for number in range(3)]
    agent = agent_on(scripted([calls, "Done."]), tools=[ask])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=3)
        await conversation.answer("c0", "x" * 150_000)
        with pytest.raises(Refused, match=r"bytes as it is written into the history, but this run has only .* left"):
            await conversation.answer("c1", "x" * 150_000)
        await conversation.answer("c1", "short")
        await conversation.answer("c2", "short")
        assert await conversation.reply() == "Done."
