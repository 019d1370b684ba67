"""Nobody hosts what is asked for: a name that no worker knows, and a queue that no worker polls."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.runtime import Runtime, TelemetryConfig

from everturn import Client, tool
from everturn.activities.agent_store import AgentStore
from everturn.cli import connect, follow
from everturn.cli.terminal import Screen
from everturn.client import pollers
from everturn.client.missing_worker import MissingWorkerWatch
from everturn.client.unpolled_queue import AwaitedQueue
from everturn.errors import InvalidAgent, NotFound
from everturn.events import WorkerAwaited
from everturn.testing import ScriptedModel, call
from everturn.worker.worker import Worker
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


async def _hosted(client: Client) -> frozenset[str] | None:
    return await pollers.hosted_agents(client.temporal, client.task_queue)


async def test_a_name_that_no_worker_hosts_is_refused_before_anything_starts(
    client: Client, scripted: Scripted
) -> None:
    model = scripted(["Done."])
    async with hosting(await _soon_heard(client), agent_on(model), agent_on(model, name="billing")):

        async def announced() -> bool:
            return await _hosted(client) == {"billing", "clerk"}

        await eventually(announced, what="the worker was heard of")
        for start in (client.run("clark", "hi", id="wrong"), client.send("clark", "hi", id="wrong")):
            with pytest.raises(InvalidAgent) as refused:
                await start
            assert client.task_queue in refused.value.message
            assert "hosts the agent 'clark'; they host billing, clerk." in refused.value.message
            assert refused.value.cure.startswith("Did you mean 'clerk'?")
        assert (await client.run("clerk", "hi")).text == "Done."
    with pytest.raises(NotFound):
        await client.conversation("wrong").cursor()


@pytest.mark.long
async def test_an_agent_that_had_a_worker_before_waits_for_the_next_one(client: Client, scripted: Scripted) -> None:
    model = scripted(["Done."])
    async with hosting(client, agent_on(model, name="billing")):
        await client.run("billing", "hi")

    async def indexed() -> bool:
        return bool([conversation async for conversation in client.conversations(agent="billing")])

    await eventually(indexed, what="the conversation is in the index")
    later = Client(client.temporal, task_queue=client.task_queue, by="tester")
    async with hosting(await _soon_heard(client), agent_on(model, name="clerk")):

        async def announced() -> bool:
            return await _hosted(client) == {"clerk"}

        await eventually(announced, what="the worker was heard of, and the other one's end")
        conversation = await later.start("billing", "hi again")
        async with hosting(client, agent_on(model, name="billing")):
            assert (await conversation.outcome()).text == "Done."


async def test_what_a_store_may_have_is_not_refused(client: Client, scripted: Scripted) -> None:
    model = scripted(["Done."])
    store = AgentStore(lambda name, version: agent_on(model, name=name))
    async with Worker(client, agents=store):
        assert await _hosted(client) is None
        assert (await client.run("anybody", "hi")).text == "Done."


async def test_a_command_says_at_once_that_no_worker_is_there_to_take_it(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", client.temporal.service_client.config.target_host)
    printed: list[str] = []

    def is_said() -> bool:
        printed.append(capsys.readouterr().err)
        return f"No worker polls the task queue {client.task_queue!r}" in "".join(printed)

    agent = agent_on(scripted(["Done."]))
    conversation = await client.start(agent, "hi")
    pausing = asyncio.create_task(connect.act_on(conversation.id, lambda handle: handle.pause()))
    await eventually(is_said, what="the command says so")
    assert not pausing.done()
    async with hosting(client, agent):
        await pausing
        await conversation.resume()
        await conversation.outcome()


async def test_the_terminal_says_once_what_is_tried_again_and_again(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(retry_glance_seconds=0.05)
    model, screen = scripted(["Done."]), Screen()
    screen.console.file = shown = io.StringIO()
    async with hosting(client, agent_on(model, name="billing")):
        conversation = await client.start(agent_on(model, name="shop"), "hi")
        following = asyncio.create_task(
            follow.Follower(conversation, screen=screen, temporal=client.temporal).next_stop()
        )

        async def tried_often() -> bool:
            described = await client.temporal.get_workflow_handle(conversation.id).describe()
            return any(
                pending_activity.attempt > 4 for pending_activity in described.raw_description.pending_activities
            )

        await eventually(tried_often, what="the call was handed back some times")
        await eventually(lambda: "call_model, try" in shown.getvalue(), what="the terminal says so")
        following.cancel()
        await asyncio.wait({following})
    assert shown.getvalue().count("call_model, try") == 1, shown.getvalue()
    assert "Start a worker that has it" in " ".join(shown.getvalue().split())


async def test_without_any_worker_it_starts_and_whoever_waits_is_told(
    client: Client, scripted: Scripted, bounds: Bounds, caplog: pytest.LogCaptureFixture
) -> None:
    bounds(silence=0.1)
    conversation = await client.start("clerk", "hi")
    replied = asyncio.create_task(conversation.reply())
    events = conversation.events()
    kinds, cause = [], ""
    async for event in events:
        kinds.append(event.kind)
        if isinstance(event, WorkerAwaited):
            cause = event.cause
            assert "everturn worker" in event.cure
            break
    assert set(kinds) <= {"message_received", "worker_awaited"}
    assert f"No worker polls the task queue {client.task_queue!r}" in cause
    await eventually(lambda: "worker.missing" in caplog.text, what="the log says so")
    async with hosting(client, agent_on(scripted(["Done."]))):
        assert await replied == "Done."
        assert [event.kind async for event in events][-1] == "done"
    assert caplog.text.count("worker.missing") == 1, "once in each silence"
    # What was said in between is no part of the record.
    assert "worker_awaited" not in [event.kind async for event in conversation.events()]


async def test_who_waits_for_a_person_or_a_tool_is_not_told_of_workers(
    client: Client, scripted: Scripted, bounds: Bounds, caplog: pytest.LogCaptureFixture
) -> None:
    bounds(silence=0.05)
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        begun.set()
        await may_end.wait()
        return "at last"

    @tool(needs_approval=True)
    def refund() -> str:
        return "refunded"

    model = scripted([[call("slow", {})], [call("refund", {})], "Done."])
    async with asyncio.timeout(60), hosting(client, agent_on(model, tools=[slow, refund])):
        conversation = await client.start("clerk", "hi")
        replied = asyncio.create_task(conversation.reply())
        await begun.wait()
        silence = MissingWorkerWatch(client.temporal, conversation.id)
        looked: list[AwaitedQueue | bool] = []
        queue = silence._find_queue

        async def looks() -> AwaitedQueue | bool:
            looked.append(await queue())
            return looked[-1]

        silence._find_queue = looks  # type: ignore[method-assign]
        listening = asyncio.create_task(silence.wait_until_unattended())
        await eventually(lambda: len(looked) > 1, what="it was looked at again while the tool runs")
        may_end.set()
        await waiting(conversation)
        silence.note_step()
        await eventually(lambda: looked[-1] is False, what="nothing is to be done by a worker now")
        await conversation.approve()
        assert await replied == "Done."
        listening.cancel()
    assert {one.name for one in looked if isinstance(one, AwaitedQueue)} <= {client.task_queue}
    assert "worker.missing" not in caplog.text


async def _soon_heard(client: Client) -> Client:
    """For a worker whose first heartbeat does not take a minute; and a client may have but one worker of a queue."""
    runtime = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=timedelta(seconds=1))
    address = client.temporal.service_client.config.target_host
    return await Client.connect(address, task_queue=client.task_queue, by="tester", runtime=runtime)
