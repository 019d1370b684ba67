"""Whatever people and models write, in whatever letters and fields: what a conversation makes of it fits a payload."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from everturn import Client, Message, Text, tool
from everturn.carryover import REMEMBERED_IDS
from everturn.errors import Refused, Stalled
from everturn.history.reader import first_step
from everturn.records import Document
from everturn.sizes import MAX_INPUT_BYTES, MAX_KNOWN_ID_BYTES, size_of
from everturn.state import State
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import TWO_MIB, largest_payload, runs_of
from tests.support.transcripts import results_of
from tests.support.waiting import busy_in, eventually, waiting

Scripted = Callable[..., ScriptedModel]

ZEROS = "\x00" * (MAX_INPUT_BYTES // 6 - 100)
"""Each is one character, and six bytes of JSON."""

NAMED = Document(url="https://example.com/a.pdf", name="n" * (MAX_INPUT_BYTES - 1_000))
SIGNED = Message(
    role="user", parts=(Text(text="Hi", extra={"s": "x" * (MAX_INPUT_BYTES - 1_000)}),), provider="scripted"
)

WORST: dict[str, Any] = {"control characters": ZEROS, "a long name": NAMED, "an extra": SIGNED}


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def read_page(gate: asyncio.Event) -> Any:
    @tool
    async def read_page(number: int) -> str:
        await gate.wait()
        return f"page {number}"

    return read_page


@pytest.mark.long
@pytest.mark.parametrize("kind", WORST)
async def test_large_messages_that_wait_for_the_next_run_reach_the_model(
    client: Client,
    scripted: Scripted,
    read_page: Any,
    gate: asyncio.Event,
    kind: str,
    bounds: Bounds,
) -> None:
    bounds(events=20)
    model = scripted([call("read_page", {"number": 1}), *["Yes."] * 12])
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read", keep_open=timedelta(minutes=1))
        await eventually(lambda: len(model.requests) == 1)
        for _ in range(6):
            await conversation.send(WORST[kind])
        gate.set()
        assert await conversation.reply() == "Yes."
        await conversation.close()
        await conversation.outcome()
    assert len(await runs_of(client, conversation)) >= 2
    transcript = await conversation.transcript()
    assert [message.parts[0].kind for message in transcript if message.role == "user"].count("text") >= 1
    assert sum(message.role == "user" for message in transcript) == 7
    assert await largest_payload(client, conversation) < TWO_MIB


@pytest.mark.long
async def test_ids_of_five_hundred_pictures_are_remembered_in_few_bytes_in_the_next_run(
    client: Client, scripted: Scripted, read_page: Any, gate: asyncio.Event, bounds: Bounds
) -> None:
    """A thousand of them are handed on, for which there is room if each is short."""
    assert REMEMBERED_IDS * MAX_KNOWN_ID_BYTES < TWO_MIB / 10
    bounds(events=20, remembered_ids=20)
    model = scripted([call("read_page", {"number": 1}), *["Yes."] * 3])
    agent = agent_on(model, tools=[read_page])
    ids = ["🔥" * 490 + f"{number:04}" for number in range(30)]
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read", keep_open=timedelta(minutes=1))
        await eventually(lambda: len(model.requests) == 1)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await all_of(handle.signal("message", {"text": "Hi", "message_id": each}) for each in ids[:-1])
        await handle.signal("message", {"text": "Hi", "message_id": ids[-1]})
        gate.set()
        assert await conversation.reply() == "Yes."
        assert len(await runs_of(client, conversation)) == 2
        started = await first_step(client.temporal, conversation.id)
        assert started is not None
        assert started.start.carry is not None
        remembered = started.start.carry.message_ids
        assert len(remembered) == 20
        assert all(size_of(each) <= MAX_KNOWN_ID_BYTES for each in remembered)
        before = len(model.requests)
        await conversation.send("Hi", message_id=ids[-1])  # it came before
        await conversation.send("And?", message_id="new")
        await eventually(lambda: len(model.requests) > before)
        await conversation.close()
        await conversation.outcome()
    texts = [message.text for message in await conversation.transcript() if message.role == "user"]
    assert texts == ["Read", *["Hi"] * 30, "And?"]
    assert [event.kind async for event in conversation.events()].count("message_received") == 32


async def all_of(sent: Any) -> None:
    """Some at a time, as a server takes them."""
    slots = asyncio.Semaphore(20)

    async def one(each: Awaitable[Any]) -> None:
        async with slots:
            await each

    await asyncio.gather(*map(one, sent))


@pytest.mark.long
async def test_the_largest_answers_to_all_calls_of_a_reply_reach_the_model(client: Client, scripted: Scripted) -> None:
    @tool(runs_on="client")
    def ask(number: int) -> str: ...

    calls = [call("ask", {"number": number}, id=f"c{number}") for number in range(6)]
    model = scripted([calls, "Done."])
    agent = agent_on(model, tools=[ask])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=6)
        for number in range(6):
            await conversation.answer(f"c{number}", ZEROS)
        assert await conversation.reply() == "Done."
    told = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert [len(text) == len(ZEROS) for text in told][:3] == [True] * 3
    assert "[Cut: " in told[-1]
    assert await largest_payload(client, conversation) < TWO_MIB


@pytest.mark.long
async def test_a_conversation_that_is_closed_with_large_messages_can_be_revived(
    client: Client, scripted: Scripted
) -> None:
    model = scripted(refused_if_short)
    agent = agent_on(model)

    async def closed_and_revived(kind: str) -> tuple[str, str, int, bool]:
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        with pytest.raises(Stalled):
            await conversation.reply()
        for _ in range(6):
            await conversation.send(WORST[kind])
        await conversation.close()
        status = (await conversation.outcome()).status
        await client.send(agent, WORST[kind], id=conversation.id)
        reply = await conversation.reply()
        await conversation.outcome()
        transcript: Sequence[Message] = await conversation.transcript()
        messages = sum(message.role == "user" for message in transcript)
        return status, reply, messages, await largest_payload(client, conversation) < TWO_MIB

    async with hosting(client, agent):
        revived = dict(zip(WORST, await asyncio.gather(*map(closed_and_revived, WORST)), strict=True))
    assert revived == dict.fromkeys(WORST, ("cancelled", "Yes.", 8, True))


def refused_if_short(messages: list[dict[str, Any]]) -> Any:
    """The first message of a conversation is turned down, and with those that follow it answered."""
    return "Yes." if len(messages) > 1 else fail(400, "no")


@pytest.mark.long
async def test_a_large_word_on_each_of_many_calls_is_checked_and_goes_along(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in one workflow task, whose end has to fit a message of 4 MB."""
    busy = busy_in(monkeypatch, State, "resume_problem")

    @tool(needs_approval=True)
    def refund(number: int) -> str:
        return f"refunded {number}"

    calls = [call("refund", {"number": number}, id=f"c{number}") for number in range(14)]
    agent = agent_on(scripted([calls, "Done."]), tools=[refund], approvers=lambda _, decision: decision.by == "ada")
    note = "x" * (MAX_INPUT_BYTES - 1_000)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=14)
        with pytest.raises(Refused, match="goes along with each of 14 calls; the limit is 28,571 then"):
            await conversation.approve("*", note=note)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("resume", {})
        await eventually(busy.is_set)
        words = [{"call_id": f"c{number}", "note": note, "by": "ada"} for number in range(14)]
        await all_of(handle.signal("approve", word) for word in words)
        assert await conversation.reply() == "Done."
    results = results_of(await conversation.transcript())
    assert [result.text.endswith(f"refunded {number}") for number, result in enumerate(results)] == [True] * 14
    assert await largest_payload(client, conversation) < TWO_MIB


