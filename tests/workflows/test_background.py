"""A turn whose response the provider works on in the background: whatever becomes of its worker, it is paid once."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from everturn import Agent, Client, Model, ModelSettings
from everturn.devserver import DevServer
from everturn.errors import Stalled
from everturn.limits import Patience
from tests.support.agents import hosting
from tests.support.background_server import BackgroundServer, Worked, is_kept, says
from tests.support.bounds import Bounds
from tests.support.prepared import killed_at_the_end
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
STORY = ("Once ", "upon ", "a ", "time.")

WORKER = """
import asyncio, sys
from everturn import Client, Worker
from tests.workflows.test_background import agent_at

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    await Worker(client, agents=[agent_at(sys.argv[3])]).run()

asyncio.run(main())
"""


def agent_at(address: str, **options: object) -> Agent:
    model = Model("openai:gpt-5.5", base_url=address)
    return Agent("clerk", model=model, settings=ModelSettings(background=True), **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, bounds: Bounds) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    bounds(broken_seconds=0.01)


async def test_a_worker_that_is_killed_in_the_middle_leaves_a_response_that_the_next_one_picks_up(
    server: DevServer, client: Client, cached_conversations: int, go_on: threading.Event
) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as provider:
        agent = agent_at(provider.base_url)
        with killed_at_the_end("-c", WORKER, server.address, client.task_queue, provider.base_url):
            conversation = await client.start(agent, "Tell me a story")
            await eventually(lambda: is_kept(client, conversation.id))
        go_on.set()
        async with hosting(client, agent, cached_conversations=cached_conversations):
            assert await conversation.reply() == "".join(STORY)
            outcome = await conversation.outcome()
        assert provider.begun == 1
        assert provider.asked_for("/resp_1")[0].query["stream"] == "true"
        assert not provider.asked_for("/cancel", "POST")
    assert (outcome.turns, outcome.usage.total_tokens) == (1, 15)


@pytest.mark.parametrize("next_one", ["as it was", "without background"])
async def test_a_worker_that_shuts_down_hands_the_response_over(
    client: Client, cached_conversations: int, go_on: threading.Event, next_one: str
) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as provider:
        agent = agent_at(provider.base_url)
        async with hosting(client, agent, drain_timeout=timedelta(0)):
            conversation = await client.start(agent, "Tell me a story")
            await eventually(lambda: is_kept(client, conversation.id))
        if next_one == "without background":
            agent = Agent("clerk", model=agent.model)
        go_on.set()
        async with hosting(client, agent, cached_conversations=cached_conversations):
            assert await conversation.reply() == "".join(STORY)
            await conversation.outcome()
        assert provider.begun == 1
        assert provider.responses["resp_1"].status == "completed"


async def test_a_try_that_takes_too_long_is_followed_by_one_that_waits_for_the_same_response(
    client: Client, go_on: threading.Event
) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as provider:
        agent = agent_at(provider.base_url, patience=Patience(turn_timeout=timedelta(seconds=1)))
        async with hosting(client, agent):
            conversation = await client.start(agent, "Tell me a story")
            await eventually(lambda: bool(provider.asked_for("/resp_1")))
            go_on.set()
            assert await conversation.reply() == "".join(STORY)
            await conversation.outcome()
        assert provider.begun == 1


async def test_a_cancelled_turn_cancels_its_response(client: Client, go_on: threading.Event) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as provider:
        agent = agent_at(provider.base_url)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1))
            await eventually(lambda: is_kept(client, conversation.id))
            await conversation.cancel_turn()
            await eventually(lambda: provider.responses["resp_1"].status == "cancelled")
            await conversation.close()
            await conversation.outcome()
        assert provider.begun == 1


async def test_a_cancelled_conversation_that_is_over_by_then_cancels_its_response(
    client: Client, go_on: threading.Event
) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as provider:
        agent = agent_at(provider.base_url)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Tell me a story")
            await eventually(lambda: is_kept(client, conversation.id))
            await conversation.cancel_turn()
            assert (await conversation.outcome()).status == "cancelled"
            await eventually(lambda: provider.responses["resp_1"].status == "cancelled")


async def test_a_turn_that_stalls_cancels_its_response_and_begins_another_when_it_is_resumed(
    client: Client, cached_conversations: int, go_on: threading.Event
) -> None:
    patience = Patience(turn_timeout=timedelta(seconds=1), model=timedelta(seconds=1))
    with BackgroundServer(says(*STORY, go_on=go_on)) as provider:
        agent = agent_at(provider.base_url, patience=patience)
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversation = await client.start(agent, "Tell me a story")
            with pytest.raises(Stalled, match="took longer than"):
                await conversation.reply()
            assert provider.responses["resp_1"].status == "cancelled"
            go_on.set()
            await conversation.resume()
            assert await conversation.reply() == "".join(STORY)
            await conversation.outcome()
        assert provider.begun == 2


async def test_one_that_failed_came_empty_or_is_gone_is_asked_for_anew(
    client: Client, cached_conversations: int
) -> None:
    """Each of the first three is over when the next try begins."""

    def work(worked: Worked) -> None:
        match worked.id:
            case "resp_1":
                worked.end("failed", error={"code": "server_error", "message": "The machine burnt."})
            case "resp_2":
                worked.end("completed")
            case "resp_3":
                del provider.responses["resp_3"]
                worked.tell("error", message="nothing more of this stream")
            case _:
                says(*STORY)(worked)

    with BackgroundServer(work) as provider:
        agent = agent_at(provider.base_url)
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversation = await client.start(agent, "Tell me a story")
            assert await conversation.reply() == "".join(STORY)
            await conversation.outcome()
        assert provider.begun == 4
