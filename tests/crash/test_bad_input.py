"""Bad input of every kind, as tables: no workflow task fails, nothing is lost, and every refusal says why.

Many cases share a conversation, a worker or a server, so that it stays quick; each has a name that a failure shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest, StartWorkflowExecutionRequest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from everturn import Client, Conversation, Limits, tool
from everturn.activities.planning import MAX_PLANNED_CALLS
from everturn.errors import Ended, InvalidSetting, Refused, Stalled
from everturn.records import Message
from everturn.testing import ScriptedModel, call, say
from tests.crash import odd_things
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import leave_out
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

CASE_SECONDS = 180.0


async def failed_tasks(client: Client, conversation_id: str) -> list[str]:
    """The workflow tasks of the latest run that failed, and why; those that just have to be done again left out."""
    history = await client.temporal.get_workflow_handle(conversation_id).fetch_history()
    failures = [
        event.workflow_task_failed_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    again = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
    return [failure.failure.message for failure in failures if failure.cause != again]


def assert_every_call_has_its_result(transcript: Sequence[Message]) -> None:
    calls = [call.call_id for message in transcript for call in message.tool_calls]
    results = results_of(transcript)
    assert [result.call_id for result in results] == calls
    assert len(set(calls)) == len(calls)
    assert all(result.text or result.content for result in results)


# ---------------------------------------------------------------- replies of models


@tool
def note(text: str = "", count: int = 0) -> str:
    return f"noted {text[:20]!r} {count}"


@tool
def keep(things: dict[str, Any]) -> str:
    return f"kept {len(things)}"


async def test_weird_tool_calls_are_answered_and_the_conversation_goes_on(client: Client, scripted: Scripted) -> None:
    turns = [calls for _, calls in odd_things.TOOL_CALLS]
    model = scripted([*turns, "Done."], keep=3)
    agent = agent_on(model, tools=[note, keep], limits=Limits(max_turns=len(turns) + 5))
    async with hosting(client, agent, cached_conversations=1000):
        conversation = await client.start(agent, "Go")
        async with asyncio.timeout(CASE_SECONDS):
            assert await conversation.reply() == "Done."
    assert await failed_tasks(client, conversation.id) == []
    transcript = await conversation.transcript()
    assert_every_call_has_its_result(transcript)
    by_reply = [message.tool_results for message in transcript if message.role == "tool"]
    told = {
        name: " | ".join(f"{result.is_error}: {result.text}" for result in results)
        for (name, _), results in zip(odd_things.TOOL_CALLS, by_reply, strict=True)
    }
    assert len([message for message in transcript if message.tool_calls]) == len(turns)
    for name, expected in odd_things.TOLD.items():
        assert expected in told[name], name


@pytest.mark.parametrize("planned", [100, MAX_PLANNED_CALLS])
@pytest.mark.long_if(lambda planned: planned == MAX_PLANNED_CALLS)
async def test_a_thousand_parallel_calls_are_too_many_and_the_model_is_told(
    client: Client, scripted: Scripted, bounds: Bounds, planned: int
) -> None:
    bounds(planned_calls=planned)
    calls = [call("note", {"count": number}) for number in range(1_000)]
    agent = agent_on(scripted([calls, "Done."], keep=0), tools=[note], limits=Limits(max_parallel_calls=64))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        async with asyncio.timeout(CASE_SECONDS):
            assert await conversation.reply() == "Done."
    assert await failed_tasks(client, conversation.id) == []
    transcript = await conversation.transcript()
    assert_every_call_has_its_result(transcript)
    results = results_of(transcript)
    assert len(results) == len(calls)
    assert {result.text for result in results[planned:]} == {
        f"Too many calls: only the first {planned} of a reply are run. Call again later."
    }
    assert not any(result.is_error for result in results[:planned])


async def test_whatever_a_model_server_answers_is_asked_again_or_stalls_with_a_cause(
    client: Client, scripted: Scripted
) -> None:
    asked: list[int] = []

    def script(messages: list[dict[str, Any]]) -> Any:
        number = int(messages[-1]["content"].split()[1])
        asked.append(number)
        if asked.count(number) == 1:
            return odd_things.BODIES[number][1]
        return say("Fine.")

    agent = agent_on(scripted(script, keep=0))
    async with hosting(client, agent), asyncio.timeout(CASE_SECONDS):
        numbers = [range(start, len(odd_things.BODIES), CONVERSATIONS) for start in range(CONVERSATIONS)]
        lived = await asyncio.gather(*(_lived_through(client, agent, some) for some in numbers))
    outcomes = {number: outcome for part in lived for number, outcome in part.items()}
    for number, (name, _) in enumerate(odd_things.BODIES):
        text, causes = outcomes[number]
        assert text == "Fine." or name in odd_things.TAKEN_AS_REPLIES, (name, text)
        assert all(len(cause) > 20 for cause in causes), name
        assert not any("Traceback" in cause or "object at 0x" in cause for cause in causes), name


CONVERSATIONS = 8
"""In them, all the bodies come, one after the other."""


async def _lived_through(client: Client, agent: Any, numbers: range) -> dict[int, tuple[str, list[str]]]:
    """The final reply to each message, and the causes of stalls on the way."""
    conversation = await client.start(agent, f"case {numbers[0]}", keep_open=timedelta(minutes=5))
    outcomes: dict[int, tuple[str, list[str]]] = {}
    for number in numbers:
        if number != numbers[0]:
            await conversation.send(f"case {number}")
        causes: list[str] = []
        while number not in outcomes:
            try:
                outcomes[number] = await conversation.reply(), causes
            except Stalled as error:
                causes.append(str(error))
                with suppress(Refused):
                    await conversation.resume()
    assert await failed_tasks(client, conversation.id) == [], [odd_things.BODIES[number][0] for number in numbers]
    await conversation.close()
    await conversation.outcome()
    return outcomes


# ---------------------------------------------------------------- what tools return and raise


TOOL_DOES = odd_things.RESULTS + odd_things.NO_ERRORS


@tool(name="odd")
def odd(number: int) -> Any:
    return TOOL_DOES[number][1]()


@tool(name="odd_async")
async def odd_async(number: int) -> Any:
    await asyncio.sleep(0)
    return TOOL_DOES[number][1]()


@pytest.mark.parametrize("number", range(len(odd_things.RESULTS), len(TOOL_DOES)))
async def test_what_a_tool_raises_that_is_no_error_becomes_a_result(
    client: Client, scripted: Scripted, number: int
) -> None:
    agent = agent_on(scripted([call("odd", {"number": number}), "Done."], keep=0), tools=[odd])
    async with hosting(client, agent, drain_timeout=timedelta(seconds=1)):
        conversation = await client.start(agent, "Go")
        try:
            assert await asyncio.wait_for(conversation.reply(), CASE_SECONDS) == "Done."
        finally:
            with suppress(RPCError):  # over already, where all went well
                await client.temporal.get_workflow_handle(conversation.id).terminate()


TURNS = 10
"""In them, all the results come, some in each."""


@pytest.mark.parametrize("tool_name", ["odd", "odd_async"])
async def test_whatever_a_tool_returns_or_raises_becomes_a_result(
    client: Client, scripted: Scripted, tool_name: str
) -> None:
    numbers = range(len(odd_things.RESULTS))
    calls = [call(tool_name, {"number": number}) for number in numbers]
    script = [calls[start::TURNS] for start in range(TURNS)]
    agent = agent_on(scripted([*script, "Done."], keep=0), tools=[odd, odd_async], limits=Limits(max_turns=200))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        async with asyncio.timeout(CASE_SECONDS):
            assert await conversation.reply() == "Done."
    assert await failed_tasks(client, conversation.id) == []
    transcript = await conversation.transcript()
    assert_every_call_has_its_result(transcript)
    results = results_of(transcript)
    in_order = [number for start in range(TURNS) for number in numbers[start::TURNS]]
    for number, result in zip(in_order, results, strict=True):
        name, _, expected = odd_things.RESULTS[number]
        assert expected in f"{'error: ' if result.is_error else ''}{result.text}", (name, result.text[:300])


# ---------------------------------------------------------------- signals, updates, starts


async def raw_signal(client: Client, conversation_id: str, name: str, payloads: Payloads) -> None:
    await client.temporal.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=conversation_id),
            signal_name=name,
            request_id=uuid4().hex,
            input=payloads,
        ),
        retry=True,
    )


@asynccontextmanager
async def held(client: Client, scripted: Scripted) -> AsyncIterator[Conversation]:
    """A conversation with a call that waits; at the end it is approved, and must then simply complete."""
    agent = agent_on(scripted([call("refund", {"order_id": "81", "cents": 5}, id="a"), "Done."]), tools=[refund])
    async with hosting(client, agent) as worker:
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        before = await conversation.status()
        yield conversation
        assert await conversation.status() == before
        worker.prefixes.clear()  # what comes now is read from the history, bad input and all
        await conversation.approve("a")
        assert await asyncio.wait_for(conversation.reply(), CASE_SECONDS) == "Done."
        assert await failed_tasks(client, conversation.id) == []
        (result,) = results_of(await conversation.transcript())
        assert result.text == "5 back for 81"


async def test_bad_signals_change_nothing(client: Client, scripted: Scripted) -> None:
    await _changes_nothing(client, scripted, odd_things.RAW_PAYLOADS)


async def test_a_signal_that_can_not_be_read_changes_nothing(client: Client, scripted: Scripted) -> None:
    await _changes_nothing(client, scripted, odd_things.NO_JSON | odd_things.UNREADABLE)


async def _changes_nothing(client: Client, scripted: Scripted, table: dict[str, Payloads]) -> None:
    async with held(client, scripted) as conversation:
        before = await conversation.status()
        for case, payloads in table.items():
            for name in odd_things.COMMANDS:
                await raw_signal(client, conversation.id, name, payloads)
            with pytest.raises(Refused):
                await conversation.approve("nobody")  # answered when all of them have been handled
            assert await conversation.status() == before, case
        assert len(await asyncio.wait_for(conversation.transcript(), CASE_SECONDS)) == 2


async def test_bad_updates_are_refused_with_the_reason(client: Client, scripted: Scripted) -> None:
    async with held(client, scripted) as conversation:
        handle = client.temporal.get_workflow_handle(conversation.id)
        for name in odd_things.COMMANDS:
            for case, value in odd_things.JSON_PAYLOADS.items():
                if isinstance(value, dict) and name in ("pause", "resume", "cancel_turn", "close"):
                    continue  # unknown fields are ignored: these are taken
                with pytest.raises(WorkflowUpdateFailedError) as refused:
                    await asyncio.wait_for(handle.execute_update(name, value), CASE_SECONDS)
                why = str(refused.value.__cause__)
                assert len(why) > 10, (name, case)
                assert "Traceback" not in why, (name, case)


async def test_a_bad_start_ends_with_a_reason(client: Client, scripted: Scripted) -> None:
    async with hosting(client, agent_on(scripted(["Hello."]))):
        for case, payloads in odd_things.STARTS.items():
            await _ends_with_a_reason(client, case, payloads)


@pytest.mark.parametrize("case", odd_things.UNREADABLE)
async def test_a_start_that_can_not_be_read_ends_with_a_reason(client: Client, scripted: Scripted, case: str) -> None:
    expected = InvalidSetting if case in odd_things.OF_ANOTHER_CODEC else Ended
    if expected is InvalidSetting:
        leave_out(client)
    async with hosting(client, agent_on(scripted(["Hello."]))):
        await _ends_with_a_reason(client, case, odd_things.UNREADABLE[case], expected)


async def _ends_with_a_reason(client: Client, case: str, payloads: Payloads, expected: type[Exception] = Ended) -> None:
    conversation_id = f"{case}-{client.task_queue}"
    await client.temporal.workflow_service.start_workflow_execution(
        StartWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_id=conversation_id,
            workflow_type=WorkflowType(name="Conversation"),
            task_queue=TaskQueue(name=client.task_queue),
            input=payloads,
            request_id=conversation_id,
        ),
        retry=True,
    )
    try:
        with pytest.raises(expected) as ended:
            await asyncio.wait_for(client.conversation(conversation_id).outcome(), CASE_SECONDS)
        assert len(str(ended.value)) > 60, case
        assert await failed_tasks(client, conversation_id) == []
    finally:
        with suppress(RPCError):
            await client.temporal.get_workflow_handle(conversation_id).terminate()


async def test_a_message_of_every_bad_kind_is_refused_and_the_next_good_one_is_taken(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=1))
        await conversation.reply()
        for payloads in odd_things.RAW_PAYLOADS.values():
            await raw_signal(client, conversation.id, "message", payloads)
        await conversation.send("2")
        async with asyncio.timeout(CASE_SECONDS):
            assert await conversation.reply() == "Two."
        assert await failed_tasks(client, conversation.id) == []
        await conversation.close()
        await conversation.outcome()


def test_there_are_a_hundred_kinds_at_least() -> None:
    kinds = [odd_things.TOOL_CALLS, odd_things.BODIES, TOOL_DOES, odd_things.JSON_PAYLOADS, odd_things.STARTS]
    assert sum(map(len, kinds)) >= 100
    for table in (odd_things.TOOL_CALLS, odd_things.BODIES, odd_things.RESULTS):
        names = [row[0] for row in table]
        assert len(set(names)) == len(names)
