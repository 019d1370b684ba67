"""Calls wait for their provider's limit: in their activities, all of them, and for everybody to see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everturn import Agent, Client, Model, Patience, RateLimit, generate
from everturn.activities import attempts
from everturn.client.conversation import Conversation
from everturn.client.pollers import find_pollers
from everturn.errors import InvalidSetting, RateLimited, Stalled
from everturn.events import TurnLimited
from everturn.guardrails import Judge
from everturn.providers.rate_limits import limit_queue
from everturn.providers.rate_limits.worker_count import count_sharing
from everturn.testing import ScriptedModel, fail
from everturn.worker.plugin import EverturnPlugin
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.prepared import killed_at_the_end
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]
ROOT = Path(__file__).parents[2]

WORKER = """
import asyncio, sys
from everturn import Client, Worker
from tests.workflows.test_provider_limits import agent_at

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    await Worker(client, agents=[agent_at("http://127.0.0.1:1")]).run()

asyncio.run(main())
"""


def agent_at(address: str) -> Agent:
    return Agent("clerk", model=Model("scripted:demo", base_url=address))


@pytest.fixture(autouse=True)
def _kept_to_the_end(bounds: Bounds) -> Iterator[None]:
    """No call is let through in the middle of a hold, and what one test has learned is no other's."""
    bounds(first_look=1.0)
    limit_queue._of_loop.clear()
    yield
    limit_queue._of_loop.clear()


async def test_a_429_holds_every_call_which_says_what_it_waits_for_and_can_be_cancelled(
    client: Client, scripted: Scripted
) -> None:
    model = scripted(lambda _: fail(429, headers={"retry-after": "100"}))
    agent = agent_on(model)
    async with hosting(client, agent):
        first = await client.start(agent, "Go", keep_open=timedelta(minutes=5))
        await eventually(lambda: _limited(first))
        second = await client.start(agent, "Go", keep_open=timedelta(minutes=5))
        await eventually(lambda: _limited(second))
        status = await second.status()
        assert status.state == "running"
        assert status.cause == "Turn 1 waits for the rate limit of scripted."
        assert status.as_json()["limited_by"] == "scripted"
        assert len(model.requests) == 1
        async for event in second.events():
            if isinstance(event, TurnLimited):
                break
        assert (event.turn, event.provider) == (1, "scripted")
        for conversation in (first, second):
            await conversation.cancel_turn()
            assert (await conversation.status()).state == "idle"
            await conversation.close()
            await conversation.outcome()
    assert len(model.requests) == 1


