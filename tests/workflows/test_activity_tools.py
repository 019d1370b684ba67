"""Activities that there are already, as tools: each runs as it is, wherever its workers are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker as TemporalWorker

from everturn import Client, EverturnPlugin, Image, ToolFailed, activity_tool, names, tool
from everturn.activities import before_reset
from everturn.errors import InvalidAgent
from everturn.events import ToolFinished, ToolLost, ToolStarted, WorkerAwaited
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import reset_to, signal
from tests.support.transcripts import results_of, told
from tests.support.waiting import busy_taking, eventually, nothing_runs, reaches, waiting

Scripted = Callable[..., ScriptedModel]


class Refund(BaseModel):
    order_id: str
    cents: int = 5


@dataclass
class Receipt:
    order_id: str
    cents: int
    at: datetime


@activity.defn(name="Shop.Refund")
def refund(what: Refund) -> Receipt:
    """Refund an order."""
    return Receipt(what.order_id, what.cents, datetime(2026, 1, 2, tzinfo=UTC))


@activity.defn
async def greet(name: str, times: int = 1, mark: str = "!") -> str:
    """Greet somebody."""
    return ", ".join([f"Hello {name}"] * times) + mark


async def _told(client: Client, scripted: Scripted, *tools: Any, calls: list[Any], **options: Any) -> list[Any]:
    """What the model was told of one reply's calls."""
    agent = agent_on(scripted([calls, "Done."]), tools=tools)
    async with hosting(client, agent, **options):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    return results_of(await conversation.transcript())


@asynccontextmanager
async def elsewhere(client: Client, *activities: Callable[..., Any]) -> AsyncIterator[str]:
    """A worker of the user's own, as Temporal has it, on a task queue of its own."""
    address, queue = client.temporal.service_client.config.target_host, f"own-{uuid4().hex[:8]}"
    with ThreadPoolExecutor(1) as threads:
        client_of_theirs = await TemporalClient.connect(address)
        async with TemporalWorker(client_of_theirs, task_queue=queue, activities=activities, activity_executor=threads):
            yield queue


# ---------------------------------------------------------------- as it is


