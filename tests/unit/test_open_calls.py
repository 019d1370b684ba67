"""The calls of one reply: what is scheduled for each, what people are asked, and what the model is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, TimeoutType
from temporalio.exceptions import CancelledError as Cancelled

from everturn import names
from everturn.calls.gate import DENIED_SINCE
from everturn.limits import Limits
from everturn.plans import AwaitAnswer, CheckedCall, PlannedCall, RunActivity, RunAgent, RunHandoff, RunTool, UseResult
from everturn.policy import Condition, Rule
from everturn.records import HookAction, Outcome, Successor, Text, ToolCall, ToolResult
from everturn.sizes import MAX_PAYLOAD_BYTES, MAX_RESULT_BYTES, RUN_BYTES, size_of
from tests.support.activity_errors import activity_error, timed_out
from tests.support.fake_sdk import FakeSdk, ReplyParts

PAY = ToolCall(call_id="a", name="pay", arguments={"cents": 5})


def result(call_id: str = "a", text: str = "paid") -> ToolResult:
    return ToolResult(call_id=call_id, name="pay", content=(Text(text=text),))


def lost(kind: TimeoutType = TimeoutType.HEARTBEAT) -> Exception:
    return activity_error(timed_out(kind))


def failed(kind: str, words: str = "because", **details: Any) -> Exception:
    return activity_error(ApplicationError(words, details, type=kind))


async def test_a_call_without_a_plan_does_not_run(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[])
    assert (await reply.result()).text == "This call has no plan, so it did not run. Call again."
    assert reply.sdk.activities == []


async def test_a_call_that_has_its_result_does_not_run_again(reply: ReplyParts) -> None:
    other = ToolCall(call_id="b", name="pay")
    reply.ledger.begin_reply((PAY, other))
    reply.ledger.results["a"] = result(text="before")
    await reply.go_on(plan=[RunTool(call_id="a"), RunTool(call_id="b")])
    await (await reply.sdk.scheduled()).finish(result("b"))
    assert [each.text for each in await reply.results()] == ["before", "paid"]


async def test_only_so_many_calls_run_at_once(fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, limits=Limits(max_parallel_calls=2))
    calls = [ToolCall(call_id=call_id, name=f"tool-{call_id}") for call_id in "abc"]
    await reply.begin(*calls, plan=[RunTool(call_id=call_id) for call_id in "abc"])
    assert [activity.name for activity in fake_sdk.activities] == ["tool-a", "tool-b"]
    await (await fake_sdk.scheduled("tool-b")).finish(result("b"))
    assert [activity.name for activity in fake_sdk.activities] == ["tool-a", "tool-b", "tool-c"]
    await (await fake_sdk.scheduled("tool-c")).finish(result("c"))
    await (await fake_sdk.scheduled("tool-a")).finish(result("a"))
    assert [each.call_id for each in await reply.results()] == ["a", "b", "c"]


async def test_what_a_tool_is_sent(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", effect="once", changed_by="mask")])
    scheduled = await reply.sdk.scheduled("pay")
    assert scheduled.summary == "cents=5 · changed by mask", "its name is shown already"
    sent = scheduled.input
    assert (sent.arguments, sent.decision, sent.as_shown, sent.again, sent.once) == (
        {"cents": 5},
        None,
        False,
        False,
        True,
    )
    assert (sent.chain_id, sent.reset_run, sent.tool, sent.by_default, sent.answer) == ("run", "", "", {}, None)

    await (await reply.sdk.scheduled("pay")).finish(result())
    assert (await reply.result()).decision is None
    assert (reply.ledger.in_events, reply.ledger.running) == (("a",), {"a"})


async def test_a_tool_that_is_an_activity_of_another_name_is_told_its_own(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", activity="everturn.mcp", changed_by="mask")])
    scheduled = await reply.sdk.scheduled("everturn.mcp")
    assert (scheduled.input.tool, scheduled.summary) == ("pay", "pay(cents=5) · changed by mask")


@pytest.mark.parametrize("approval", [None, "it asks"])
async def test_an_approved_call_runs_with_the_defaults_that_a_person_saw(
    approval: str | None, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval=approval, by_default={"currency": "EUR"})])
    if approval:
        assert reply.sdk.activities == []
        await reply.send(names.APPROVE, call_id="a", by="ann")
    sent = (await reply.sdk.scheduled("pay")).input
    assert sent.by_default == ({"currency": "EUR"} if approval else {})
    assert (sent.decision and sent.decision.by) == ("ann" if approval else None)


@pytest.mark.parametrize(("edit", "sent"), [(None, {"cents": 5}), ({"cents": 4}, {"cents": 4}), ({}, {})])
async def test_a_call_runs_with_the_arguments_that_a_person_puts_in(
    edit: dict[str, Any] | None, sent: dict[str, Any], reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments=edit)
    scheduled = (await reply.sdk.scheduled("pay")).input
    assert scheduled.arguments == sent
    assert scheduled.as_shown is False, "hooks have to see an edit, and nothing else is new to them"


async def test_hooks_do_not_see_again_what_a_person_confirms_as_shown(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments={"cents": 5})
    assert (await reply.sdk.scheduled("pay")).input.as_shown


async def test_a_denied_call_is_answered_with_the_reason(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks")])
    await reply.send(names.DENY, call_id="a", by="ann", reason="too much")
    denied = await reply.result()
    assert denied.text == "This call was denied by ann and did not run. Reason: too much"
    assert (denied.is_error, reply.sdk.activities) == (True, [])


@pytest.mark.parametrize("verdict", [names.DENY, names.ANSWER])
async def test_only_an_approval_lets_a_sub_agent_begin(verdict: str, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunAgent(call_id="a", agent="payer", approval="it asks")])
    more: dict[str, Any] = {"content": "paid by hand"} if verdict == names.ANSWER else {}
    await reply.send(verdict, call_id="a", **more)
    text = (await reply.result()).text
    assert text == ("paid by hand" if more else "This call was denied and did not run.")
    assert reply.sdk.children == []


@pytest.mark.parametrize("edit", [None, {"message": "Pay 4."}])
async def test_a_sub_agent_begins_with_the_message_that_a_person_puts_in(
    edit: dict[str, Any] | None, reply: ReplyParts
) -> None:
    call = ToolCall(call_id="a", name="payer", arguments={"message": "Pay 5."})
    await reply.begin(call, plan=[RunAgent(call_id="a", agent="payer", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments=edit)
    if edit:
        check = await reply.sdk.scheduled(names.CHECK_CALL)
        assert (check.input.arguments, check.input.given) == (edit, False)
        await check.finish(CheckedCall(arguments={"message": "Pay 4. Now."}, run_id="run"))
    (child,) = reply.sdk.children
    assert child.input.message == ("Pay 4. Now." if edit else "Pay 5.")
    await child.finish(Outcome(status="completed", text="Paid."))
    approved = await reply.result()
    assert approved.decision is not None
    assert approved.decision.arguments == (edit and {"message": "Pay 4. Now."})
    assert approved.text.endswith("Paid.")
    assert (reply.ledger.in_events, reply.ledger.recorded) == (("a",), set())


async def test_the_result_of_a_sub_agent_that_nobody_approved_is_its_outcome(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunAgent(call_id="a", agent="payer")])
    await reply.sdk.children[0].finish(Outcome(status="completed", text="Paid."))
    answered = await reply.result()
    assert (answered.text, answered.decision) == ("Paid.", None)
    assert (reply.ledger.recorded, reply.ledger.from_outputs) == ({"a"}, set())


@pytest.mark.parametrize(
    "plan",
    [
        RunAgent(call_id="a", agent="payer", approval="it asks"),
        UseResult(call_id="a", result=result(), approval="it asks"),
        RunHandoff(call_id="a", successor=Successor(agent="payer"), approval="it asks"),
    ],
    ids=lambda plan: plan.kind,
)
async def test_arguments_that_a_person_leaves_as_shown_need_no_check(plan: PlannedCall, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan])
    await reply.send(names.APPROVE, call_id="a", arguments={"cents": 5})
    assert reply.sdk.activities == []
    assert reply.state.pending == {}


async def test_a_hook_may_give_the_result_for_a_persons_arguments(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunAgent(call_id="a", agent="payer", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments={"message": "Pay 4."})
    given = result().model_copy(update={"hooks": (HookAction(hook="h", point="before_tool", did="answered"),)})
    await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(result=given, run_id="run"))
    approved = await reply.result()
    assert approved.text.endswith("paid")
    assert approved.decision
    assert approved.decision.arguments == {"message": "Pay 4."}
    assert reply.sdk.children == []


@pytest.mark.parametrize(
    "plan",
    [
        RunTool(call_id="a", approval="it asks"),
        RunAgent(call_id="a", agent="payer", approval="it asks"),
        UseResult(call_id="a", result=result(), approval="it asks"),
        AwaitAnswer(call_id="a", approval="it asks"),
        RunHandoff(call_id="a", successor=Successor(agent="payer"), approval="it asks"),
        RunActivity(call_id="a", activity="Pay", approval="it asks"),
    ],
    ids=lambda plan: plan.kind,
)
async def test_whoever_edits_what_does_not_fit_is_asked_again(plan: PlannedCall, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan])
    for edits in (1, 2):
        await reply.send(names.APPROVE, call_id="a", arguments={"cents": edits})
        await (await reply.sdk.scheduled()).fail(failed(names.INVALID_EDIT, "cents is no number"))
        assert reply.approvals.refused_edits == edits
        asked = reply.state.pending["a"].asked
        assert (asked.reason, asked.why) == ("invalid_edit", "cents is no number")
    await reply.send(names.DENY, call_id="a")
    assert (await reply.result()).text == "This call was denied and did not run."
    assert reply.approvals.refused_edits == 0


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (RunAgent(call_id="a", agent="payer", approval="it asks"), "The tool could not be run: it is down"),
        (UseResult(call_id="a", result=result(), approval="it asks"), "The tool could not be run: it is down"),
        (AwaitAnswer(call_id="a", approval="it asks"), "The tool could not be run: it is down"),
        (
            RunHandoff(call_id="a", successor=Successor(agent="payer"), approval="it asks"),
            "The tool could not be run: it is down",
        ),
    ],
    ids=["agent", "result", "await", "handoff"],
)
async def test_the_model_is_told_if_an_edit_could_not_be_checked(
    plan: PlannedCall, text: str, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan])
    await reply.send(names.APPROVE, call_id="a", arguments={"cents": 1})
    await (await reply.sdk.scheduled(names.CHECK_CALL)).fail(failed("Down", "it is down"))
    assert (await reply.result()).text == text


async def test_a_result_that_a_hook_gave_is_given_after_its_approval(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[UseResult(call_id="a", result=result(), approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", by="ann")
    approved = await reply.result()
    assert (approved.text, approved.decision and approved.decision.by) == ("paid", "ann")


async def test_a_result_that_a_hook_gave_is_not_given_if_it_is_denied(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[UseResult(call_id="a", result=result(), approval="it asks")])
    await reply.send(names.DENY, call_id="a")
    assert (await reply.result()).text == "This call was denied and did not run."


async def test_a_hook_gives_its_result_for_other_arguments_anew(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[UseResult(call_id="a", result=result(), approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments={"cents": 4})
    check = await reply.sdk.scheduled(names.CHECK_CALL)
    assert check.input.given
    await check.finish(CheckedCall(result=result(text="paid 4"), run_id="run"))
    assert (await reply.result()).text.endswith("paid 4")


# ---------------------------------------------------------------- calls that run outside


async def test_a_call_that_runs_outside_waits_for_its_approval_and_then_for_its_answer(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[AwaitAnswer(call_id="a", why="it runs outside", approval="it asks")])
    assert not reply.state.pending["a"].is_outside
    await reply.send(names.APPROVE, call_id="a", by="ann")
    assert reply.state.pending["a"].needs == "answer"
    await reply.send(names.ANSWER, call_id="a", content="paid outside", by="bob")
    answered = await reply.result()
    assert answered.text == "paid outside"
    assert answered.decision
    assert (answered.decision.verdict, answered.decision.by) == ("approve", "ann")


async def test_whoever_has_begun_a_call_may_answer_it_though_a_rule_asks_for_its_approval_since(
    reply: ReplyParts,
) -> None:
    await reply.begin(PAY, plan=[AwaitAnswer(call_id="a")])
    await reply.send(names.SET_POLICY, rules=[{"tool": "pay", "then": "ask"}])
    await reply.send(names.ANSWER, call_id="a", content="paid outside")
    assert (await reply.result()).text == "paid outside"


async def test_an_edit_of_a_call_that_runs_outside_is_checked_before_it_is_let_out(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[AwaitAnswer(call_id="a", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments={"cents": "4"}, by="ann")
    await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(arguments={"cents": 4}, run_id="run"))
    pending = reply.state.pending["a"]
    assert (pending.needs, pending.call.arguments) == ("answer", {"cents": 4})
    await reply.send(names.ANSWER, call_id="a", content="paid outside")
    answered = await reply.result()
    assert answered.decision
    assert (answered.decision.by, answered.decision.arguments) == ("ann", {"cents": 4})


async def test_a_rule_that_came_while_an_edit_was_checked_denies_the_call(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[AwaitAnswer(call_id="a", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments={"cents": 4})
    check = await reply.sdk.scheduled(names.CHECK_CALL)
    reply.state.policy = (Rule(tool="pay", then="deny", by="eve"),)
    await check.finish(CheckedCall(arguments={"cents": 4}, run_id="run"))
    denied = await reply.result()
    assert denied.text.startswith("This call was denied by the policy of eve.")


async def test_a_call_that_was_let_out_and_is_denied_may_have_run(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[AwaitAnswer(call_id="a")])
    await reply.send(names.DENY, call_id="a")
    assert (await reply.result()).text == "This call was denied. Its client had it already, and may have run it."


# ---------------------------------------------------------------- after a run


@pytest.mark.parametrize(("effect", "again"), [("once", False), ("once", True), ("idempotent", False)])
async def test_whether_a_lost_call_runs_again_is_for_a_person_if_it_is_to_run_once(
    effect: Any, *, again: bool, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", effect=effect)])
    await (await reply.sdk.scheduled("pay")).fail(lost())
    if effect == "idempotent":
        assert (await reply.result()).text.endswith("It may or may not have taken effect.")
        return
    assert (reply.ledger.running, reply.approvals.refused_edits) == (set(), 0)
    assert reply.state.pending["a"].is_doubtful
    await reply.send(names.APPROVE if again else names.DENY, call_id="a")
    if not again:
        assert (await reply.result()).text.startswith("The outcome of this call is unknown: it was started")
        return
    scheduled = await reply.sdk.scheduled("pay")
    assert scheduled.input.again
    await scheduled.finish(result())
    assert (await reply.result()).text == "paid"


async def test_a_call_that_runs_again_is_the_same_after_a_reset(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", effect="once")])
    reply.ledger.chain.reset_run = "reset"
    await (await reply.sdk.scheduled("pay")).fail(lost())
    reply.ledger.chain.id = "another"
    await reply.send(names.APPROVE, call_id="a")
    sent = (await reply.sdk.scheduled("pay")).input
    assert (sent.chain_id, sent.reset_run) == ("run", "reset")


async def test_only_a_call_that_runs_once_is_told_of_a_reset(reply: ReplyParts) -> None:
    reply.ledger.chain.reset_run = "reset"
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    sent = (await reply.sdk.scheduled("pay")).input
    assert (sent.reset_run, sent.once) == ("", False)


@pytest.mark.parametrize("verdict", [names.ANSWER, names.DENY])
async def test_a_tool_that_asks_runs_again_with_what_a_person_says(verdict: str, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", by="ann", note="n" * 5_000)
    await (await reply.sdk.scheduled("pay")).fail(failed(names.ASKS, "Which account?", left={"step": 2}))
    pending = reply.state.pending["a"]
    assert (pending.asked.reason, pending.asked.why) == ("tool_asks", "Which account?")
    more: dict[str, Any] = {"content": "the second"} if verdict == names.ANSWER else {}
    await reply.send(verdict, call_id="a", by="bob", **more)
    sent = (await reply.sdk.scheduled("pay")).input
    assert (sent.answer.action, sent.answer.text, sent.answer.by, sent.answer.left) == (
        "accept" if more else "decline",
        "the second" if more else "",
        "bob",
        {"step": 2},
    )
    assert sent.decision.by == "ann"
    assert len(sent.decision.note) < 5_000, "beside the answer there is no room for it"


async def test_a_tool_that_asks_does_not_run_again_once_its_conversation_is_closed(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    await (await reply.sdk.scheduled("pay")).fail(failed(names.ASKS, "Which account?", left={"step": 2}))
    await reply.send(names.CLOSE)
    assert (await reply.result()).text == "This call was denied and did not run. Reason: The conversation was closed."
    assert reply.sdk.open_activities == []


@pytest.mark.parametrize("other", ["x" * 200, "A"])
async def test_a_result_of_another_call_is_none(other: str, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    await (await reply.sdk.scheduled("pay")).finish(result(other))
    asked = reply.state.pending["a"].asked
    assert asked.reason == "outcome_unknown"
    assert asked.why.endswith(f"The result of pay belongs to another call, {other!r:.150}")
    assert reply.ledger.running == set()


async def test_the_model_is_told_that_a_call_which_was_handed_back_may_have_run(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    await (await reply.sdk.scheduled("pay")).fail(failed(names.NOT_HOSTED, "nobody has it", lost=True))
    assert reply.ledger.lost == {"a"}
    again = await reply.sdk.scheduled("pay")
    assert again.input.hand_back_for is not None
    await again.fail(failed("Down", "it is down."))
    assert (await reply.result()).text == "The tool could not be run: it is down. It may or may not have taken effect."


async def test_the_model_is_not_told_so_of_a_call_that_was_only_handed_back(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    await (await reply.sdk.scheduled("pay")).fail(failed(names.NOT_HOSTED, "nobody has it"))
    assert reply.ledger.lost == set()
    await (await reply.sdk.scheduled("pay")).fail(failed("Down", "it is down."))
    assert (await reply.result()).text == "The tool could not be run: it is down."


# ---------------------------------------------------------------- local activities


@pytest.mark.parametrize(
    ("error", "hurried", "pause"),
    [
        (failed(names.NOT_HOSTED), False, None),
        (lost(TimeoutType.SCHEDULE_TO_CLOSE), True, None),
        (activity_error(ApplicationError("later", next_retry_delay=timedelta(seconds=7))), True, 7.0),
        (activity_error(ApplicationError("later", next_retry_delay=timedelta(seconds=7))), False, "raised"),
        (failed(names.NOT_HOSTED), True, None),
    ],
    ids=["not hosted", "too slow", "asks for a while", "its own tries are over", "hurried and not hosted"],
)
async def test_a_local_call_goes_to_the_queue_if_only_that_can_run_it(
    error: Exception, *, hurried: bool, pause: float | str | None, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", local=True, hurried=hurried)])
    local = await reply.sdk.scheduled("pay")
    assert local.local
    await local.fail(error)
    if pause == "raised":
        assert (await reply.result()).is_error
        return
    if pause:
        assert await reply.sdk.fire("pay asked for it") == pause
    else:
        assert reply.sdk.timers == []
    queued = await reply.sdk.scheduled("pay")
    assert (queued.local, queued.input.hand_back_for) == (False, None)
    await queued.finish(result())
    assert (await reply.result()).text == "paid"


async def test_a_local_call_that_was_handed_back_is_only_for_the_queue(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", local=True)])
    for _ in range(2):
        await (await reply.sdk.scheduled("pay")).fail(failed(names.NOT_HOSTED))
    assert [activity.local for activity in reply.sdk.activities] == [True, False, False]


@pytest.mark.parametrize("local", [True, False])
async def test_local_calls_share_what_a_workflow_task_can_carry(*, local: bool, reply: ReplyParts) -> None:
    calls = [ToolCall(call_id=call_id, name="pay") for call_id in "abcdef"]
    await reply.begin(*calls, plan=[RunTool(call_id=call_id, local=local) for call_id in "abcdef"])
    first, *_ = reply.sdk.activities
    assert (first.input.room is not None) is local


@pytest.mark.parametrize(("left", "told"), [(MAX_RESULT_BYTES + 100_000, False), (MAX_RESULT_BYTES, True)])
async def test_a_tool_is_told_its_room_if_there_is_less_than_for_any_result(
    left: int, *, told: bool, reply: ReplyParts
) -> None:
    reply.sdk.size = RUN_BYTES - left
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    assert ((await reply.sdk.scheduled("pay")).input.room is not None) is told


# ---------------------------------------------------------------- rules that come while a call waits for its place


def two(limit: int = 1) -> Limits:
    return Limits(max_parallel_calls=limit)


OTHER = ToolCall(call_id="b", name="look")


@pytest.mark.parametrize("plan", [RunTool(call_id="a"), RunAgent(call_id="a", agent="payer")], ids=["tool", "agent"])
@pytest.mark.parametrize(
    ("rules", "denied"),
    [
        ((Rule(tool="pay", then="deny", by="eve", reason="no money"),), True),
        ((Rule(tool="pay", then="ask"),), False),
        ((Rule(tool="look", then="deny"),), False),
        ((Rule(tool="pay", then="deny", agent="another"),), False),
        ((Rule(tool="pay", then="deny", where={"cents": Condition(above=5)}),), False),
        ((), False),
    ],
)
async def test_a_rule_denies_a_call_that_waits_for_its_place(
    plan: PlannedCall, rules: tuple[Rule, ...], *, denied: bool, fake_sdk: FakeSdk
) -> None:
    reply = ReplyParts(fake_sdk, limits=two())
    await reply.begin(OTHER, PAY, plan=[RunTool(call_id="b"), plan])
    reply.state.policy = rules
    await (await fake_sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    if not denied:
        assert len(fake_sdk.open_activities) + len(fake_sdk.children) == 1
        assert fake_sdk.markers == []
        return
    _, told = await reply.results()
    assert told.text == "This call was denied by the policy of eve and did not run. Reason: no money"
    assert fake_sdk.markers == [f"{DENIED_SINCE}a"]
    assert fake_sdk.children == []


async def test_in_a_history_without_the_marker_such_a_rule_denies_nothing(fake_sdk: FakeSdk) -> None:
    fake_sdk.patches = set()
    reply = ReplyParts(fake_sdk, limits=two())
    await reply.begin(OTHER, PAY, plan=[RunTool(call_id="b"), RunTool(call_id="a")])
    reply.state.policy = (Rule(tool="pay", then="deny"),)
    await (await fake_sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    assert (await fake_sdk.scheduled("pay")).input.call_id == "a"


@pytest.mark.parametrize(("edit", "denied"), [({"cents": 4}, True), (None, False)])
async def test_such_a_rule_is_about_the_arguments_that_were_approved(
    edit: dict[str, Any] | None, *, denied: bool, fake_sdk: FakeSdk
) -> None:
    reply = ReplyParts(fake_sdk, limits=two())
    await reply.begin(OTHER, PAY, plan=[RunTool(call_id="b"), RunTool(call_id="a", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments=edit)
    reply.state.policy = (Rule(tool="pay", then="deny", where={"cents": Condition(below=5)}),)
    await (await fake_sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    assert (fake_sdk.open_activities == []) is denied


@pytest.mark.parametrize("refusal", ["", "only bosses"])
async def test_such_a_rule_counts_only_if_whoever_made_it_may_decide(refusal: str, fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, limits=two())
    await reply.begin(OTHER, PAY, plan=[RunTool(call_id="b"), RunTool(call_id="a", policy=True)])
    reply.state.policy = (Rule(tool="pay", then="deny", by="eve"),)
    await (await fake_sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    check = await fake_sdk.scheduled(names.CHECK_DECISION)
    assert (check.input.decision.by, check.input.decision.verdict, check.input.call) == ("eve", "deny", PAY)
    assert check.summary == "may eve decide?"
    await check.finish(refusal)
    assert [activity.name for activity in fake_sdk.open_activities] == (["pay"] if refusal else []), "asked once"


async def test_a_call_that_a_person_let_run_again_is_denied_by_no_new_rule(fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, limits=two())
    await reply.begin(PAY, OTHER, plan=[RunTool(call_id="a", effect="once"), RunTool(call_id="b")])
    await (await fake_sdk.scheduled("pay")).fail(lost())
    await reply.send(names.APPROVE, call_id="a")
    reply.state.policy = (Rule(tool="pay", then="deny"),)
    await (await fake_sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    assert (await fake_sdk.scheduled("pay")).input.again


@pytest.mark.parametrize("plan", [RunTool(call_id="a"), RunAgent(call_id="a", agent="payer")], ids=["tool", "agent"])
async def test_a_call_that_waits_for_its_place_does_not_begin_once_its_conversation_is_closed(
    plan: PlannedCall, fake_sdk: FakeSdk
) -> None:
    reply = ReplyParts(fake_sdk, limits=two())
    await reply.begin(OTHER, PAY, plan=[RunTool(call_id="b"), plan])
    await reply.send(names.CLOSE)
    await (await fake_sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    _, told = await reply.results()
    assert told.text == "This call was cut short: the conversation was closed."
    assert (fake_sdk.open_activities, fake_sdk.children) == ([], [])


# ---------------------------------------------------------------- who may decide


async def test_a_decision_counts_once_the_agents_policy_allows_it(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks", policy=True)])
    await reply.send(names.APPROVE, call_id="a", by="ann")
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).finish("only bosses")
    asked = reply.state.pending["a"].asked
    assert (asked.reason, asked.refused) == ("not_allowed", " (ann may not decide: only bosses)")
    await reply.send(names.APPROVE, call_id="a", by="bob")
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).finish("")
    assert (await reply.sdk.scheduled("pay")).input.decision.by == "bob"


@pytest.mark.parametrize("policy", [True, False])
async def test_the_policy_is_asked_only_about_people(policy: bool, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks", policy=policy)])
    await reply.send(names.CLOSE if policy else names.DENY, **({} if policy else {"call_id": "a"}))
    assert (await reply.result()).text.startswith("This call was denied and did not run.")
    assert reply.sdk.activities == []


async def test_who_can_not_be_checked_may_not_decide(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks", policy=True)])
    await reply.send(names.APPROVE, call_id="a", by="ann")
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).fail(failed("Down", "it is down"))
    refused = reply.state.pending["a"].asked.refused
    assert refused == " (ann may not decide: the policy could not be checked: it is down)"
    await reply.send(names.APPROVE, call_id="a", by="ann")
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).finish(7)
    assert "The policy's decision can't be read" in reply.state.pending["a"].asked.refused


async def test_a_minimal_summary_does_not_say_who_decides(fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, visibility="minimal")
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks", policy=True)])
    await reply.send(names.APPROVE, call_id="a", by="ann")
    assert (await fake_sdk.scheduled(names.CHECK_DECISION)).summary == "may they decide?"


@pytest.mark.parametrize(("length", "whole"), [(40, True), (41, False)])
async def test_names_of_some_length_are_whole_in_summaries(length: int, *, whole: bool, reply: ReplyParts) -> None:
    name = "n" * length
    call = PAY.model_copy(update={"name": name})
    plan = RunActivity(call_id="a", activity="Pay", approval="it asks", policy=True, hooks_after=5.0)
    await reply.begin(call, plan=[plan])
    await reply.send(names.APPROVE, call_id="a", by=name, arguments={"cents": 4})
    check = await reply.sdk.scheduled(names.CHECK_DECISION)
    await check.finish("")
    edit = await reply.sdk.scheduled(names.CHECK_CALL)
    await edit.finish(CheckedCall(run_id="run"))
    await (await reply.sdk.scheduled("Pay")).finish("paid")
    hooks = await reply.sdk.scheduled(names.CHECK_RESULT)
    assert [name in (each.summary or "") for each in (check, edit, hooks)] == [whole] * 3


# ---------------------------------------------------------------- results that hooks see


@pytest.mark.parametrize(
    "plan",
    [
        RunAgent(call_id="a", agent="payer", hooks_after=5.0),
        RunActivity(call_id="a", activity="Pay", hooks_after=5.0),
        AwaitAnswer(call_id="a", hooks_after=5.0),
        RunTool(call_id="a", approval="it asks", hooks_after=5.0),
    ],
    ids=lambda plan: plan.kind,
)
async def test_hooks_see_a_result_that_no_tool_on_a_worker_gave(plan: PlannedCall, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[plan])
    match plan:
        case RunAgent():
            await reply.sdk.children[0].finish(Outcome(status="completed", text="secret"))
        case RunActivity():
            await (await reply.sdk.scheduled("Pay")).finish("secret")
        case _:
            await reply.send(names.ANSWER, call_id="a", content="secret")
    check = await reply.sdk.scheduled(names.CHECK_RESULT)
    assert (check.input.result.text, check.input.tool, check.input.arguments) == ("secret", "pay", {"cents": 5})
    assert check.input.room is None
    assert check.summary == "hooks see the result of pay"
    assert check.options["start_to_close_timeout"] == timedelta(seconds=35)
    assert "a" not in reply.ledger.recorded | reply.ledger.from_outputs, "hooks may change it"
    assert "a" in reply.ledger.running
    await check.finish(result(text="masked"))
    assert (await reply.result()).text == "masked"
    assert reply.ledger.in_events == ("a",)


async def test_hooks_do_not_see_again_what_a_tool_on_a_worker_gave(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", hooks_after=5.0)])
    await (await reply.sdk.scheduled("pay")).finish(result())
    assert (await reply.result()).text == "paid"


async def test_hooks_see_a_result_beside_the_arguments_that_were_approved(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunAgent(call_id="a", agent="payer", approval="it asks", hooks_after=5.0)])
    await reply.send(names.APPROVE, call_id="a", arguments={"message": "4"})
    await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(arguments={"message": "4"}, run_id="run"))
    await reply.sdk.children[0].finish(Outcome(status="completed", text="secret"))
    assert (await reply.sdk.scheduled(names.CHECK_RESULT)).input.arguments == {"message": "4"}


@pytest.mark.parametrize("ends", ["failed", "unreadable"])
async def test_a_result_that_hooks_could_not_see_is_withheld(ends: str, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunAgent(call_id="a", agent="payer", hooks_after=5.0)])
    await reply.sdk.children[0].finish(Outcome(status="completed", text="secret"))
    check = await reply.sdk.scheduled(names.CHECK_RESULT)
    if ends == "failed":
        await check.fail(failed("Down", "it is down"))
    else:
        await check.finish(7)
    withheld = await reply.result()
    assert withheld.is_error
    assert withheld.text.startswith("pay has a result. It is withheld because the agent's hooks could not check it: ")
    assert reply.ledger.in_events == ()


@pytest.mark.parametrize(("beside", "withheld"), [(0, False), (1, True)])
async def test_a_result_that_is_too_large_for_hooks_to_see_is_withheld(
    beside: int, *, withheld: bool, reply: ReplyParts
) -> None:
    async def answer(call: ToolCall) -> None:
        await reply.begin(call, plan=[AwaitAnswer(call_id="a", hooks_after=5.0)])
        await reply.send(names.ANSWER, call_id="a", content="secret")

    await answer(PAY.model_copy(update={"arguments": {"text": ""}}))
    check = await reply.sdk.scheduled(names.CHECK_RESULT)
    await check.finish(result())
    room = MAX_PAYLOAD_BYTES - size_of(check.input)
    reply.sdk.length += 1  # another workflow task
    await answer(PAY.model_copy(update={"arguments": {"text": "x" * (room + beside)}}))
    if withheld:
        problem = "the call and its result have 2,000,001 bytes; the limit is 2,000,000"
        assert (await reply.result()).text.endswith(problem)
    else:
        await reply.sdk.begin_task()
        assert await reply.sdk.scheduled(names.CHECK_RESULT)


# ---------------------------------------------------------------- handoffs


@pytest.mark.parametrize(("most", "over"), [(0, False), (1, True), (None, True)])
async def test_a_handoff_counts_against_its_limit(most: int | None, *, over: bool, fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, limits=Limits(max_handoffs=most))
    await reply.begin(PAY, plan=[RunHandoff(call_id="a", successor=Successor(agent="payer"))])
    assert ((await reply.result()).successor is not None) is over


async def test_a_handoff_says_what_a_person_puts_in(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunHandoff(call_id="a", successor=Successor(agent="payer"), approval="it asks")])
    await reply.send(names.APPROVE, call_id="a", arguments={"message": "Be kind."})
    check = await reply.sdk.scheduled(names.CHECK_CALL)
    await check.finish(CheckedCall(arguments={"message": "Be kind."}, run_id="run"))
    handed = await reply.result()
    assert "The agent before you says: Be kind." in handed.text
    assert handed.decision


# ---------------------------------------------------------------- between runs


async def test_only_when_every_open_call_waits_for_a_person_may_a_run_end(reply: ReplyParts) -> None:
    assert not reply.open_calls.only_wait
    await reply.begin(PAY, OTHER, plan=[RunTool(call_id="a", approval="it asks"), RunTool(call_id="b")])
    assert not reply.open_calls.only_wait
    await (await reply.sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    assert reply.open_calls.only_wait
    await reply.send(names.APPROVE, call_id="a")
    assert not reply.open_calls.only_wait


async def test_what_the_next_run_is_handed_of_calls_that_wait(reply: ReplyParts) -> None:
    reply.state.limit = "the limit of 3 turns"
    await reply.begin(PAY, OTHER, plan=[RunTool(call_id="a", effect="once"), RunTool(call_id="b")])
    await (await reply.sdk.scheduled("look")).finish(ToolResult(call_id="b", name="look"))
    await (await reply.sdk.scheduled("pay")).fail(lost())
    handed = reply.open_calls.handed_on()
    assert (handed.calls, handed.told, handed.limit) == ((PAY, OTHER), ("b",), "the limit of 3 turns")
    assert [(each.call_id, each.chain_id) for each in handed.waits] == [("a", "run")]
    assert [plan.call_id for plan in handed.plan] == ["a"]
    assert [each.call_id for each in handed.results] == ["b"]


async def test_a_cancelled_call_is_cut_short_and_may_have_taken_effect(reply: ReplyParts) -> None:
    await reply.begin(PAY, OTHER, plan=[RunTool(call_id="a", approval="it asks"), RunTool(call_id="b")])
    await reply.send(names.CANCEL_TURN, by="ann")
    assert all(activity.cancelled for activity in reply.sdk.activities)
    first, second = reply.open_calls.close_reply("enough")
    assert first.text == "This call was cut short: enough."
    assert second.text == "This call was cut short: enough. It was running: it may or may not have taken effect."


async def test_an_activity_that_somebody_cancelled_ends_the_turn(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    await (await reply.sdk.scheduled("pay")).fail(activity_error(Cancelled("by hand")))
    with pytest.raises(Exception, match="it failed"):
        await reply.results()
    assert reply.ledger.running == {"a"}


# ---------------------------------------------------------------- what comes together with `cancel_turn`


MAY_HAVE_RUN = "This call was cut short: enough. It was running: it may or may not have taken effect."


@pytest.mark.parametrize(
    "plan",
    [RunAgent(call_id="a", agent="payer", hooks_after=5.0), RunActivity(call_id="a", activity="Pay", hooks_after=5.0)],
    ids=lambda plan: plan.kind,
)
async def test_a_result_that_comes_together_with_a_cancellation_is_shown_to_no_hooks(
    plan: PlannedCall, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan])
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    if isinstance(plan, RunAgent):
        await reply.sdk.children[0].finish(Outcome(status="completed", text="secret"))
    else:
        await reply.sdk.activities[0].finish("secret")
    assert reply.sdk.open_activities == []
    assert reply.ledger.recorded | reply.ledger.from_outputs == set(), "the model is told something else"
    (cut_short,) = reply.open_calls.close_reply("enough")
    assert cut_short.text == MAY_HAVE_RUN


@pytest.mark.parametrize(
    "plan",
    [
        RunTool(call_id="a", effect="once"),
        RunActivity(call_id="a", activity="pay", effect="once"),
        RunAgent(call_id="a", agent="payer"),
    ],
    ids=lambda plan: plan.kind,
)
async def test_nobody_is_asked_about_what_can_not_be_read_and_comes_together_with_a_cancellation(
    plan: PlannedCall, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan])
    if isinstance(plan, RunActivity):
        await (await reply.sdk.scheduled(names.CHECK_CALL)).finish(CheckedCall(arguments={"cents": 5}, run_id="run"))
    runs = reply.sdk.children[0] if isinstance(plan, RunAgent) else await reply.sdk.scheduled("pay")
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    await runs.finish_unreadably()
    assert reply.state.pending == {}
    (cut_short,) = reply.open_calls.close_reply("enough")
    assert cut_short.text == MAY_HAVE_RUN


async def test_nobody_decides_after_a_cancellation_that_comes_together_with_an_unreadable_check(
    reply: ReplyParts,
) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a", approval="it asks", policy=True)])
    await reply.send(names.APPROVE, call_id="a", by="ann")
    check = await reply.sdk.scheduled(names.CHECK_DECISION)
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    await check.finish_unreadably()
    assert reply.state.pending == {}
    (cut_short,) = reply.open_calls.close_reply("enough")
    assert cut_short.text == "This call was cut short: enough."
