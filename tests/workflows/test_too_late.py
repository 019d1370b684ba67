"""What comes in behind a cancellation, or together with one: it counts, or it does not, but never half."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.client import WorkflowHandle

from everturn import Client, Conversation, names, tool
from everturn.activities.model_turns import ModelTurns
from everturn.activities.prefix_cache import digest_of
from everturn.errors import Ended, Refused
from everturn.events import ToolCalled
from everturn.history import steps
from everturn.history.reader import read_steps
from everturn.history.transcript import Transcript
from everturn.testing import ScriptedModel, call, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import completed_activities
from tests.support.tools import ask_somebody, look
from tests.support.transcripts import results_of, results_told, told
from tests.support.waiting import WAIT_SECONDS, busy_taking, eventually, nothing_runs, reaches, waiting

Scripted = Callable[..., ScriptedModel]

KEEP_OPEN = timedelta(minutes=1)


class Invoice(BaseModel):
    cents: int


@pytest.fixture
def unheard(bounds: Bounds) -> None:
    """No worker beats, and so none hears that what it runs was cancelled: what it has done is reported as done."""
    bounds(beat_seconds=3600.0, hurried_seconds=3600.0, heartbeat_timeout=timedelta(hours=1))


async def reported(client: Client, conversation: Conversation, count: int) -> None:
    """Returns once so many activities have brought a result."""

    async def so_many() -> bool:
        return await completed_activities(client, conversation) >= count

    await eventually(so_many, what=f"{count} activities have brought a result")


@pytest.mark.usefixtures("unheard")
async def test_a_whole_reply_that_comes_after_its_turn_was_cancelled_counts(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """Its worker has not heard of that, and the conversation waits for it: the next question comes after it."""
    may_come = threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        texts = [message["content"] for message in messages if message["role"] == "user"]
        return slow("Old.", until=may_come) if len(texts) == 1 else f"To {len(messages)} messages."

    model = scripted(script)
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations) as worker:
        conversation = await client.start(agent, "1", keep_open=KEEP_OPEN)
        await eventually(lambda: model.requests)
        await client.temporal.get_workflow_handle(conversation.id).signal("cancel_turn")
        await conversation.send("2")
        assert (await conversation.status()).state == "running"
        may_come.set()
        assert await conversation.reply() == "To 3 messages."
        assert [message.text for message in await conversation.transcript()] == ["1", "Old.", "2", "To 3 messages."]
        worker.prefixes.clear()
        await conversation.send("3")
        assert await conversation.reply() == "To 5 messages."
        await conversation.close()
        await conversation.outcome()
    texts = [message.text for message in await conversation.transcript()]
    assert texts == ["1", "Old.", "2", "To 3 messages.", "3", "To 5 messages."]
    assert [event.kind for event in await told(conversation)].count("replied") == 3


@pytest.mark.usefixtures("unheard")
@pytest.mark.parametrize("keep_open", [None, KEEP_OPEN], ids=["ends", "kept-open"])
@pytest.mark.parametrize("said", ["Eighty.", '{"cents": 80}'], ids=["does-not-fit", "fits"])
async def test_a_correction_that_comes_after_its_turn_was_cancelled_ends_as_cancelled(
    client: Client, scripted: Scripted, cached_conversations: int, said: str, keep_open: timedelta | None
) -> None:
    """If it did not fit the output type, the conversation had failed, although nobody wanted it any more."""
    may_come = threading.Event()
    model = scripted(["About eighty.", slow(said, until=may_come)], order="arrival")
    agent = agent_on(model, output=Invoice)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "How much?", keep_open=keep_open)
        await eventually(lambda: len(model.requests) == 2)
        await client.temporal.get_workflow_handle(conversation.id).signal("cancel_turn", {"by": "me"})
        may_come.set()
        if keep_open:
            await reaches(conversation, "idle")
            with pytest.raises(Ended, match=r"The turn of conversation .* was cancelled"):
                await conversation.reply()
            await conversation.close()
        outcome = await conversation.outcome()
        with pytest.raises(Ended, match="ended before it answered every message: the turn was cancelled by me"):
            await conversation.reply()
    assert (outcome.status, outcome.reason, outcome.text) == ("cancelled", "the turn was cancelled by me", said)
    assert len(model.requests) == 2


@pytest.mark.usefixtures("unheard")
async def test_a_result_that_comes_behind_the_next_question_is_not_told(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    begun, may_come, came = asyncio.Event(), asyncio.Event(), threading.Event()

    @tool
    async def work() -> str:
        begun.set()
        await may_come.wait()
        return "worked"

    model = scripted([call("work"), slow("Done.", until=came)])
    agent = agent_on(model, tools=[work])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "1", keep_open=KEEP_OPEN)
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        await conversation.cancel_turn()
        await conversation.send("2")
        await eventually(lambda: len(model.requests) == 2)
        may_come.set()
        await reported(client, conversation, 2)  # the first reply, and the result
        came.set()
        assert await conversation.reply() == "Done."
        await conversation.close()
        await conversation.outcome()
    (result,) = results_of(await conversation.transcript())
    assert results_told(await told(conversation)) == {result.call_id: result.text}
    assert "may or may not have taken effect" in result.text


HOLD = "hold"
"""A message that keeps the worker busy with a workflow task, so that the next one brings together what comes in."""


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as the worker is busy with `HOLD`."""
    return busy_taking(monkeypatch, names.MESSAGE, when=lambda message: message.text == HOLD)


