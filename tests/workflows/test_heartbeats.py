"""Heartbeats by a profile: seldom ones cost little, and a lost worker is noticed all the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.service import ConnectConfig, TLSConfig
from temporalio.testing import ActivityEnvironment

from everturn import Client, ToolContext, Worker, names, tool
from everturn.cli.doctor_temporal import heartbeats_finding
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.heartbeats.heartbeat import Heartbeat
from everturn.heartbeats.profile_choice import profile_for
from everturn.heartbeats.profiles import QUICK, THRIFTY
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.live.heartbeat_text import HeartbeatText
from everturn.lost_workers.journal import Journal
from everturn.providers import Delta
from everturn.testing import ScriptedModel, call, slow
from everturn.tools.tool import Tool
from everturn.worker.hosting import Hosting
from tests.support.agents import agent_on, hosting
from tests.support.prepared import killed_at_the_end
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]

DOOMED = """
import asyncio, sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from everturn import Agent, Client, Model, Worker
from everturn.heartbeats.profiles import THRIFTY

address, task_queue, model, journals, timeout = sys.argv[1:]

async def main():
    client = await Client.connect(address, task_queue=task_queue)
    clerk = Agent("clerk", model=Model("scripted:demo", base_url=model))
    worker = Worker(client, agents=[clerk], journals=Path(journals), heartbeats="thrifty")
    profile = replace(THRIFTY, interval_seconds=float(timeout), timeout=timedelta(seconds=float(timeout)))
    worker._plugin.hosted = replace(worker._plugin.hosted, heartbeats=profile)
    await worker.run()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("host", "tls_domain", "profile"),
    [
        ("localhost:7233", None, QUICK),
        ("temporal.internal.acme.com:7233", None, QUICK),
        ("orders.a1b2c.tmprl.cloud:7233", None, THRIFTY),
        ("Orders.A1B2C.TMPRL.cloud", None, THRIFTY),
        ("us-east-1.aws.api.temporal.io:7233", None, THRIFTY),
        ("vpce-0123.us-east-1.vpce.amazonaws.com:7233", "orders.a1b2c.tmprl.cloud", THRIFTY),
        ("tmprl.cloud.acme.com:7233", None, QUICK),
        ("[::1]:7233", None, QUICK),
    ],
)
def test_a_worker_of_temporal_cloud_is_thrifty_by_itself(host: str, tls_domain: str | None, profile: Any) -> None:
    connection = ConnectConfig(target_host=host, tls=TLSConfig(domain=tls_domain) if tls_domain else False)
    assert profile_for(None, connection) is profile
    assert profile_for("quick", connection) is QUICK, "who says so is obeyed"
    assert profile_for("thrifty", connection) is THRIFTY


@pytest.mark.parametrize(("setting", "said"), [("", "quick (by itself)"), ("Thrifty", "thrifty (EVERTURN_HEARTBEATS)")])
async def test_doctor_says_which_one_a_worker_has(
    client: Client, monkeypatch: pytest.MonkeyPatch, setting: str, said: str
) -> None:
    monkeypatch.setenv("EVERTURN_HEARTBEATS", setting)
    found = await heartbeats_finding(client)
    assert (found.state, found.detail.partition(":")[0]) == ("ok", said)


def test_a_profile_that_there_is_not_is_refused(client: Client, scripted: Scripted) -> None:
    with pytest.raises(InvalidSetting, match=r"heartbeats='lazy'.*quick and thrifty"):
        hosting(client, agent_on(scripted(["Hi"])), heartbeats="lazy")


async def test_neither_text_nor_progress_makes_a_thrifty_activity_beat_sooner() -> None:
    env, beats = ActivityEnvironment(), list[Any]()

    async def turn() -> Heartbeat:
        env.on_heartbeat = lambda *details: beats.append(details)
        beat = Heartbeat(b"token", asyncio.get_running_loop(), interval=THRIFTY.interval_seconds)
        beat.start()
        text = HeartbeatText(beat, attempt=1, every=None)
        for word in ("one ", "two "):
            text.take_delta(Delta("text", word))
            beat.report_progress({"done": word})
            await asyncio.sleep(0)
        beat.stop()
        assert beat.due - beat.last == pytest.approx(THRIFTY.interval_seconds, abs=0.1)
        assert beat.details[1].every == THRIFTY.interval_seconds, "who follows it looks again as late"
        return beat

    await env.run(turn)
    assert beats == []


async def test_each_activity_of_a_thrifty_worker_may_be_silent_for_as_long(client: Client, scripted: Scripted) -> None:
    @tool
    def look(context: ToolContext[None]) -> str:
        return "seen"

    agent = agent_on(scripted([call("look"), "Done."]), tools=[look])
    async with hosting(client, agent, heartbeats="thrifty"):
        conversation = await client.start(agent, "Go.", stream=True)
        assert await conversation.reply() == "Done."
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    assert [one.activity_type.name for one in scheduled] == [names.CALL_MODEL, "look", names.CALL_MODEL]
    assert {one.heartbeat_timeout.ToTimedelta() for one in scheduled} == {THRIFTY.timeout}


@pytest.mark.parametrize(("timeout", "interval"), [(5, 1.5), (12, 1.5), (13, 10.0), (20, 10.0)])
def test_a_thrifty_worker_beats_as_often_as_what_a_quick_one_scheduled_needs(timeout: float, interval: float) -> None:
    heartbeats = Heartbeats(cast("Any", None), Journal(Path("nowhere"), scope={}), THRIFTY)
    assert heartbeats._interval_for(timedelta(seconds=timeout)) == interval
    assert heartbeats._interval_for(None) == QUICK.interval_seconds


