"""Transcripts that near the model's window are shown shorter, and stay whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, tool
from everturn.agent_settings import Compaction
from everturn.errors import Stalled
from everturn.records import Message
from everturn.testing import ScriptedModel, call, fail, say, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.scripts import reader, tokens_of
from tests.support.tools import note
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, reaches

Scripted = Callable[..., ScriptedModel]
SIZE = 3_000


@tool
def read_page(number: int) -> str:
    return f"page {number:04}: ".ljust(SIZE, "x")


async def read_it(
    client: Client, model: ScriptedModel, compaction: Compaction | None, **options: Any
) -> tuple[Any, list[str], list[Any]]:
    agent = agent_on(model, tools=[read_page, note], compaction=compaction)
    async with hosting(client, agent, **options):
        conversation = await client.start(agent, "Read it all")
        assert await conversation.reply() == "Read."
        transcript = await conversation.transcript()
        kinds = [event async for event in conversation.events()]
    return transcript, [event.kind for event in kinds], model.requests


@pytest.mark.long
async def test_old_results_are_trimmed_first_and_the_transcript_stays_whole(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    compaction = Compaction(window_tokens=4_000, keep_messages=4)
    transcript, kinds, requests = await read_it(
        client, scripted(reader(12)), compaction, cached_conversations=cached_conversations
    )
    assert [len(result.text) for result in results_of(transcript)] == [SIZE] * 12
    assert max(tokens_of(request["messages"]) for request in requests) < 4_000
    assert "compacted" in kinds
    tools = [message for message in requests[-1]["messages"] if message["role"] == "tool"]
    assert tools[0]["content"] == "[Trimmed: a result of 3,000 characters, seen before.]"
    assert len(tools[-1]["content"]) == SIZE


@pytest.mark.long
@pytest.mark.parametrize("short_runs", [False, True])
async def test_then_what_is_old_is_summarised_with_calls_and_results_kept_together(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    bounds: Bounds,
    short_runs: bool,
) -> None:
    if short_runs:
        bounds(events=40)
    compaction = Compaction(window_tokens=2_000, keep_messages=3)
    transcript, kinds, requests = await read_it(
        client, scripted(reader(12, wordy=True)), compaction, cached_conversations=cached_conversations
    )
    assert kinds.count("compacted") >= 2
    assert max(tokens_of(request["messages"]) for request in requests) < 2_500
    assert [result.text for result in results_of(transcript)] == [f"noted {number}" for number in range(12)]
    for request in requests:
        called = [call["id"] for message in request["messages"] for call in message.get("tool_calls") or ()]
        answered = [message["tool_call_id"] for message in request["messages"] if message["role"] == "tool"]
        assert called == answered
    last = requests[-1]["messages"]
    assert last[0]["content"].startswith("[Summary of the conversation before this point]\nSUMMARY after page")


@pytest.mark.long
async def test_an_overflow_that_the_provider_reports_is_mended_too(client: Client, scripted: Scripted) -> None:
    compaction = Compaction(window_tokens=1_000_000, keep_messages=5)
    transcript, kinds, _ = await read_it(client, scripted(reader(16, wordy=True, window=2_500)), compaction)
    assert "compacted" in kinds
    assert "stalled" not in kinds
    assert len(results_of(transcript)) == 16


async def test_what_no_summary_can_mend_stalls(client: Client, scripted: Scripted) -> None:
    """The latest result alone is larger than the window: there is nothing that a summary could stand for."""

    @tool
    def dump() -> str:
        return "x" * 40_000

    def script(messages: list[dict[str, Any]]) -> Any:
        if tokens_of(messages) > 5_000:
            return fail(400, body={"error": {"message": "too long", "code": "context_length_exceeded"}})
        return say("SUMMARY.") if "replaced by a summary" in str(messages[-1]["content"]) else call("dump")

    model = scripted(script)
    agent = agent_on(model, tools=[dump], compaction=Compaction(window_tokens=1_000_000, keep_messages=2))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        with pytest.raises(Stalled, match="too long"):
            await conversation.reply()
        assert len(model.requests) < 10
        await conversation.close()
        await conversation.outcome()


def holding_summaries(
    script: Callable[[list[dict[str, Any]]], Any], *, begun: threading.Event, go_on: threading.Event
) -> Callable[[list[dict[str, Any]]], Any]:
    """The script, and summaries that wait for `go_on`: `begun` says that one was asked for."""

    def with_summaries(messages: list[dict[str, Any]]) -> Any:
        if "replaced by a summary" not in str(messages[-1]["content"]):
            return script(messages)
        begun.set()
        return slow(say("SUMMARY."), until=go_on)

    return with_summaries


async def test_closed_while_a_summary_is_written_it_begins_no_other_turn(client: Client, scripted: Scripted) -> None:
    begun, go_on = threading.Event(), threading.Event()
    model = scripted(holding_summaries(reader(16, wordy=True, window=2_500), begun=begun, go_on=go_on))
    agent = agent_on(model, tools=[note], compaction=Compaction(window_tokens=1_000_000, keep_messages=5))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        await eventually(begun.is_set, what="a summary is asked for")
        requests = len(model.requests)
        await conversation.close()
        go_on.set()
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason) == ("completed", "the conversation was closed before it was answered")
    assert len(model.requests) == requests


async def test_closed_while_a_summary_comes_before_a_correction_it_is_cancelled(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    """It had failed, as if the model had had its chance to mend its reply."""
    begun = threading.Event()
    usage = {"prompt_tokens": 5_000, "completion_tokens": 10, "total_tokens": 5_010}
    model = scripted(holding_summaries(lambda _: say("much", usage=usage), begun=begun, go_on=go_on))
    compaction = Compaction(window_tokens=1_000, keep_messages=1)
    agent = agent_on(model, output=list[int], compaction=compaction)
    async with hosting(client, agent):
        conversation = await client.start(agent, "How much?", keep_open=timedelta(minutes=1))
        await eventually(begun.is_set, what="a summary is asked for")
        await conversation.close()
        go_on.set()
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason) == ("cancelled", "the conversation was closed before it was answered")


@pytest.mark.parametrize("end", ["cancel the turn", "terminate"])
async def test_a_message_stays_while_a_summary_makes_room_for_it(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event, end: str
) -> None:
    """It had left the transcript, and came back with the next turn; after a termination, it was gone for good."""
    begun = threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        if "LONG" in str(messages[-1]["content"]):
            return fail(400, body={"error": {"message": "too long", "code": "context_length_exceeded"}})
        return say("Yes.")

    def texts_of(messages: Sequence[Message]) -> list[str]:
        return [message.text for message in messages if message.role == "user"]

    model = scripted(holding_summaries(script, begun=begun, go_on=go_on))
    agent = agent_on(model, compaction=Compaction(window_tokens=1_000_000, keep_messages=1))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "First", keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.send("A LONG one")
        await eventually(begun.is_set, what="a summary is asked for")
        assert texts_of(await conversation.transcript()) == ["First", "A LONG one"]
        if end == "terminate":
            await client.temporal.get_workflow_handle(conversation.id).terminate("by an operator")
        else:
            await conversation.cancel_turn()
            await reaches(conversation, "idle")
        assert texts_of(await conversation.transcript()) == ["First", "A LONG one"]
        go_on.set()
        await conversation.send("And then?", revive=True)
        assert await conversation.reply() == "Yes."
        assert texts_of(await conversation.transcript()) == ["First", "A LONG one", "And then?"]
        await conversation.close()
        await conversation.outcome()
    assert "A LONG one" in [message["content"] for message in model.requests[-1]["messages"]]


async def test_results_stay_if_it_is_terminated_during_a_summary_before_they_are_seen(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event
) -> None:
    """The model that went on read that a call had no result, though it had run."""
    begun = threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        if "Again" in str(messages[-1]["content"]):
            return say("It went well.")
        return [say("I note it.", usage=usage), call("note", {"number": 1}, id="c1")]

    usage = {"prompt_tokens": 5_000, "completion_tokens": 10, "total_tokens": 5_010}
    model = scripted(holding_summaries(script, begun=begun, go_on=go_on))
    agent = agent_on(model, tools=[note], compaction=Compaction(window_tokens=1_000, keep_messages=1))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Note it", keep_open=timedelta(minutes=1))
        await eventually(begun.is_set, what="a summary is asked for")
        await client.temporal.get_workflow_handle(conversation.id).terminate("by an operator")
        assert [result.text for result in results_of(await conversation.transcript())] == ["noted 1"]
        go_on.set()
        await conversation.send("Again", revive=True)
        assert await conversation.reply() == "It went well."
        await conversation.close()
        await conversation.outcome()
    last = model.requests[-1]["messages"]
    assert [message["content"] for message in last if message["role"] == "tool"] == ["noted 1"]


@pytest.mark.long
async def test_without_compaction_it_stalls_and_says_why(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(reader(40, wordy=True, window=5_000)), tools=[note])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all", keep_open=timedelta(minutes=1))
        with pytest.raises(Stalled, match="too long"):
            await conversation.reply()
        await conversation.close()
        await conversation.outcome()