async def hold(handle: WorkflowHandle[Any, Any], busy: threading.Event) -> None:
    await handle.signal("message", {"text": HOLD, "message_id": "once"})
    await eventually(busy.is_set)


@pytest.mark.parametrize("cancelled", ["the turn", "the workflow", "both"])
async def test_results_that_come_together_with_a_cancellation_count_beside_a_call_that_waits(
    client: Client, scripted: Scripted, cached_conversations: int, held: threading.Event, cancelled: str
) -> None:
    go = asyncio.Event()

    @tool
    async def wait_for_it(number: int) -> str:
        await asyncio.wait_for(go.wait(), WAIT_SECONDS)
        return f"worked {number}"

    @tool(runs_on="client")
    def ask() -> str: ...

    calls = [call("ask", id="asks"), *(call("wait_for_it", {"number": number}) for number in range(3))]
    agent = agent_on(scripted([calls, "Done."]), tools=[wait_for_it, ask])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", message_id="once", keep_open=KEEP_OPEN)
        await waiting(conversation)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await hold(handle, held)
        go.set()
        await nothing_runs(client, conversation)
        if cancelled != "the workflow":
            await handle.signal("cancel_turn", {})
        if cancelled != "the turn":
            await handle.cancel()
        else:
            await reaches(conversation, "idle")
            await conversation.close()
        outcome = await conversation.outcome()
    assert outcome.status == "cancelled"
    assert (outcome.reason == "the workflow was cancelled") == (cancelled != "the turn")
    asked, *worked = results_of(await conversation.transcript())
    assert [result.text for result in worked] == ["worked 0", "worked 1", "worked 2"]
    assert "cut short" in asked.text
    await check_folds(client, conversation)


