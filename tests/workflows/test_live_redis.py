"""What text by Redis has of its own: what all lanes have in common is in test_live_lanes.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from everturn import Client, Encryption
from everturn.cli.doctor import _live_findings
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.live.configured_lane import lane_of
from everturn.settings import Settings
from everturn.storage.data_converter import data_converter
from everturn.testing import ScriptedModel, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.live_text import STORY, text_until
from tests.support.redis_server import PASSWORD, RedisServer, needs_redis
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]
pytestmark = needs_redis


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        monkeypatch.setenv("EVERTURN_LIVE", server.url)
        yield server


async def test_without_redis_the_text_comes_with_heartbeats_and_with_it_again_beside_them(
    client: Client,
    scripted: Scripted,
    redis: RedisServer,
    go_on: threading.Event,
    bounds: Bounds,
) -> None:
    bounds(lane_again_seconds=0.05)
    redis.kill()
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go.", stream=True)
        async with asyncio.timeout(60):
            told = conversation.events()
            seen = await text_until(told, bool)
            assert STORY.startswith(seen)
            redis.start()
            with Redis.from_url(redis.url) as stored:
                await eventually(lambda: stored.keys("everturn:live:*"), what="what could not be written is written")
            go_on.set()
            assert seen + await text_until(told, lambda _: False) == STORY
        assert await conversation.reply() == STORY


async def test_what_lies_in_redis_is_encrypted_as_a_payload_is(
    server: DevServer, scripted: Scripted, redis: RedisServer, go_on: threading.Event, tmp_path: Path
) -> None:
    key = b"k" * 32
    own = await Client.connect(server.address, task_queue=f"q-{tmp_path.name}", encryption=Encryption({"one": key}))
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    async with hosting(own, agent):
        conversation = await own.start(agent, "Go.", stream=True)
        async with asyncio.timeout(60):
            seen = await text_until(conversation.events(), bool)
        with Redis.from_url(redis.url) as stored:
            [name] = stored.keys("everturn:live:*")
            entries = stored.xrange(name)
            assert stored.ttl(name) > 0, "nothing stays for good"
        go_on.set()
        assert await conversation.reply() == STORY
    assert seen
    assert entries
    assert not [fields for _, fields in entries if b"word" in fields[b"p"]]


async def test_what_others_write_there_is_passed_over(
    client: Client, scripted: Scripted, redis: RedisServer, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go.", stream=True)
        async with asyncio.timeout(60):
            told = conversation.events()
            seen = await text_until(told, bool)
            with Redis.from_url(redis.url) as other:
                [name] = other.keys("everturn:live:*")
                for junk in ({"p": b"\xff\x00"}, {"q": b""}, {"p": b""}):
                    other.xadd(name, junk)
            go_on.set()
            assert seen + await text_until(told, lambda _: False) == STORY


@pytest.mark.parametrize("value", ["redis", "http://localhost", f"redis://:{PASSWORD}@host:port/0"])
def test_an_address_that_is_none_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("EVERTURN_LIVE", value)
    with pytest.raises(InvalidSetting, match="EVERTURN_LIVE") as refusal:
        lane_of(Settings.load(), data_converter)
    assert PASSWORD not in str(refusal.value)


async def test_doctor_says_whether_redis_answers(redis: RedisServer) -> None:
    [finding] = [entry async for entry in _live_findings(Settings.load())]
    assert (finding.part, finding.state) == ("live text", "ok")
    redis.kill()
    [finding] = [entry async for entry in _live_findings(Settings.load())]
    assert finding.state == "wrong"
    assert PASSWORD not in finding.detail + finding.cure
