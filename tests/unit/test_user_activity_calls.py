"""Calls that users' own activities serve: what is checked before, how each is scheduled, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import CancelledError as Cancelled

from everturn import names
from everturn.limits import Limits
from everturn.plans import ActivityCall, CheckedCall, RetryPlan, RunActivity
from everturn.policy import Rule
from everturn.records import ToolCall, ToolResult
from everturn.sizes import LEAST_RESULT_BYTES, MAX_RESULT_CHARS, RUN_BYTES, TEMPORAL_PAYLOAD_BYTES
from everturn.workflows import user_activity_calls
from tests.support.activity_errors import activity_error, timed_out
from tests.support.fake_sdk import FakeSdk, ReplyParts

PAY = ToolCall(call_id="a", name="pay", arguments={"cents": 5})


def plan(**changes: Any) -> RunActivity:
    return RunActivity(**{"call_id": "a", "activity": "Pay", **changes})


def timeout_error(kind: TimeoutType) -> Exception:
    return activity_error(timed_out(kind))


def failed(kind: str = "", words: str = "no money") -> Exception:
    return activity_error(ApplicationError(words, type=kind or None))


async def test_an_activity_is_scheduled_as_its_worker_knows_it(reply: ReplyParts) -> None:
    arguments = {"amount": 5, "currency": "EUR"}
    await reply.begin(PAY, plan=[plan(arguments=arguments, by_position=("currency", "amount"), changed_by="mask")])
    activity = await reply.sdk.scheduled("Pay")
    assert activity.input == ["EUR", 5]
    assert activity.options["activity_id"] == f"{names.ACTIVITY_OF_CALL}a"
    assert activity.summary == 'pay(amount=5, currency="EUR") · changed by mask'
    await activity.finish({"paid": 5})
    paid = await reply.result()
    assert (paid.text, paid.is_error, paid.decision) == ('{"paid":5}', False, None)
    assert (reply.ledger.from_outputs, reply.ledger.recorded) == ({"a"}, set())


@pytest.mark.parametrize("queue", [None, "theirs"])
@pytest.mark.parametrize("retry", [None, RetryPlan()])
async def test_an_activity_is_told_which_call_it_serves(
    queue: str | None, retry: RetryPlan | None, reply: ReplyParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ActivityCall] = []

    @contextmanager
    def serving(served: ActivityCall) -> Iterator[None]:
        told.append(served)
        yield

    monkeypatch.setattr(user_activity_calls, "serving", serving)
    await reply.begin(PAY, plan=[plan(task_queue=queue, retry=retry)])
    facts: dict[str, Any] = {"turn": 1, "call_id": "a", "tool": "pay", "own_queue": queue is None}
    facts["again"] = retry is None
    assert told == [ActivityCall(**facts)]
    await (await reply.sdk.scheduled("Pay")).fail(timeout_error(TimeoutType.SCHEDULE_TO_START))
    if queue:
        assert told[1:] == [ActivityCall(**facts, awaited=True)]


async def test_a_minimal_summary_of_an_activity_of_the_tools_own_name_is_none(fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, visibility="minimal")
    await reply.begin(PAY, plan=[plan(activity="pay")])
    assert (await fake_sdk.scheduled("pay")).summary is None


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_call_that_runs_once_is_checked_first(effect: Any, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(effect=effect, arguments={"amount": 5})])
    if effect == "once":
        check = await reply.sdk.scheduled(names.CHECK_CALL)
        assert (check.input.tool, check.input.arguments, check.summary) == ("pay", {"cents": 5}, "may pay run?")
        await check.finish(CheckedCall(arguments={"cents": "checked"}, run_id="run"))
    assert (await reply.sdk.scheduled("Pay")).input == [{"amount": 5}]
    assert len(reply.sdk.activities) == (2 if effect == "once" else 1)


@pytest.mark.parametrize(("edit", "sent"), [(None, {"amount": 5}), ({"cents": 4}, {"amount": 4})])
async def test_an_activity_runs_with_the_arguments_that_a_person_puts_in(
    edit: Any, sent: Any, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan(approval="it asks", arguments={"amount": 5})])
    await reply.send(names.APPROVE, call_id="a", arguments=edit, by="ann")
    if edit:
        await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(arguments={"amount": 4}, run_id="run"))
    activity = await reply.sdk.scheduled("Pay")
    assert activity.input == [sent]
    await activity.finish("done")
    paid = await reply.result()
    assert paid.text.endswith("done")
    assert paid.decision
    assert (paid.decision.by, paid.decision.arguments) == ("ann", edit)


@pytest.mark.parametrize(
    ("run_id", "marked", "again"), [("run", True, False), ("before", True, True), ("before", False, False)]
)
async def test_a_check_that_another_run_made_is_made_again(
    run_id: str, *, marked: bool, again: bool, reply: ReplyParts
) -> None:
    """What a reset undid since was not seen. A history without the marker goes on as it did."""
    reply.sdk.patches = None if marked else set()
    await reply.begin(PAY, plan=[plan(effect="once")])
    await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(run_id=run_id))
    assert reply.sdk.markers == ([] if run_id == "run" else ["look 1 again a"])
    if again:
        await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(run_id="before"))
        assert reply.sdk.markers[1:] == ["look 2 again a"]
        await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(run_id="run"))
    assert await reply.sdk.scheduled("Pay")


async def test_a_hook_may_give_the_result_of_an_edited_call(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments={"cents": 4}, by="ann")
    given = ToolResult(call_id="a", name="pay")
    await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(result=given, run_id="run"))
    paid = await reply.result()
    assert paid.decision
    assert paid.decision.by == "ann"
    assert reply.sdk.open_activities == []


async def test_a_check_that_can_not_be_read_lets_nothing_run(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(effect="once")])
    await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(7)
    asked = reply.state.pending["a"].asked
    assert (asked.reason, asked.why.startswith("it has not run: The check of pay can't be read")) == (
        "has_not_run",
        True,
    )


@pytest.mark.parametrize("given", [None, ToolResult(call_id="a", name="pay")])
async def test_what_is_denied_while_a_call_is_checked_has_no_other_result(
    given: ToolResult | None, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan(effect="once")])
    reply.state.policy = (Rule(tool="pay", then="deny", by="eve"),)
    await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(result=given, run_id="run"))
    assert (await reply.result()).text == "This call was denied by the policy of eve and did not run."


async def test_a_turn_that_is_cancelled_together_with_a_check_runs_nothing(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(effect="once")])
    check = await reply.sdk.scheduled(names.CHECK_CALL)
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    await check.finish(CheckedCall(run_id="run"))
    assert [activity.name for activity in reply.sdk.activities] == [names.CHECK_CALL]


async def test_a_call_does_not_run_if_the_history_has_no_room_for_its_result(reply: ReplyParts) -> None:
    reply.sdk.size = RUN_BYTES - TEMPORAL_PAYLOAD_BYTES
    await reply.begin(PAY, plan=[plan()])
    refused = await reply.result()
    assert refused.is_error
    assert refused.text.startswith("This call did not run: the history has no room for its result before the next turn")


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        (TimeoutType.HEARTBEAT, True),
        (TimeoutType.START_TO_CLOSE, True),
        (TimeoutType.SCHEDULE_TO_CLOSE, False),
    ],
)
@pytest.mark.parametrize(
    "changes", [{}, {"effect": "once"}, {"retry": RetryPlan()}], ids=["plain", "once", "Temporal retries"]
)
async def test_an_activity_whose_worker_was_lost_is_scheduled_again(
    kind: TimeoutType, *, lost: bool, changes: dict[str, Any], reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan(**changes)])
    if changes.get("effect") == "once":
        await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(run_id="run"))
    await (await reply.sdk.scheduled("Pay")).fail(timeout_error(kind))
    if lost and not changes:
        await (await reply.sdk.scheduled("Pay")).finish("done")
        assert (await reply.result()).text == "done"
    else:
        assert reply.sdk.open_activities == []


@pytest.mark.parametrize("kind", ["Broke", "Zapped"])
async def test_a_failure_is_for_the_model(kind: str, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(max_chars=1_000)])
    await (await reply.sdk.scheduled("Pay")).fail(failed(kind, "x" * 5_000))
    told = await reply.result()
    assert told.is_error
    assert told.text.startswith(f"{kind}: xxx")
    assert len(told.text) < 1_200
    assert (reply.ledger.running, reply.ledger.from_outputs) == (set(), {"a"})


async def test_an_output_is_cut_to_the_plans_size(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(max_chars=1_000)])
    await (await reply.sdk.scheduled("Pay")).finish("x" * 5_000)
    assert len((await reply.result()).text) < 1_200 < MAX_RESULT_CHARS


@pytest.mark.parametrize(("queue", "named"), [(None, "ours"), ("theirs", "theirs")])
async def test_a_person_is_told_which_worker_is_missing(queue: str | None, named: str, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(task_queue=queue)])
    await (await reply.sdk.scheduled("Pay")).fail(timeout_error(TimeoutType.SCHEDULE_TO_START))
    seconds = "10" if queue else "604800"
    cause = f"No worker on task queue {named!r} took the activity 'Pay' within {seconds} s."
    assert (reply.awaited_worker.cause or "").startswith(cause)
    assert f"--task-queue {named} " in (reply.awaited_worker.cure or "")
    assert reply.sdk.open_activities == [] or queue
    if queue is None:
        await reply.sdk.fire("until a worker has the tool")
    activity = await reply.sdk.scheduled("Pay")
    within = activity.options["schedule_to_start_timeout"]
    assert within == timedelta(days=7)


@pytest.mark.parametrize(("queue", "waits"), [(None, True), ("theirs", False)])
async def test_what_is_handed_back_is_waited_for_on_the_conversations_own_queue(
    queue: str | None, *, waits: bool, reply: ReplyParts
) -> None:
    """On another queue, an error of that name is the activity's own."""
    await reply.begin(PAY, plan=[plan(task_queue=queue)])
    await (await reply.sdk.scheduled("Pay")).fail(failed(names.NOT_HOSTED, "nobody has it"))
    assert (reply.awaited_worker.cause is not None) is waits
    if not waits:
        assert (await reply.result()).text == f"{names.NOT_HOSTED}: nobody has it"