async def test_calls_wait_in_their_first_try_and_spend_no_patience(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter([fail(429, headers={"retry-after": "0.3"})] * 3)
    model = scripted(lambda _: next(refusals, "There."))
    spent: list[timedelta] = []
    monkeypatch.setattr(attempts, "leave_out", lambda seconds: spent.append(timedelta(seconds=seconds)))
    agent = agent_on(model)
    async with hosting(client, agent):
        held = [await client.start(agent, "Go") for _ in range(3)]
        assert [(await one.outcome()).text for one in held] == ["There."] * 3
    for conversation in held:
        assert await _attempts(client, conversation) == [1]
    assert sum(spent, timedelta()) >= timedelta(seconds=0.3)  # what they waited is left out of how long they tried


async def test_a_provider_that_takes_nobody_for_longer_than_patience_stalls_the_conversation(
    client: Client, scripted: Scripted
) -> None:
    model = scripted(lambda _: fail(429, "too many", headers={"retry-after": "0.2"}))
    agent = agent_on(model, patience=Patience(model=timedelta(seconds=1)))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        with pytest.raises(Stalled, match=r"429: too many\. \(it has accepted no call for "):
            await conversation.reply()
        status = await conversation.status()
        assert status.cure is not None
        await conversation.close()
        await conversation.outcome()
    assert len(model.requests) > 1


async def test_a_worker_that_was_killed_shares_no_limit(client: Client) -> None:
    """Temporal shows it for a minute more, and whoever is killed again and again was many workers until then."""

    async def polls(workers: int) -> bool:
        return len({poller.identity for poller in await find_pollers(client.temporal, client.task_queue)}) == workers

    async with hosting(client, agent_at("http://127.0.0.1:1")):
        with killed_at_the_end("-c", WORKER, client.temporal.service_client.config.target_host, client.task_queue):
            await eventually(lambda: polls(2))
            assert await count_sharing(client.temporal, client.task_queue) == 2
        assert await polls(2), "the server still shows it"
        assert await count_sharing(client.temporal, client.task_queue) == 1


async def test_a_worker_that_stops_hands_over_what_waits_at_once(client: Client, scripted: Scripted) -> None:
    answers = iter([fail(429, headers={"retry-after": "100"})])
    model = scripted(lambda _: next(answers, "There."))
    agent = agent_on(model)
    async with hosting(client, agent, drain_timeout=timedelta(minutes=5)):
        conversation = await client.start(agent, "Go")
        await eventually(lambda: _limited(conversation))
    limit_queue._of_loop.clear()  # another process has learned nothing
    async with hosting(client, agent):
        assert (await conversation.outcome()).text == "There."


async def test_a_limit_that_is_known_holds_calls_back_before_any_429(client: Client, scripted: Scripted) -> None:
    model = scripted(lambda _: "There.")
    agent = agent_on(model)
    async with hosting(client, agent, rate_limits={"scripted": RateLimit(rpm=1)}):
        await client.run(agent, "Go")
        waits = await client.start(agent, "Go", keep_open=timedelta(minutes=5))
        await eventually(lambda: _limited(waits))
        await waits.cancel_turn()
        await waits.close()
        await waits.outcome()
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("openai", "is not a rate limit"),
        ("openai:rpm=", "is not a rate limit"),
        ("openai:rpm=500+spm=3", "is not a rate limit"),
        ("openai:rpm=0", "rpm"),
        ("openia:rpm=5", "Did you mean 'openai'"),
    ],
)
def test_a_limit_that_is_none_is_refused(given: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_RATE_LIMITS", given)
    with pytest.raises(InvalidSetting, match=says):
        EverturnPlugin()


def test_limits_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_RATE_LIMITS", "openai:rpm=500+tpm=200000, anthropic:rpm=50")
    known = {"openai": RateLimit(rpm=500, tpm=200_000), "anthropic": RateLimit(rpm=50)}
    assert EverturnPlugin().hosted.rate_limits == known


async def _limited(conversation: Conversation) -> bool:
    return (await conversation.status()).limited_by == "scripted"


async def _attempts(client: Client, conversation: Conversation) -> list[Any]:
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    started = [event.activity_task_started_event_attributes for event in history.events]
    return [one.attempt for one in started if one.attempt]


async def test_generate_waits_for_the_limit_that_a_429_has_shown_and_can_be_cancelled(scripted: Scripted) -> None:
    server = scripted([*["Hello."] * 3, fail(429, headers={"retry-after": "100"}), "Never."], order="arrival")
    model = Model("scripted:demo", base_url=server.base_url)
    # Without a limit, none waits for another's answer.
    assert [reply.text for reply in await asyncio.gather(*(generate(model, "Hi") for _ in range(3)))] == ["Hello."] * 3
    with pytest.raises(RateLimited):
        await generate(model, "Hi")
    waits = asyncio.create_task(generate(model, "Hi"))
    (limit,) = limit_queue.met_limits()
    await eventually(lambda: limit.waiting_calls == 1)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert limit.waiting_calls == 0
    assert len(server.requests) == 4


async def test_a_judge_and_the_turns_of_its_key_wait_for_one_limit(client: Client, scripted: Scripted) -> None:
    allowed = '{"allowed": true}'
    server = scripted([fail(429, headers={"retry-after": "100"}), allowed, "Hello."], order="arrival")
    guard = Judge(Model("scripted:judge", base_url=server.base_url), "It is polite.", refuse="No.")
    agent = agent_on(server, hooks=[guard])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await eventually(
            lambda: len(server.requests) == 1 and any(limit.waiting_calls for limit in limit_queue.met_limits())
        )
        (limit,) = limit_queue.met_limits()
        limit.limiter.hold = 0.0  # its hundred seconds are over
        limit.limiter._next = 0.0
        limit.wake_calls()
        assert (await conversation.outcome()).text == "Hello."
    assert limit.limiter.refused_calls == 1
    assert len(server.requests) == 3