async def test_a_cancellation_that_comes_together_with_a_longer_prefix_counts(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    held: threading.Event,
    bounds: Bounds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(events=5, handed_bytes=10)
    messages = ModelTurns._complete_messages
    sent: list[str] = []

    async def cancelling(self: ModelTurns, request: Any) -> Any:
        found = await messages(self, request)
        info = activity.info()
        if info.activity_type == "extend_prefix" and not sent:
            sent.append(info.workflow_id or "")
            handle = client.temporal.get_workflow_handle(sent[0])
            await hold(handle, held)
            await handle.cancel()
        return found

    monkeypatch.setattr(ModelTurns, "_complete_messages", cancelling)
    model = scripted([call("look", {"number": 1234567}), "Never."])
    agent = agent_on(model, tools=[look])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", message_id="once")
        outcome = await conversation.outcome()
    assert sent
    assert (outcome.status, len(model.requests)) == ("cancelled", 1)
    assert [result.text for result in results_of(await conversation.transcript())] == ["saw 1234567"]


@tool
async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"worked {seconds} s"


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_whatever_moment_turns_are_cancelled_in_the_transcript_is_what_the_models_were_asked(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """Drawn from a seed: cancellations fall into replies, tools, retries and boundaries, and questions right behind."""
    chance = random.Random(cached_conversations)

    def script(messages: list[dict[str, Any]]) -> Any:
        number, behind = len(messages) * 7, itertools.takewhile(lambda one: one["role"] != "user", reversed(messages))
        rounds = sum(message["role"] == "assistant" for message in behind)
        said = sum(message["role"] == "user" for message in messages)
        tenths = [(number + one) % 5 for one in range((number + rounds) % 3 if rounds < 3 else 0)]
        calls = [call("work", {"seconds": tenth / 10}) for tenth in tenths]
        calls += [call("ask_somebody")] if number % 3 == 0 and said < 7 else []  # one is left to cancel it
        return slow(calls or f"Answer to {len(messages)}.", seconds=number % 4 * 0.1)

    async def talk(number: int) -> Conversation:
        conversation = await client.start(agent, "0", keep_open=KEEP_OPEN)
        for said in range(1, 8):
            await asyncio.sleep(chance.random() * 0.6)
            with suppress(Refused):  # no turn runs now
                await conversation.cancel_turn()
            await conversation.send(str(said))
        with suppress(Ended):
            await conversation.reply()
        await conversation.close()
        await conversation.outcome()
        return conversation

    agent = agent_on(scripted(script), tools=[work, ask_somebody])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        talked = await asyncio.gather(*map(talk, range(8)))
    cut = [await check_folds(client, conversation) for conversation in talked]
    assert sum(cut) > 12, "that is what this is about"


@pytest.mark.timeout(600)
async def test_whatever_moment_workflows_are_cancelled_in_no_result_is_lost(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    chance = random.Random(cached_conversations)

    def script(messages: list[dict[str, Any]]) -> Any:
        number = len(messages) * 7
        calls = [call("work", {"seconds": (number + one) % 5 / 100}) for one in range(1 + number % 3)]
        calls += [call("ask_somebody")] if number % 5 == 0 else []
        return slow(calls, seconds=number % 4 * 0.01)

    async def cancelled(number: int) -> Conversation:
        conversation = await client.start(agent, f"{number}")
        await asyncio.sleep(chance.random() * 1.5)
        await client.temporal.get_workflow_handle(conversation.id).cancel()
        assert (await conversation.outcome()).status == "cancelled"
        return conversation

    agent = agent_on(scripted(script), tools=[work, ask_somebody])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        talked = await asyncio.gather(*map(cancelled, range(20)))
    for conversation in talked:
        await check_folds(client, conversation)


async def check_folds(client: Client, conversation: Conversation) -> int:
    """Each prefix that a model turn was given is the fold over the history before it, and each call has one result, the
    same for followers and in the transcript. Returns how many turns were cancelled."""
    transcript, cut = Transcript(), 0
    async for step in read_steps(client.temporal, conversation.id):
        if isinstance(step, steps.TurnScheduled):
            request = step.request
            assert not request.position or request.digest == digest_of(transcript.messages[: request.position])
        cut += isinstance(step, steps.CommandSent) and step.name == "cancel_turn"
        transcript.take_step(step)
    events, results = await told(conversation), results_of(await conversation.transcript())
    assert results_told(events) == {result.call_id: result.text for result in results}
    called = [event.call.call_id for event in events if isinstance(event, ToolCalled)]
    assert sorted(called) == sorted(result.call_id for result in results)
    return cut