async def test_an_activity_runs_with_its_own_input_and_output(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    tools = [activity_tool(refund, name="refund"), activity_tool(greet)]
    calls = [
        call("refund", {"order_id": "81", "cents": "12"}, id="a"),
        call("greet", {"name": "Ada", "mark": "?"}, id="b"),
        call("greet", {"name": "Bob"}, id="c"),
        call("refund", {"cents": 12}, id="d"),
    ]
    agent = agent_on(scripted([calls, "Done."]), tools=tools)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    texts = {result.call_id: result.text for result in results_of(await conversation.transcript())}
    assert texts == {
        "a": '{"order_id":"81","cents":12,"at":"2026-01-02T00:00:00Z"}',
        "b": "Hello Ada?",
        "c": "Hello Bob!",
        "d": "The arguments of refund do not fit its schema:\norder_id: Field required",
    }
    events = await told(conversation)
    assert {event.tool for event in events if isinstance(event, ToolStarted)} == {"refund", "greet"}
    assert {event.result.call_id for event in events if isinstance(event, ToolFinished)} == set("abcd")
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    ids = {one.activity_id: one.activity_type.name for one in scheduled if one.activity_type.name}
    assert ids["call:a"] == "Shop.Refund"
    assert [len(one.input.payloads) for one in scheduled if one.activity_id in ("call:b", "call:c")] == [3, 1]
    assert sum(one.activity_type.name == "call_model" for one in scheduled) == 2


@activity.defn
async def ship(what: Receipt, express: bool = False, note: str | None = None) -> str:
    """Ship what was paid for."""
    return f"{what!r} {express} {note}"


async def test_an_activity_has_its_own_types_though_the_model_leaves_out_what_has_a_default(
    client: Client, scripted: Scripted
) -> None:
    """Temporal reads an activity's input by its types only if it gets as many as the function takes."""
    calls = [call("ship", {"what": {"order_id": "81", "cents": 12, "at": "2026-01-02T00:00:00Z"}})]
    [told] = await _told(client, scripted, activity_tool(ship), calls=calls)
    assert told.text.startswith("Receipt(order_id='81', cents=12, at=datetime.datetime(2026")
    assert told.text.endswith("False None")


@activity.defn
async def keep(until: date) -> str:
    """Keep it."""
    return str(until)


async def test_what_the_data_converter_can_not_read_is_told_with_its_cause(client: Client, scripted: Scripted) -> None:
    """Temporal's own converter reads no dates."""
    plain = await TemporalClient.connect(client.temporal.service_client.config.target_host)
    agent = agent_on(scripted([call("keep", {"until": "2026-01-02"}), "Done."]), tools=[activity_tool(keep)])
    async with TemporalWorker(plain, task_queue=client.task_queue, plugins=[EverturnPlugin(agents=[agent])]):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    [told] = results_of(await conversation.transcript())
    assert told.is_error
    assert told.text.startswith("Failed decoding arguments: TypeError: ")
    assert "datetime.date" in told.text


async def test_an_activity_on_another_task_queue_needs_only_its_name_and_a_schema(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @activity.defn(name="reverse")
    async def reverse(what: dict[str, Any]) -> dict[str, Any]:
        return {"by": activity.info().task_queue, "key": activity.info().activity_id, "text": what["text"][::-1]}

    @activity.defn(name="Join")
    async def join(first: str, second: str) -> str:
        return first + second

    @activity.defn(name="now")
    async def now() -> None:
        return None

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    class Both(BaseModel):
        first: str
        second: str = "?"

    async with elsewhere(client, reverse, join, now) as queue:
        results = await _told(
            client,
            scripted,
            activity_tool("reverse", task_queue=queue, schema=schema),
            activity_tool("Join", task_queue=queue, schema=Both, by_position=["first", "second"], name="join"),
            activity_tool("now", task_queue=queue, schema={"type": "object"}),
            calls=[
                call("reverse", {"text": "abc"}, id="a"),
                call("join", {"first": "x"}, id="b"),
                call("now", {}, id="c"),
            ],
            cached_conversations=cached_conversations,
        )
    assert [result.text for result in results] == [
        f'{{"by":"{queue}","key":"call:a","text":"cba"}}',
        "x?",
        "(no output)",
    ]
    assert not any(result.is_error for result in results)


async def test_the_activity_of_a_method_is_hosted_with_its_object_or_where_that_is(
    client: Client, scripted: Scripted
) -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @activity.defn
        def sell(self, what: str) -> str:
            return f"{what} of {self.name}"

    async with elsewhere(client, Shop("afar").sell) as queue:
        there = activity_tool(Shop.sell, task_queue=queue, name="sell_there")
        here = activity_tool(Shop("here").sell)
        assert there.parameters == here.parameters
        calls = [call("sell", {"what": "tea"}), call("sell_there", {"what": "tea"})]
        results = await _told(client, scripted, here, there, calls=calls)
    assert [result.text for result in results] == ["tea of here", "tea of afar"]


RETURNED: dict[str, tuple[Any, str | None]] = {
    "an empty text": ("", "(no output)"),
    "an object": ({"a": [1, None]}, '{"a":[1,null]}'),
    "an empty list": ([], "[]"),
    "no number": (float("nan"), "NaN"),
    "as MCP has it": ({"content": [{"type": "text", "text": "it broke"}], "isError": True}, "it broke"),
    "no picture": ([{"type": "image", "data": "no base64!", "mimeType": "image/png"}],
        "[Left out because it is not base64: image.]"),
    "a picture": (
        [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}, {"type": "text", "text": "A dot."}],
        "A dot."),
    "no JSON": (RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{no json")), "{no json"),
    "bytes": (b"\x00\x01", "[Left out because it is not text: 2 bytes.]"),
    "protobuf": (RawValue(Payload(metadata={"encoding": b"json/protobuf"}, data=b'{"a": 1}')), '{"a":1}'),
    "half a letter": (RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b'"\\ud83d"')), "\ufffd"),
    "too deep": (RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 100_000)), None),
    "what JSON can't hold": (object(), None),
}  # fmt: skip


