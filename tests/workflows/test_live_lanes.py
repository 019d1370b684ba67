"""Text beside Temporal, whichever lane carries it: as it is written, from its beginning, and without a heartbeat."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis

from everturn import Client, events
from everturn.devserver import DevServer
from everturn.heartbeats.details import StreamedText, whole_reply
from everturn.heartbeats.profiles import PROFILES
from everturn.testing import ScriptedModel, cut, slow
from tests.support.agents import agent_on, hosting
from tests.support.live_text import STORY, UNHEARD, text_until
from tests.support.prepared import killed_at_the_end
from tests.support.redis_server import RedisServer, needs_redis

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]

DOOMED = """
import asyncio, sys
from everturn import Agent, Client, Model, Worker

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    clerk = Agent("clerk", model=Model("scripted:demo", base_url=sys.argv[3]))
    await Worker(client, agents=[clerk], heartbeats="thrifty").run()

asyncio.run(main())
"""


@pytest.fixture(params=[pytest.param("redis", marks=needs_redis), "http"])
def live(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """EVERTURN_LIVE of workers and clients."""
    if request.param == "redis":
        with RedisServer(tmp_path) as server:
            monkeypatch.setenv("EVERTURN_LIVE", server.url)
            yield server.url
    else:
        monkeypatch.setenv("EVERTURN_LIVE", request.param)
        yield request.param


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of this process sends a heartbeat by itself."""
    monkeypatch.setitem(PROFILES, "thrifty", UNHEARD)


@pytest.mark.usefixtures("unheard")
async def test_text_comes_while_it_is_written_and_no_heartbeat_carries_it(
    client: Client, scripted: Scripted, live: str, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    async with hosting(client, agent, heartbeats="thrifty"):
        conversation = await client.start(agent, "Go.", stream=True)
        async with asyncio.timeout(60):
            first = conversation.events()
            seen = await text_until(first, bool)
            assert STORY.startswith(seen)
            late = await text_until(conversation.events(), lambda text: len(text) >= len(seen))
            assert STORY.startswith(late), "who comes late is told it from the beginning"
            described = await client.temporal.get_workflow_handle(conversation.id).describe()
            [turn] = described.raw_description.pending_activities
            assert not turn.heartbeat_details.payloads, "and that was no heartbeat"
            go_on.set()
            rest = await text_until(first, lambda _: False)
        assert seen + rest == STORY
        assert await conversation.reply() == STORY
        again = await text_until(conversation.events(), lambda _: False)
        assert again == "", "once the reply is in the history, that has it"


async def test_a_thousand_watchers_of_one_conversation_are_told_all_of_it(
    client: Client, scripted: Scripted, live: str, go_on: threading.Event
) -> None:
    lane = client.live
    assert lane is not None
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go.", stream=True)
        told = conversation.events()
        await text_until(told, bool)
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
        [turn] = described.raw_description.pending_activities
        [key] = lane._channels  # type: ignore[attr-defined]
        assert key.activity_id == turn.activity_id

        async def watch() -> str:
            seen = ""
            async for streamed in lane.follow(key):
                seen += "".join(text for _, text in streamed.pieces)
                if seen == STORY:
                    break
            return seen

        watching = [asyncio.create_task(watch()) for _ in range(1000)]
        await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(60):
            assert await asyncio.gather(*watching) == [STORY] * 1000
        assert [*lane._channels] == [key]  # type: ignore[attr-defined]
        if live != "http":
            with Redis.from_url(live) as own:
                assert len(own.client_list(_type="normal")) < 10, "in one process they share what is read"
        assert await conversation.reply() == STORY
        await told.aclose()


async def test_after_a_kill_the_text_starts_over_and_cursors_hold(
    server: DevServer, client: Client, scripted: Scripted, live: str, go_on: threading.Event
) -> None:
    second = threading.Event()
    model = scripted(
        [slow("Lost words. " * 20, after=5, until=go_on), slow(STORY, after=9, until=second)], order="arrival"
    )
    agent = agent_on(model)
    with killed_at_the_end("-c", DOOMED, server.address, client.task_queue, model.base_url):
        conversation = await client.start(agent, "Go.", stream=True)
        told, cursor = conversation.events(), ""
        async with asyncio.timeout(60):
            async for event in told:
                cursor = event.cursor
                if isinstance(event, events.TextDelta):
                    break
    try:
        async with hosting(client, agent, heartbeats="thrifty"), asyncio.timeout(60):
            resumed, kinds = conversation.events(since=cursor), list[str]()
            seen = await text_until(resumed, lambda text: text.startswith("word"), kinds)
            second.set()
            assert seen + await text_until(resumed, lambda _: False) == STORY
            assert await text_until(told, lambda _: False) == STORY, "who watched through the kill sees the same"
            assert await conversation.reply() == STORY
    finally:
        second.set()
    assert kinds.count("turn_retried") == 1


async def test_a_turn_that_the_same_worker_asks_again_starts_over_for_all(
    client: Client, scripted: Scripted, live: str, go_on: threading.Event
) -> None:
    second = threading.Event()
    try:
        agent = agent_on(
            scripted([cut("Lost words. " * 40, after=11, until=go_on), slow(STORY, after=9, until=second)])
        )
        async with hosting(client, agent, heartbeats="thrifty"), asyncio.timeout(60):
            conversation = await client.start(agent, "Go.", stream=True)
            told, kinds = conversation.events(), list[str]()
            assert (await text_until(told, bool)).startswith("Lost")
            go_on.set()
            seen = await text_until(told, lambda text: text.startswith("word"), kinds)
            late = await text_until(conversation.events(), lambda text: text.startswith("word"))
            assert STORY.startswith(late)
            second.set()
            assert seen + await text_until(told, lambda _: False, kinds) == STORY
            assert kinds.count("turn_retried") == 1
    finally:
        second.set()


async def test_what_people_saw_of_a_reply_stays_when_they_stop_it(
    client: Client, scripted: Scripted, live: str, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    async with hosting(client, agent, heartbeats="thrifty"):
        conversation = await client.start(agent, "Go.", stream=True, keep_open=timedelta(minutes=1))
        async with asyncio.timeout(60):
            seen = await text_until(conversation.events(), lambda text: len(text) >= 64)
        await conversation.cancel_turn()
        cut = [said for said in await conversation.transcript() if said.cut_short]
        go_on.set()
        await conversation.close()
        await conversation.outcome()
    assert [said.text[: len(seen)] for said in cut] == [seen]


def test_what_was_said_is_put_together_from_pieces_that_follow_each_other() -> None:
    def said(at: int, *texts: str, attempt: int = 1) -> StreamedText:
        return StreamedText(every=0, attempt=attempt, at=at, pieces=tuple(("text", text) for text in texts))

    def text(*pieces: StreamedText) -> str | None:
        reply = whole_reply(pieces)
        return None if reply is None else "".join(text for _, text in reply.pieces)

    assert text() is None
    assert text(said(0, "one "), said(4, "two ")) == "one two "
    assert text(said(0, "one "), said(0, "one ", "two ")) == "one two ", "written again after a failed write"
    assert text(said(0, "one "), said(9, "three")) is None
    assert text(said(0, "lost", attempt=1), said(0, "kept", attempt=2), said(4, "late", attempt=1)) == "kept"
