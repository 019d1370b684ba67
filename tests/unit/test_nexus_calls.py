"""Calls that Nexus operations serve: how each is scheduled, how long it is waited for, and how many a run may leave."""

from __future__ import annotations

import asyncio
import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import exceptions, workflow
from temporalio.exceptions import ApplicationError, NexusOperationError, TimeoutType

from everturn import names
from everturn.limits import Limits
from everturn.plans import ActivityCall, CheckedCall, RunNexus
from everturn.records import ToolCall
from everturn.workflows.nexus_operations import AT_ONCE, MOST_LEFT, ClosedBeforeStart
from tests.support.fake_sdk import FakeSdk, ReplyParts, Scheduled, settle

PAY = ToolCall(call_id="a", name="pay", arguments={"cents": 5})


def operation_error(cause: BaseException) -> NexusOperationError:
    error = NexusOperationError(
        "nexus", scheduled_event_id=1, endpoint="shop", service="Bank", operation="pay", operation_token=""
    )
    error.__cause__ = cause
    return error


def timed_out() -> BaseException:
    return exceptions.TimeoutError("late", type=TimeoutType.SCHEDULE_TO_CLOSE, last_heartbeat_details=[])


class Operations:
    """Those that were scheduled; each begins when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scheduled: list[Scheduled] = []
        self.begin: list[asyncio.Future[None]] = []
        self.clients: list[dict[str, Any]] = []

        def client(**given: Any) -> Any:
            self.clients.append(given)
            return SimpleNamespace(start_operation=self._start)

        monkeypatch.setattr(workflow, "create_nexus_client", client)

    async def _start(self, name: str, sent: Any, **options: Any) -> Any:
        operation = Scheduled(name, sent, options)
        operation.waits_if_cancelled = True
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.scheduled.append(operation)
        self.begin.append(began)
        await began
        return operation.task


@pytest.fixture
async def operations(fake_sdk: FakeSdk, monkeypatch: pytest.MonkeyPatch) -> Operations:
    return Operations(monkeypatch)


def plan(**changes: Any) -> RunNexus:
    return RunNexus(**{"call_id": "a", "endpoint": "shop", "service": "Bank", "operation": "pay", **changes})


async def called(reply: ReplyParts, call: ToolCall = PAY, **changes: Any) -> None:
    """Its check is over."""
    await reply.begin(call, plan=[plan(**changes)])
    check = await reply.sdk.scheduled(names.CHECK_CALL)
    assert check.input.endpoint == "shop"
    await check.finish(CheckedCall(arguments={"cents": "checked"}, run_id="run"))


@pytest.mark.parametrize(("by_position", "sent"), [(None, {"cents": 5}), (("cents",), 5), (("other",), None)])
async def test_an_operation_is_scheduled_as_its_service_knows_it(
    by_position: Any, sent: Any, reply: ReplyParts, operations: Operations
) -> None:
    await called(reply, by_position=by_position)
    (operation,) = operations.scheduled
    assert operations.clients == [{"service": "Bank", "endpoint": "shop"}]
    assert (operation.name, operation.input, operation.summary) == ("pay", sent, "pay(cents=5)")
    headers = operation.options["headers"]
    assert json.loads(headers[names.CALL_HEADER]) == {"turn": 1, "call_id": "a", "tool": "pay"}
    key = json.dumps(["talk", "run", "a"]).encode()
    assert headers[names.IDEMPOTENCY_HEADER] == hashlib.sha256(key).hexdigest()
    operations.begin[0].set_result(None)
    await operation.finish("paid")
    assert (await reply.result()).text == "paid"
    assert reply.sdk.timers[0].fires.cancelled()


async def test_a_failed_operation_is_for_the_model(reply: ReplyParts, operations: Operations) -> None:
    await called(reply, max_chars=1_000)
    operations.begin[0].set_result(None)
    await operations.scheduled[0].fail(operation_error(ApplicationError("x" * 5_000, type="Broke")))
    told = await reply.result()
    assert told.text.startswith("Broke: xx")
    assert len(told.text) < 1_200
    assert (reply.ledger.running, reply.open_calls.operations.many_left) == (set(), False)


async def test_an_operation_that_its_own_side_cancelled_is_for_the_model(
    reply: ReplyParts, operations: Operations
) -> None:
    await called(reply)
    operations.begin[0].set_result(None)
    await operations.scheduled[0].fail(operation_error(exceptions.CancelledError("by its handler")))
    told = await reply.result()
    assert (told.is_error, told.text) == (True, "by its handler")


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (ApplicationError("no money", type="Broke"), "Broke: no money"),
        (exceptions.CancelledError("by its handler"), "by its handler"),
        (timed_out(), "This call was cut short: enough. It was running: it may or may not have taken effect."),
    ],
    ids=["failed", "cancelled by its own side", "timed out"],
)
async def test_a_failed_operation_that_comes_together_with_a_cancellation_counts(
    cause: BaseException, text: str, reply: ReplyParts, operations: Operations
) -> None:
    await called(reply)
    operations.begin[0].set_result(None)
    await settle()
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    await operations.scheduled[0].fail(operation_error(cause))
    (result,) = reply.open_calls.close_reply("enough")
    assert result.text == text


async def test_an_operation_that_timed_out_may_have_taken_effect(reply: ReplyParts, operations: Operations) -> None:
    await called(reply)
    operations.begin[0].set_result(None)
    await operations.scheduled[0].fail(operation_error(timed_out()))
    assert (await reply.result()).text.endswith("It may or may not have taken effect.")


async def test_an_operation_that_nobody_begins_is_shown_to_wait(reply: ReplyParts, operations: Operations) -> None:
    await called(reply)
    assert reply.awaited_worker.cause is None
    assert await reply.sdk.fire(f"{names.NOT_BEGUN}a") == 20.0
    cause = "No handler at the Nexus endpoint 'shop' started 'Bank/pay' within 20 s."
    assert (reply.awaited_worker.cause or "").startswith(cause)
    assert (reply.awaited_worker.cure or "").endswith("endpoint get --name shop")
    operations.begin[0].set_result(None)
    await settle()
    assert reply.awaited_worker.cause is None
    await operations.scheduled[0].finish("paid")
    assert (await reply.result()).text == "paid"


async def test_an_operation_that_nobody_began_is_not_waited_for_once_its_conversation_is_closed(
    reply: ReplyParts, operations: Operations
) -> None:
    await called(reply)
    await reply.send(names.CLOSE)
    assert reply.ledger.results == {}, "it may yet begin in time"
    await reply.sdk.fire(f"{names.NOT_BEGUN}a")
    told = (await reply.result()).text
    assert told == (
        "This call was cut short: the conversation was closed. It was running: it may or may not have taken effect."
    )


async def test_only_so_many_operations_run_at_once_and_none_begins_once_its_conversation_is_closed(
    fake_sdk: FakeSdk, operations: Operations
) -> None:
    reply = ReplyParts(fake_sdk, limits=Limits(max_parallel_calls=AT_ONCE + 1))
    served = ActivityCall(turn=1, call_id="a", tool="pay")
    run = reply.open_calls.operations.run_operation
    tasks = [asyncio.create_task(run(plan(), [], served, chain_id="run", summary="")) for _ in range(AT_ONCE + 1)]
    await settle()
    assert len(operations.scheduled) == AT_ONCE == 20  # as docs say
    assert AT_ONCE + MOST_LEFT + 1 < 30, "Temporal takes no more of a run"
    reply.state.closing = True
    operations.begin[0].set_result(None)
    await operations.scheduled[0].finish("paid")
    with pytest.raises(ClosedBeforeStart) as closed:
        await tasks[-1]
    assert (len(operations.scheduled), closed.value.was_scheduled) == (AT_ONCE, False)


async def left_behind(reply: ReplyParts, operations: Operations, count: int) -> list[Scheduled]:
    """So many turns were cancelled while their operation ran."""
    for _ in range(count):
        await called(reply)
        operations.begin[-1].set_result(None)
        await settle()
        await reply.send(names.CANCEL_TURN)
        reply.state.cancelled = ""
        reply.open_calls.close_reply("enough")
        reply.sdk.length += 1
    return operations.scheduled[-count:]


@pytest.mark.parametrize(
    ("left", "many", "full"),
    [
        (4, False, False),
        (5, True, False),
        (MOST_LEFT, True, False),
        (MOST_LEFT + 1, True, True),
    ],
)
async def test_a_run_leaves_only_so_many_operations_behind(
    left: int, *, many: bool, full: bool, reply: ReplyParts, operations: Operations
) -> None:
    """Those that timed out, and those that were cancelled and have not ended."""
    await left_behind(reply, operations, left - 2)
    assert all(operation.asked_to_cancel for operation in operations.scheduled)
    for _ in range(2):
        await called(reply)
        operations.begin[-1].set_result(None)
        await operations.scheduled[-1].fail(operation_error(timed_out()))
        reply.open_calls.close_reply("enough")
    assert (reply.open_calls.operations.many_left, reply.open_calls.operations.is_full) == (many, full)
    before = len(operations.scheduled)
    await called(reply)
    assert len(operations.scheduled) == before + (not full)
    if full:
        assert (await reply.result()).text.startswith("This call did not run: too many Nexus operations")


@pytest.mark.parametrize(
    ("ends", "still_left"), [("finished", False), ("failed", False), ("cancelled", False), ("timed out", True)]
)
async def test_an_operation_that_was_cancelled_is_left_until_it_ends(
    ends: str, *, still_left: bool, reply: ReplyParts, operations: Operations
) -> None:
    """If it times out, Temporal counts it as open for as long as the run goes on."""
    first, *_ = await left_behind(reply, operations, 5)
    match ends:
        case "finished":
            await first.finish("paid")
        case "failed":
            await first.fail(operation_error(ApplicationError("broken")))
        case "cancelled":
            first.task.cancel()
            await settle()
        case _:
            await first.fail(operation_error(timed_out()))
    assert reply.open_calls.operations.many_left is still_left


async def test_an_operation_that_never_began_is_not_left_behind(reply: ReplyParts, operations: Operations) -> None:
    for _ in range(5):
        await called(reply)
        await reply.sdk.fire(f"{names.NOT_BEGUN}a")
        reply.state.closing = True
        await settle()
        reply.state.closing = False
        reply.open_calls.close_reply("enough")
        reply.sdk.length += 1
    assert not reply.open_calls.operations.many_left
