"""Agents that users made, which a worker finds in a store by name and version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, AgentStore, Client, Worker, tool
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting, Stalled
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on
from tests.support.transcripts import results_of
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]

DRAIN = timedelta(seconds=20)


@tool
def look_up(word: str) -> str:
    """Looks a word up."""
    return f"{word} means {word}"


class Store:
    """What users have made, and what of it was asked for."""

    def __init__(self) -> None:
        self.agents: dict[tuple[str, str | None], Agent] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.away = False

    async def find(self, name: str, version: str | None) -> Agent | None:
        self.asked.append((name, version))
        if self.away:
            raise ConnectionError("no answer")
        return self.agents.get((name, version))


@pytest.fixture
def store() -> Store:
    return Store()


async def test_a_worker_finds_an_agent_by_name_and_version_and_asks_once(
    client: Client, scripted: Scripted, store: Store, cached_conversations: int
) -> None:
    model = scripted([call("look_up", {"word": "lamp"}), "Done."])
    store.agents["ada", "3"] = agent_on(model, name="ada", tools=[look_up])
    async with Worker(client, agents=store.find, drain_timeout=DRAIN, cached_conversations=cached_conversations):
        for _ in range(2):
            conversation = await client.start("ada@3", "Hi")
            assert await conversation.reply() == "Done."
            assert [result.text for result in results_of(await conversation.transcript())] == ["lamp means lamp"]
    assert store.asked == [("ada", "3")]


async def test_without_a_version_the_newest_answers_and_without_the_store_an_older_one(
    client: Client, scripted: Scripted, store: Store
) -> None:
    at_once = AgentStore(store.find, cache_for=timedelta())
    async with Worker(client, agents=at_once, drain_timeout=DRAIN):
        for said in ("First.", "Second."):
            store.agents["ada", None] = agent_on(scripted([said]), name="ada")
            assert await (await client.start("ada", "Hi")).reply() == said
        store.away = True
        assert await (await client.start("ada", "Hi")).reply() == "Second."


async def test_a_name_that_the_store_lacks_is_handed_back_to_a_worker_that_knows_it(
    server: DevServer, client: Client, scripted: Scripted, store: Store
) -> None:
    async with Worker(client, agents=store.find, drain_timeout=DRAIN):
        conversation = await client.start("ada", "Hi")
        await eventually(lambda: len(store.asked) > 1)
        other = await Client.connect(server.address, task_queue=client.task_queue, by="tester")
        async with Worker(other, agents=[agent_on(scripted(["Hello."]), name="ada")], drain_timeout=DRAIN):
            assert await conversation.reply() == "Hello."


async def test_a_store_that_fails_is_asked_again_and_stalls_the_conversation_in_the_end(
    client: Client, scripted: Scripted, store: Store
) -> None:
    store.away = True
    store.agents["ada", None] = agent_on(scripted(["Hello."]), name="ada")
    async with Worker(client, agents=store.find, drain_timeout=DRAIN):
        conversation = await client.start("ada", "Hi")
        await eventually(lambda: len(store.asked) > 1)
        store.away = False
        assert await conversation.reply() == "Hello."

    store.away = True
    short = AgentStore(store.find, patience=timedelta(seconds=1))
    async with Worker(client, agents=short, drain_timeout=DRAIN):
        conversation = await client.start("ada", "Hi")
        with pytest.raises(Stalled, match=r"'ada' can't be looked up: .*no answer"):
            await conversation.reply()
        await conversation.close()


async def test_a_store_that_hangs_has_a_time_out(client: Client) -> None:
    async def find(name: str, version: str | None) -> Agent | None:
        await asyncio.Event().wait()
        return None

    hanging = AgentStore(find, timeout=timedelta(seconds=0.1), patience=timedelta(seconds=0.2))
    async with Worker(client, agents=hanging, drain_timeout=DRAIN):
        conversation = await client.start("ada", "Hi")
        with pytest.raises(Stalled, match="'ada' can't be looked up"):
            await conversation.reply()
        await conversation.close()


async def test_what_is_no_agent_stalls_and_says_so(client: Client) -> None:
    def find(name: str, version: str | None) -> Any:
        return {"name": name}

    async with Worker(client, agents=find, drain_timeout=DRAIN):
        conversation = await client.start("ada", "Hi")
        with pytest.raises(Stalled, match="The store returned dict for the agent 'ada'"):
            await conversation.reply()
        await conversation.close()


def test_settings_that_mean_nothing_are_refused() -> None:
    wrong: Any = 5
    for options in ({"cache_for": wrong}, {"timeout": timedelta()}, {"patience": -timedelta(1)}):
        with pytest.raises(InvalidSetting, match=next(iter(options))):
            AgentStore(lambda name, version: None, **options)
    with pytest.raises(InvalidSetting, match="can't be called"):
        AgentStore(wrong)