@pytest.mark.long
async def test_an_outcome_has_what_was_not_answered(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(refused_if_short))

    async def cancelled(kind: str) -> tuple[str, int, bool]:
        conversation = await client.start(agent, "Hi")
        with pytest.raises(Stalled):
            await conversation.reply()
        for _ in range(6):
            await conversation.send(WORST[kind])
        await client.temporal.get_workflow_handle(conversation.id).cancel()
        outcome = await conversation.outcome()
        return outcome.status, len(outcome.tail), await largest_payload(client, conversation) < TWO_MIB

    async with hosting(client, agent):
        ended = dict(zip(WORST, await asyncio.gather(*map(cancelled, WORST)), strict=True))
    assert ended == dict.fromkeys(WORST, ("cancelled", 7, True))


async def test_an_output_that_is_larger_than_its_text_is_refused_to_the_model(
    client: Client, scripted: Scripted
) -> None:
    class Filled(BaseModel):
        x: str

        @field_validator("x")
        @classmethod
        def _long(cls, value: str) -> str:
            return value * 300_000

    model = scripted(['{"x": "aaa"}', '{"x": "aa"}', '{"x": "a"}'])
    agent = agent_on(model, output=Filled)
    async with hosting(client, agent):
        outcome = await client.run(agent, "Go")
    assert outcome.output == {"x": "a" * 300_000}
    assert "has 900,008 bytes as JSON; the limit is 400,000" in json.dumps(model.requests[1]["messages"][-1])


@pytest.mark.long
async def test_a_call_with_very_long_arguments_waits_and_is_decided(client: Client, scripted: Scripted) -> None:
    """To show them all, each letter written out, takes longer than the two seconds that a workflow task may take."""

    @tool(needs_approval=True)
    def save(text: str) -> str:
        return f"{len(text)} saved"

    agent = agent_on(scripted([call("save", {"text": "\u202e" * 480_000}, id="c1"), "Done."]), tools=[save])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.approve("c1")
        assert await conversation.reply() == "Done."
    assert [result.text for result in results_of(await conversation.transcript())] == ["480000 saved"]
    assert await largest_payload(client, conversation) < TWO_MIB