async def test_a_cancellation_does_not_wait_for_the_next_of_a_thrifty_workers_beats(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def dig() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError("nobody sets that")

    agent = agent_on(scripted([call("dig"), "Never."]), tools=[dig])
    worker = hosting(client, agent, cached_conversations=cached_conversations)
    seldom = replace(THRIFTY, interval_seconds=900.0, timeout=timedelta(seconds=1000))
    worker._plugin.hosted = replace(worker._plugin.hosted, heartbeats=seldom)
    async with worker, asyncio.timeout(60):
        conversation = await client.start(agent, "Go.", keep_open=timedelta(minutes=1))
        await begun.wait()
        await conversation.cancel_turn()
        await cancelled.wait()
        await conversation.close()
        await conversation.outcome()


async def test_a_worker_that_forgets_the_conversation_beats_no_sooner(client: Client, scripted: Scripted) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def dig() -> str:
        begun.set()
        await go_on.wait()
        return "dug"

    agent = agent_on(scripted([call("dig"), "Done."]), tools=[dig])
    worker = hosting(client, agent, cached_conversations=0, heartbeats="thrifty")
    async with worker, asyncio.timeout(60):
        conversation = await client.start(agent, "Go.")
        await begun.wait()
        await conversation.pause()  # a step of its own: what came before it is forgotten by then
        await conversation.resume()
        [beat] = _heartbeats_of(worker)._running
        assert beat.interval == THRIFTY.interval_seconds
        go_on.set()
        assert await conversation.reply() == "Done."


def _heartbeats_of(worker: Worker) -> Heartbeats:
    assert worker._worker is not None
    config = worker._worker.config(active_config=True)
    [hosting] = [interceptor for interceptor in config["interceptors"] if isinstance(interceptor, Hosting)]
    return hosting.heartbeats


@pytest.mark.parametrize("beside", [True, False], ids=["the same machine", "another machine"])
async def test_what_a_thrifty_worker_had_in_hand_goes_on_after_a_kill(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path, beside: bool
) -> None:
    go_on = threading.Event()
    model = scripted([slow("Never.", until=go_on), "Done."], order="arrival")
    journals = tmp_path / "journals"
    timeout = 600.0 if beside else 2.0  # nobody would wait for the first: so it is the journal that says it
    theirs = str(journals if beside else tmp_path / "elsewhere")
    agent = agent_on(model)
    try:
        with killed_at_the_end(
            *("-c", DOOMED, server.address, client.task_queue, model.base_url, theirs, str(timeout))
        ):
            conversation = await client.start(agent, "Go.")
            await eventually(lambda: bool(model.requests))
        async with hosting(client, agent, heartbeats="thrifty", journals=journals):
            async with asyncio.timeout(60):
                assert await conversation.reply() == "Done."
    finally:
        go_on.set()
    failure = await _first_failure(client, conversation.id)
    if beside:
        assert failure.application_failure_info.type == names.WORKER_LOST
    else:
        assert failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT


BLOCKED = """
import asyncio, os, sys, time
from pathlib import Path
from everturn import Agent, Client, Model, Worker, tool

address, task_queue, model, journals, ran = sys.argv[1:]

def made(name):
    async def work() -> str:
        with open(ran, "a") as file:
            print(name, file=file, flush=True)
        time.sleep(600)

    return tool(work, name=name, effect="once")

async def main():
    client = await Client.connect(address, task_queue=task_queue)
    clerk = Agent("clerk", model=Model("scripted:demo", base_url=model), tools=[made(f"pay_{n}") for n in range(3)])
    await Worker(client, agents=[clerk], journals=Path(journals)).run()

asyncio.run(main())
"""


async def test_what_a_killed_worker_had_not_begun_runs_on_another_without_a_person(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    """One of three run-once calls blocked the event loop: only that one may have taken effect."""
    names_of_tools = [f"pay_{n}" for n in range(3)]
    model = scripted([[call(name) for name in names_of_tools], "Done."])
    journals = tmp_path / "journals"
    ran = tmp_path / "ran"

    def made(name: str) -> Tool[[], str]:
        def work() -> str:
            with ran.open("a") as file:
                print(name, file=file)
            return "paid"

        return tool(work, name=name, effect="once")

    agent = agent_on(model, tools=[made(name) for name in names_of_tools])
    with killed_at_the_end(
        *("-c", BLOCKED, server.address, client.task_queue, model.base_url, str(journals), str(ran))
    ):
        conversation = await client.start(agent, "Go.", keep_open=timedelta(minutes=1))
        await eventually(lambda: ran.exists() and bool(ran.read_text()))
        await eventually(lambda: {line.get("activity") for line in _lines_of(journals)} >= {*names_of_tools})
    async with hosting(client, agent, journals=journals), asyncio.timeout(60):
        await waiting(conversation)
        (doubtful,) = (await conversation.status()).waiting
        assert doubtful.reason == "outcome_unknown"
        await eventually(lambda: len(ran.read_text().split()) == 3)
        assert sorted(ran.read_text().split()) == names_of_tools, "each ran once"
        assert doubtful.tool == ran.read_text().split()[0]
        await conversation.answer(doubtful.call_id, "paid")
        assert await conversation.reply() == "Done."


def _lines_of(journals: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in journals.iterdir() for line in file.read_text().splitlines()]


async def _first_failure(client: Client, conversation_id: str) -> Failure:
    """Of the try before the one that did it."""
    history = await client.temporal.get_workflow_handle(conversation_id).fetch_history()
    [failure] = [
        event.activity_task_started_event_attributes.last_failure
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    ]
    return failure