async def test_nobody_waits_for_a_worker_of_a_conversation_that_was_closed(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan(task_queue="theirs")])
    await (await reply.sdk.scheduled("Pay")).fail(timeout_error(TimeoutType.SCHEDULE_TO_START))
    activity = await reply.sdk.scheduled("Pay")
    await reply.send(names.CLOSE)
    assert activity.cancelled
    told = (await reply.result()).text
    assert told.startswith("This call was cut short: the conversation was closed. It was running")


async def test_what_a_worker_has_in_hand_is_waited_for_by_a_conversation_that_was_closed(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan()])
    activity = await reply.sdk.scheduled("Pay")
    await reply.send(names.CLOSE)
    await activity.finish("done")
    assert (await reply.result()).text == "done"


async def test_an_activity_that_ends_as_cancelled_since_its_conversation_was_closed_is_cut_short(
    reply: ReplyParts,
) -> None:
    await reply.begin(PAY, plan=[plan(task_queue="theirs")])
    await (await reply.sdk.scheduled("Pay")).fail(timeout_error(TimeoutType.SCHEDULE_TO_START))
    activity = await reply.sdk.scheduled("Pay")
    activity.waits_if_cancelled = True
    await reply.send(names.CLOSE)
    assert activity.asked_to_cancel
    await activity.fail(activity_error(Cancelled("as asked")))
    told = (await reply.result()).text
    assert told.startswith("This call was cut short: the conversation was closed. It was running")