async def test_whatever_it_returns_is_something_that_a_model_can_read(client: Client, scripted: Scripted) -> None:
    @activity.defn
    async def give(what: str) -> Any:
        output, _ = RETURNED[what]
        return output

    calls = [call("give", {"what": what}, id=f"c{number}") for number, what in enumerate(RETURNED)]
    results = dict(zip(RETURNED, await _told(client, scripted, activity_tool(give), calls=calls), strict=True))
    wanted = {what: text for what, (_, text) in RETURNED.items() if text is not None}
    assert {what: results[what].text for what in wanted} == wanted
    assert isinstance(results["a picture"].content[0], Image)
    assert results["too deep"].text
    # What ran and gave what can't be written is not told as if it had failed.
    ran = results["what JSON can't hold"]
    assert ran.is_error
    assert ran.text.startswith("The tool ran, and what it did stands: do not call it again")
    assert "object" in ran.text


# ---------------------------------------------------------------- what fails


async def test_a_failure_is_told_to_the_model_at_once(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    tries: list[int] = []

    @activity.defn
    async def book(day: str) -> str:
        tries.append(activity.info().attempt)
        match day:
            case "monday":
                raise ValueError("closed on mondays")
            case "sunday":
                raise ToolFailed("Try monday.")
            # Types that mean something, if they are everturn's own.
            case kind:
                raise ApplicationError("no such day", type=kind)

    days = ["monday", "sunday", "NotTaken", "InvalidEdit", "NotFoundError"]
    results = await _told(
        client,
        scripted,
        activity_tool(book, effect="once"),
        calls=[call("book", {"day": day}) for day in days],
        cached_conversations=cached_conversations,
    )
    assert [result.text for result in results][:2] == ["ValueError: closed on mondays", "Try monday."]
    assert [result.text for result in results][2:] == [f"{kind}: no such day" for kind in days[2:]]
    assert all(result.is_error for result in results)
    assert tries == [1] * len(days)


async def test_its_own_retry_policy_retries_it(client: Client, scripted: Scripted, cached_conversations: int) -> None:
    tries: list[tuple[int, str]] = []

    @activity.defn
    async def book() -> str:
        tries.append((activity.info().attempt, activity.info().activity_id))
        if len(tries) < 3:
            raise ConnectionError("down")
        raise KeyError("81")

    policy = RetryPolicy(initial_interval=timedelta(milliseconds=10), non_retryable_error_types=["KeyError"])
    [result] = await _told(
        client,
        scripted,
        activity_tool(book, retry=policy),
        calls=[call("book", {}, id="a")],
        cached_conversations=cached_conversations,
    )
    assert result.text == "KeyError: '81'"
    assert tries == [(1, "call:a"), (2, "call:a"), (3, "call:a")]


def _silent_at_first(effect: Any) -> tuple[list[str], Any]:
    """An activity whose first try is silent, as if its worker was lost; and what its tries saw."""
    tries: list[str] = []

    @activity.defn
    async def book() -> str:
        tries.append(activity.info().activity_id)
        if len(tries) == 1:
            await asyncio.sleep(30)
        return "booked"

    return tries, activity_tool(book, effect=effect, heartbeat_timeout=timedelta(seconds=3))


async def test_one_that_is_lost_with_its_worker_is_tried_again_under_the_same_id(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    tries, book = _silent_at_first("idempotent")
    agent = agent_on(scripted([[call("book", {}, id="a")], "Done."]), tools=[book])
    async with hosting(client, agent, cached_conversations=cached_conversations, drain_timeout=timedelta(seconds=0.1)):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text == "booked"
    assert tries == ["call:a", "call:a"]
    kinds = [type(event) for event in await told(conversation)]
    assert [kind for kind in kinds if kind in (ToolStarted, ToolLost, ToolFinished)] == [
        ToolStarted, ToolLost, ToolStarted, ToolFinished
    ]  # fmt: skip


async def test_one_that_is_lost_again_and_again_is_given_up_and_the_model_told(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(lost_activity_tries=2)
    tries: list[int] = []

    @activity.defn
    async def book() -> None:
        tries.append(1)
        await asyncio.sleep(30)

    [result] = await _told(
        client,
        scripted,
        activity_tool(book, timeout=timedelta(seconds=0.3)),
        calls=[call("book", {})],
        drain_timeout=timedelta(seconds=0.1),
    )
    assert result.is_error
    assert "could not reach Temporal (start to close timeout). It may or may not have taken effect." in result.text
    assert len(tries) == 2


async def test_a_once_activity_that_is_lost_waits_for_a_person(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    tries, book = _silent_at_first("once")
    agent = agent_on(scripted([[call("book", {}, id="a")], "Done."]), tools=[book])
    async with hosting(client, agent, cached_conversations=cached_conversations, drain_timeout=timedelta(seconds=0.1)):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        (waits,) = (await conversation.status()).waiting
        assert waits.reason == "outcome_unknown"
        assert tries == ["call:a"]
        await conversation.approve("a", note="it is not in the books")
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text == "[Approved by tester. Note: it is not in the books]\nbooked"
    assert tries == ["call:a", "call:a"]


@pytest.mark.parametrize("together", [True, False], ids=["together", "before"])
@pytest.mark.parametrize(
    ("command", "is_told"),
    [
        (names.CANCEL_TURN, "This call was cut short: the turn was cancelled"),
        (names.CLOSE, "This call was cut short: the conversation was closed."),
        (names.SET_POLICY, "This call was denied by the policy"),
        ("cancel", "This call was cut short: the workflow was cancelled."),
    ],
)
async def test_a_once_activity_that_nobody_wants_any_more_does_not_begin_after_its_check(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, command: str, is_told: str, together: bool
) -> None:
    """`together`: it is said in the workflow task that brings what the check has found."""
    paid: list[str] = []
    checking = asyncio.Event()
    released = asyncio.Event()
    check_not_run = before_reset.check_not_run

    async def check_when_released(name: str, request: Any) -> None:
        checking.set()
        await released.wait()
        await check_not_run(name, request)

    monkeypatch.setattr(before_reset, "check_not_run", check_when_released)

    @activity.defn
    async def pay() -> str:
        paid.append("paid")
        return "paid"

    agent = agent_on(scripted([call("pay", {}, id="a"), "Done."]), tools=[activity_tool(pay, effect="once")])
    rules = [{"tool": "pay", "then": "deny"}] if command == names.SET_POLICY else []
    async with hosting(client, agent, cached_conversations=0):
        conversation = await client.start(agent, "Pay", keep_open=timedelta(minutes=1))
        await eventually(checking.is_set)
        if together:
            busy = busy_taking(monkeypatch, names.SET_POLICY)
            await signal(conversation, names.SET_POLICY, {"rules": []})
            await eventually(busy.is_set)
            released.set()
            await nothing_runs(client, conversation)
        if command == "cancel":
            await client.temporal.get_workflow_handle(conversation.id).cancel()
        elif together:
            await signal(conversation, command, {"rules": rules} if rules else {})
        else:
            await getattr(conversation, command)(*[rules] if rules else [])
        released.set()
        if command in (names.CANCEL_TURN, names.SET_POLICY):
            await reaches(conversation, "idle")
            assert (await conversation.by_history()).state.is_idle
            await conversation.close()
        await conversation.outcome()
        [result] = results_of(await conversation.transcript())
        assert result.text.startswith(is_told)
        assert "was running" not in result.text
    assert paid == []


async def test_a_once_activity_that_ran_before_a_reset_waits_for_a_person(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    paid: list[str] = []

    @activity.defn
    async def pay(order: str) -> str:
        paid.append(order)
        return "paid"

    agent = agent_on(
        scripted([call("pay", {"order": "81"}, id="a"), "Paid."]), tools=[activity_tool(pay, effect="once")]
    )
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Paid."
        # Tasks: the start, the reply's plan, what was looked at before it ran, what it brought.
        for task in (1, 2, 2):
            await reset_to(client, conversation, task=task)
            assert await waiting(conversation) == ("a",)
            (waits,) = (await conversation.status()).waiting
            assert "the conversation was reset, and pay ran in the part that was undone" in waits.why
            await conversation.answer("a", "paid before")
            assert await conversation.reply() == "Paid."
        # Behind its end, nothing is looked for again.
        await reset_to(client, conversation, task=-1)
        assert (await reaches(conversation, "idle")).turn == 2
    assert paid == ["81"]


# ---------------------------------------------------------------- who decides


async def test_an_edit_has_to_fit_the_activity_and_the_model_is_told_of_it(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    asking = activity_tool(refund, name="refund", needs_approval=lambda given: given["cents"] > 1, effect="once")
    agent = agent_on(scripted([[call("refund", {"order_id": "81"}, id="a")], "Done."]), tools=[asking])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.approve("a", arguments={"order_id": "81", "cents": "lots"})

        async def asked_again() -> bool:
            return [waiting_call.reason for waiting_call in (await conversation.status()).waiting] == ["invalid_edit"]

        await eventually(asked_again)
        await conversation.approve("a", arguments={"order_id": "82", "cents": "7"})
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text == (
        '[Approved by tester with other arguments: {"order_id":"82","cents":"7"}]\n'
        '{"order_id":"82","cents":7,"at":"2026-01-02T00:00:00Z"}'
    )
    assert result.decision
    assert result.decision.by == "tester"


async def test_a_denied_call_never_reaches_its_activity(client: Client, scripted: Scripted) -> None:
    asking = activity_tool("pay", task_queue="nobody", schema={}, needs_approval=True)
    agent = agent_on(scripted([[call("pay", {}, id="a")], "Done."]), tools=[asking])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.deny("a")
        assert (await conversation.outcome()).text == "Done."
    assert not [event for event in await told(conversation) if isinstance(event, ToolStarted)]


async def test_what_was_planned_runs_though_a_deploy_took_the_tool_away(client: Client, scripted: Scripted) -> None:
    async with elsewhere(client, greet) as queue:
        model = scripted([[call("greet", {"name": "Ada"}, id="a")], "Done."])
        greeter = activity_tool(
            "greet", task_queue=queue, schema={}, by_position=(), needs_approval=True, effect="once"
        )
        greeter = activity_tool(greet, task_queue=queue, needs_approval=True, effect="once")
        before, after = agent_on(model, tools=[greeter]), agent_on(model)
        async with hosting(client, before):
            conversation = await client.start(before, "Go")
            await waiting(conversation)
        async with hosting(await Client.connect(
            client.temporal.service_client.config.target_host, task_queue=client.task_queue, by="tester"
        ), after):  # fmt: skip
            await conversation.approve("a")
            assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text == "Hello Ada!"


# ---------------------------------------------------------------- who runs it


async def test_a_task_queue_without_a_worker_is_named_in_the_status_until_one_comes(
    client: Client, scripted: Scripted, bounds: Bounds, cached_conversations: int
) -> None:
    bounds(taken_within=timedelta(seconds=0.5))
    queue = f"gpu-{uuid4().hex[:8]}"
    transcribe = activity_tool("transcribe", task_queue=queue, schema={"properties": {"file": {"type": "string"}}})

    @activity.defn(name="transcribe")
    async def running(what: dict[str, str]) -> str:
        return f"words of {what['file']}"

    agent = agent_on(scripted([[call("transcribe", {"file": "a.wav"}, id="a")], "Done."]), tools=[transcribe])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")

        async def said() -> bool:
            status = await conversation.status()
            start = f"No worker on task queue {queue!r} took the activity 'transcribe' within 0.5 s. Waiting for one"
            return status.state == "running" and (status.cause or "").startswith(start)

        await eventually(said)
        assert f"--task-queue {queue}" in ((await conversation.status()).cure or "")
        address = client.temporal.service_client.config.target_host
        other = await TemporalClient.connect(address)
        async with TemporalWorker(other, task_queue=queue, activities=[running]):
            assert (await conversation.outcome()).text == "Done."
        assert (await conversation.status()).cause is None
    [result] = results_of(await conversation.transcript())
    assert result.text == "words of a.wav"
    (awaited,) = [event for event in await told(conversation) if isinstance(event, WorkerAwaited)]
    assert queue in awaited.cause


async def test_an_activity_that_a_deploy_took_away_waits_for_a_worker_that_has_it(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    model = scripted([[call("greet", {"name": "Ada"}, id="a")], "Done."])
    before, after = agent_on(model, tools=[activity_tool(greet, needs_approval=True)]), agent_on(model)
    async with hosting(client, before, cached_conversations=cached_conversations):
        conversation = await client.start(before, "Go")
        await waiting(conversation)
    async with hosting(client, after, cached_conversations=cached_conversations):
        await conversation.approve("a")

        async def awaited() -> bool:
            return "Waiting for one since" in ((await conversation.status()).cause or "")

        await eventually(awaited)
    async with hosting(client, before, cached_conversations=cached_conversations):
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text == "Hello Ada!"
    (waited,) = [event for event in await told(conversation) if isinstance(event, WorkerAwaited)]
    assert "greet" in waited.cause


async def test_a_conversation_that_is_closed_no_longer_waits_for_a_worker(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(taken_within=timedelta(seconds=0.3))
    agent = agent_on(
        scripted([[call("pay", {}, id="a")], "Done."]), tools=[activity_tool("pay", task_queue="nobody", schema={})]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))

        async def awaited() -> bool:
            return bool((await conversation.status()).cause)

        await eventually(awaited)
        await conversation.close()
        await conversation.outcome()
    [result] = results_of(await conversation.transcript())
    assert result.text.startswith("This call was cut short: the conversation was closed.")


async def test_a_turn_that_is_cancelled_cancels_its_activity(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    ended: list[str] = []

    @activity.defn
    async def work() -> None:
        try:
            while True:
                activity.heartbeat("half")
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    agent = agent_on(
        scripted([[call("work", {}, id="a")], "Done."]),
        tools=[activity_tool(work, heartbeat_timeout=timedelta(seconds=5))],
    )
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        async for event in conversation.events():
            if event.kind == "tool_progress":
                assert event.progress == "half"
                break
        await conversation.cancel_turn()
        await eventually(lambda: ended == ["cancelled"])
        await conversation.close()
    [result] = results_of(await conversation.transcript())
    assert "It was running: it may or may not have taken effect." in result.text


async def test_with_minimal_visibility_its_summary_shows_no_arguments(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_VISIBILITY", "minimal")
    agent = agent_on(scripted([[call("greet", {"name": "Ada"}, id="a")], "Done."]), tools=[activity_tool(greet)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    [scheduled] = [
        event for event in history.events if event.activity_task_scheduled_event_attributes.activity_id == "call:a"
    ]
    assert not scheduled.user_metadata.HasField("summary"), "the activity's own name says what it is"


# ---------------------------------------------------------------- what is large


async def test_a_large_output_is_cut_for_the_model_and_one_beyond_temporals_limit_is_an_error(
    client: Client, scripted: Scripted
) -> None:
    @activity.defn
    async def dump(chars: int) -> str:
        return "x" * chars

    sizes = [1_900_000, 3_000_000]
    results = await _told(
        client,
        scripted,
        activity_tool(dump, timeout=timedelta(seconds=20)),
        calls=[call("dump", {"chars": size}, id=f"c{size}") for size in sizes],
    )
    assert re.fullmatch(r"x{200000}\n\[Cut: 200,000 of 1,900,000 characters are shown\. .*\]", results[0].text)
    assert results[1].is_error
    assert "limit" in results[1].text or "large" in results[1].text, results[1].text


async def test_calls_whose_outputs_the_history_has_no_room_for_do_not_run(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(run_bytes=4_500_000)
    ran: list[int] = []

    @activity.defn
    async def dump(number: int) -> str:
        ran.append(number)
        return "x" * 1_900_000

    calls = [call("dump", {"number": number}, id=f"c{number}") for number in range(4)]
    results = await _told(client, scripted, activity_tool(dump), calls=calls)
    assert len(ran) == 2
    refused = [result.text for result in results if result.is_error]
    assert len(refused) == 2
    assert refused[0].startswith("This call did not run: the history has no room for its result")


async def test_an_output_that_nobody_here_can_read_waits_for_a_person(client: Client, scripted: Scripted) -> None:
    @activity.defn
    async def give() -> Any:
        return RawValue(Payload(metadata={"encoding": b"binary/msgpack"}, data=b"\x81"))

    agent = agent_on(scripted([[call("give", {}, id="a")], "Done."]), tools=[activity_tool(give)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        (waits,) = (await conversation.status()).waiting
        assert waits.reason == "outcome_unknown"
        assert "binary/msgpack" in waits.why
        await conversation.answer("a", "one map")
        assert (await conversation.outcome()).text == "Done."


async def test_names_that_clash_are_refused_when_the_worker_is_made(client: Client, scripted: Scripted) -> None:
    @tool(name="greet")
    def hello() -> str:
        return "hello"

    model = scripted(["Done."])
    first, second = agent_on(model, tools=[activity_tool(greet)]), agent_on(model, tools=[hello], name="other")
    with pytest.raises(InvalidAgent, match="has the activity 'greet', and a tool on the same worker has the same name"):
        async with hosting(client, first, second):
            pass
