"""What clients see and can do while workers, runs and servers come and go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from everturn import Client, Conversation, Limits, names, tool
from everturn.devserver import DevServer
from everturn.errors import ConversationError, Ended, Refused, Unreachable
from everturn.events import AnswerRequested, ApprovalRequested, Event
from everturn.testing import ScriptedModel, call
from everturn.workflows.commands import COMMANDS, Commands
from everturn.workflows.conversation import ConversationWorkflow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.prepared import run
from tests.support.waiting import WAIT_SECONDS, busy_in, busy_taking, eventually, reaches, take_instead, waiting

Scripted = Callable[..., ScriptedModel]

look_around: dict[str, Any] = {"name": "look_around", "description": "Look.", "parameters": {"type": "object"}}


@tool(needs_approval=True)
def refund(cents: int) -> str:
    return f"{cents} back"


async def test_a_decision_that_is_cancelled_is_cancelled_and_not_unreachable(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted([call("refund", {"cents": 5}, id="a"), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
    for steps in (1, 5, 100):  # without a worker, the decision waits
        deciding = asyncio.create_task(conversation.approve("a"))
        for _ in range(steps):
            await asyncio.sleep(0)
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
    await client.temporal.get_workflow_handle(conversation.id).terminate()


@pytest.mark.parametrize("late_by", [1, 3])
async def test_a_decision_that_comes_as_its_run_closes_reaches_the_next_one(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, late_by: int
) -> None:
    agent = agent_on(scripted([call("refund", {"cents": 5}, id="a"), "Done."]), tools=[refund])
    asked = 0
    execute = WorkflowHandle.execute_update

    async def aborted_at_first(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked <= late_by:
            raise RPCError("workflow update was aborted by closing workflow", RPCStatusCode.NOT_FOUND, b"")
        return await execute(self, *args, **options)

    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        monkeypatch.setattr(WorkflowHandle, "execute_update", aborted_at_first)
        assert await conversation.approve("a") == ("a",)
        assert (await conversation.outcome()).text == "Done."
        asked = 0
        with pytest.raises(Ended):
            await conversation.approve("a")


async def test_a_close_whose_workflow_task_the_server_turns_down_is_sent_again(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message comes in while the worker ends the conversation: Temporal takes neither the end nor the update."""
    closing = busy_taking(monkeypatch, names.CLOSE, seconds=3.0)
    agent = agent_on(scripted(["1", "2"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "1"
        ending = asyncio.create_task(conversation.close())
        await eventually(closing.is_set)
        await conversation.send("Wait.")
        await asyncio.wait_for(ending, WAIT_SECONDS)
        assert (await conversation.outcome()).text == "2"
    handle = client.temporal.get_workflow_handle(conversation.id)
    events = (await handle.fetch_history()).events
    assert any(event.HasField("workflow_task_failed_event_attributes") for event in events), (
        "that is what this is about"
    )


async def test_a_command_that_comes_while_the_conversation_ends_is_told_so(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = busy_in(monkeypatch, ConversationWorkflow, "_end_with")
    agent = agent_on(scripted(["1"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await eventually(ending.is_set)
        with pytest.raises(Ended):
            await asyncio.wait_for(conversation.pause(), WAIT_SECONDS)


async def attempts(handle: WorkflowHandle[Any, Any], count: int) -> bool:
    return (await handle.describe()).raw_description.pending_workflow_task.attempt >= count


async def test_a_conversation_whose_workflow_task_fails_says_so_to_who_sends_it_something(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, bounds: Bounds
) -> None:
    bounds(task_timeout=timedelta(seconds=1))  # so long each try after the second waits
    take = COMMANDS[names.MESSAGE].take
    failed = []

    def with_a_bug(self: Commands, said: Any) -> dict[str, Any]:
        if said.text == "bug" and len(failed) < 100:
            failed.append(said)
            raise RuntimeError("a bug")
        return take(self, said)

    take_instead(monkeypatch, names.MESSAGE, with_a_bug)
    agent = agent_on(scripted(["1", "2"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "1"
        await conversation.send("bug")
        handle = client.temporal.get_workflow_handle(conversation.id)
        await eventually(lambda: attempts(handle, 4))
        with pytest.raises(Unreachable, match="did not accept the pause: its workflow task fails again and again"):
            await conversation.pause()
        failed += [None] * 100
        assert await conversation.reply() == "2"
        await conversation.close()


@pytest.mark.long
async def test_pauses_that_come_while_runs_change_all_reach_the_conversation(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=12)

    woken = asyncio.Semaphore(0)

    @tool
    async def nap() -> str:
        await woken.acquire()
        return "rested"

    agent = agent_on(scripted([*[call("nap")] * 12, "Done."]), tools=[nap])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        reply = asyncio.create_task(conversation.reply())
        paused = 0
        while not reply.done():
            woken.release()  # the turn, and now and then the run, ends while the pause is on its way
            try:
                await conversation.pause()
                paused += 1
                await conversation.resume()
            except Ended:
                break
        assert await reply == "Done."
        assert paused >= 11  # the last one may come too late


async def asks(conversation: Conversation) -> AsyncIterator[Event]:
    async for event in conversation.events():
        if isinstance(event, ApprovalRequested | AnswerRequested):
            yield event


@pytest.mark.long
async def test_who_decides_the_moment_a_call_is_announced_is_taken_at_his_word(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    script = [
        [call("refund", {"cents": number}, id=f"a{number}"), call("look_around", id=f"b{number}")]
        for number in range(8)
    ]
    agent = agent_on(scripted([*script, "Done."]), tools=[refund, look_around])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund")
        handle = client.temporal.get_workflow_handle(conversation.id)
        async for event in asks(conversation):
            assert isinstance(event, ApprovalRequested | AnswerRequested)
            if isinstance(event, AnswerRequested):
                await conversation.answer(event.call.call_id, "nothing")
            elif event.turn % 2:
                await conversation.approve(event.call.call_id)
            else:
                await handle.signal("approve", {"call_id": event.call.call_id})
        assert await conversation.reply() == "Done."


async def test_what_was_asked_is_told_once_wherever_a_follower_comes_back(client: Client, scripted: Scripted) -> None:
    script = [[call("refund", {"cents": 1}, id="a"), call("look_around", id="b")], "Done."]
    agent = agent_on(scripted(script), tools=[refund, look_around])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation, calls=2)
        await conversation.deny("*")
        await conversation.outcome()
        whole = [event async for event in conversation.events()]
        for seen, last in enumerate(whole, 1):
            rest = [event async for event in conversation.events(since=last.cursor)]
            assert rest == whole[seen:]
    kinds = [event.kind for event in whole]
    assert kinds.count("approval_requested") == kinds.count("answer_requested") == 1


async def test_followers_outlive_the_server_and_errors_of_the_transport_are_in_our_words(
    tmp_path: Path, scripted: Scripted
) -> None:
    agent = agent_on(scripted([call("refund", {"cents": 5}, id="a"), "Done."]), tools=[refund])
    async with DevServer(db_filename=tmp_path / "temporal.db") as server:
        client = await Client.connect(server.address)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Refund")
            await waiting(conversation)
            reply = asyncio.create_task(conversation.reply())
            events = asyncio.create_task(_all(conversation.events()))
            for _ in range(2):
                await server.restart()

            async def approved() -> bool:
                try:
                    return await conversation.approve("a") == ("a",)
                except Unreachable:
                    return False

            await eventually(approved)
            assert await reply == "Done."
            assert (await events)[-1].kind == "done"


async def _all(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_a_connection_that_breaks_is_followed_anew(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [RPCStatusCode.UNKNOWN, RPCStatusCode.UNAVAILABLE, RPCStatusCode.RESOURCE_EXHAUSTED]
    fetch = WorkflowHandle.fetch_history_events

    def breaking(self: Any, **options: Any) -> Any:
        if broken:
            raise RPCError("transport error", broken.pop(), b"")
        return fetch(self, **options)

    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello")
        monkeypatch.setattr(WorkflowHandle, "fetch_history_events", breaking)
        assert await conversation.reply() == "Hello."
    assert broken == []


async def test_who_waits_outlives_a_server_that_is_away_at_the_end(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an end without an outcome is a reset has to be asked."""
    away = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN]
    describe = WorkflowHandle.describe

    async def breaking(self: Any, **options: Any) -> Any:
        if away and terminated.is_set():
            raise RPCError("tcp connect error", away.pop(), b"")
        return await describe(self, **options)

    agent, terminated = agent_on(scripted([call("refund", {"cents": 5}), "Done."]), tools=[refund]), asyncio.Event()
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        outcome = asyncio.create_task(conversation.outcome())
        monkeypatch.setattr(WorkflowHandle, "describe", breaking)
        async for _ in conversation.events(deltas=False):
            break  # the outcome is waited for by now
        terminated.set()
        await client.temporal.get_workflow_handle(conversation.id).terminate("by hand")
        with pytest.raises(Ended, match="terminated"):
            await outcome
    assert away == []


async def test_a_run_whose_server_goes_away_says_which_conversation_goes_on(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise RPCError("tcp connect error", RPCStatusCode.UNAVAILABLE, b"")

    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        with monkeypatch.context() as patched:
            patched.setattr(WorkflowHandle, "describe", away)
            with pytest.raises(
                Unreachable, match=f"Conversation '{client.task_queue}' has started and goes on by itself"
            ):
                await client.run(agent, "Hi", id=client.task_queue)
        assert (await client.conversation(client.task_queue).outcome()).text == "Hello."


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (RPCStatusCode.UNKNOWN, "transport error", Unreachable),
        (RPCStatusCode.UNAVAILABLE, "tcp connect error", Unreachable),
        (RPCStatusCode.INTERNAL, "sql: database is closed", Unreachable),
        (RPCStatusCode.NOT_FOUND, "workflow execution already completed", Ended),
    ],
)
async def test_no_call_of_a_conversation_lets_an_error_of_temporals_out(
    client: Client, monkeypatch: pytest.MonkeyPatch, status: RPCStatusCode, message: str, expected: type[Exception]
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RPCError(message, status, b"")

    for method in ("describe", "query", "signal", "execute_update"):
        monkeypatch.setattr(WorkflowHandle, method, broken)
    conversation = client.conversation("any")
    calls: list[Callable[[], Any]] = [
        lambda: conversation.send("Hello"),
        conversation.reply,
        conversation.outcome,
        conversation.status,
        conversation.transcript,
        lambda: anext(conversation.events()),
        conversation.approve,
        conversation.close,
    ]
    for one in calls:
        with pytest.raises(expected):
            await one()


async def test_of_two_who_revive_a_conversation_neither_loses_what_the_other_said(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(lambda messages: f"Answer {sum(m['role'] == 'user' for m in messages)}."))
    async with hosting(client, agent):
        conversation = await client.start(agent, "One")
        await conversation.outcome()
        folded = Conversation.by_history

        async def slowly(self: Conversation) -> Any:
            made = await folded(self)
            if not monkeypatch_done.is_set():
                monkeypatch_done.set()
                # Meanwhile somebody else revives it, and is answered.
                other = await client.send(agent, "Two", id=conversation.id)
                await other.outcome()
            return made

        monkeypatch_done = asyncio.Event()
        monkeypatch.setattr(Conversation, "by_history", slowly)
        await client.send(agent, "Three", id=conversation.id)
        assert await conversation.reply() == "Answer 3."
        said = [message.text for message in await conversation.transcript()]
        assert said == ["One", "Answer 1.", "Two", "Answer 2.", "Three", "Answer 3."]


async def test_a_signal_that_was_refused_is_not_believed(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=1))
        handle = client.temporal.get_workflow_handle(conversation.id)
        assert await conversation.reply() == "One."
        await reaches(conversation, "idle")  # a cancellation that comes together with the reply counts
        await handle.signal("cancel_turn", {})
        await handle.signal("message", {"text": "x" * 450_000})
        await handle.signal("close", {"by": 7})
        with pytest.raises(Refused):
            await conversation.approve()  # answered when all of them have been handled
        assert await asyncio.wait_for(conversation.reply(), WAIT_SECONDS) == "One."
        await conversation.send("2")
        assert await asyncio.wait_for(conversation.reply(), WAIT_SECONDS) == "Two."


async def test_what_is_no_cursor_is_refused(client: Client) -> None:
    with pytest.raises(ConversationError, match="'7' is not a cursor"):
        await anext(client.conversation("whichever").events(since="7"))


async def test_who_writes_to_a_conversation_that_is_over_takes_it_up_again_from_the_terminal_too(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(lambda messages: f"Answer {sum(m['role'] == 'user' for m in messages)}."))
    limits = Limits(max_turns=7)
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": client.temporal.service_client.config.target_host,
        "EVERTURN_TASK_QUEUE": client.task_queue,
    }
    async with hosting(client, agent):
        conversation = await client.start(agent, "One", limits=limits, tenant="acme")
        await conversation.outcome()
        command = ["-m", "everturn", "send", conversation.id, "Two", "--message-id", "2"]
        for happened in (", which was over and goes on", ""):  # safe to repeat: the second is the same message
            done = await asyncio.to_thread(run, *command, env=environment)
            assert (done.returncode, done.stdout) == (0, f"sent: {conversation.id}{happened}\n")
            await conversation.outcome()
        said = [message.text for message in await conversation.transcript()]
        started = (await conversation.by_history()).state.start
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
    assert said == ["One", "Answer 1.", "Two", "Answer 2."]
    assert (started.limits, started.tenant, await described.memo()) == (limits, "acme", {"tenant": "acme"})