async def test_an_activity_that_somebody_cancelled_ends_the_turn(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan()])
    await (await reply.sdk.scheduled("Pay")).fail(activity_error(Cancelled("by hand")))
    with pytest.raises(ActivityError):
        await reply.results()


async def test_a_failure_that_comes_together_with_a_cancellation_is_the_calls_result(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan()])
    activity = await reply.sdk.scheduled("Pay")
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    await activity.fail(failed("Broke", "no money"))
    (result,) = reply.open_calls.close_reply("enough")
    assert (result.text, reply.ledger.in_events) == ("Broke: no money", ("a",))


@pytest.mark.parametrize(
    "error",
    [
        timed_out(TimeoutType.HEARTBEAT),
        timed_out(TimeoutType.SCHEDULE_TO_START),
        ApplicationError("nobody has it", type=names.NOT_HOSTED),
        Cancelled("by hand"),
    ],
    ids=["lost", "not taken", "handed back", "cancelled"],
)
async def test_no_other_end_that_comes_together_with_a_cancellation_is_a_result(error: Any, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan()])
    activity = await reply.sdk.scheduled("Pay")
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    await activity.fail(activity_error(error))
    assert (reply.sdk.open_activities, reply.state.pending) == ([], {})
    (cut_short,) = reply.open_calls.close_reply("enough")
    assert cut_short.text.startswith("This call was cut short: enough. It was running")
    assert reply.ledger.in_events == ()


async def test_an_output_that_can_not_be_read_is_for_a_person(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan()])
    activity = await reply.sdk.scheduled("Pay")
    await activity.finish_unreadably()
    asked = reply.state.pending["a"].asked
    assert (asked.reason, "The result of pay can't be read" in asked.why) == ("outcome_unknown", True)
    assert reply.ledger.running == set()


@pytest.mark.parametrize(("calls", "runs"), [("a", True), ("abcd", False)])
async def test_the_results_of_calls_to_come_have_their_least_room_first(
    calls: str, *, runs: bool, fake_sdk: FakeSdk
) -> None:
    reply = ReplyParts(fake_sdk, limits=Limits(max_parallel_calls=1))
    fake_sdk.size = RUN_BYTES - TEMPORAL_PAYLOAD_BYTES - 2 * LEAST_RESULT_BYTES
    made = [ToolCall(call_id=call_id, name="pay") for call_id in calls]
    await reply.begin(*made, plan=[plan(call_id=call_id) for call_id in calls])
    assert ("a" not in reply.ledger.results) is runs
