"""Calls that wait for a person: who decides on them, until when, what a decision that is refused says, and which
decisions may come early."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.calls.decision_records import VERDICTS
from everturn.carryover import CarryOver, OpenReply, QuestionToPerson
from everturn.payloads import AskedAgent
from everturn.plans import AwaitAnswer, Expiry, Review, RunHandoff, RunTool
from everturn.policy import Rule
from everturn.records import Decision, Document, Successor, Text, ToolCall, ToolResult
from everturn.workflows.applied_decisions import AppliedDecision
from everturn.workflows.approvals import MOST_DECISIONS_KEPT
from tests.support.activity_errors import activity_error
from tests.support.fake_sdk import FakeSdk, ReplyParts, settle

PAY = ToolCall(call_id="a", name="pay", arguments={"cents": 5})
LOOK = ToolCall(call_id="b", name="look")


def asks(call_id: str = "a", **changes: Any) -> RunTool:
    return RunTool(**{"call_id": call_id, "approval": "it asks", **changes})


def outside(call_id: str = "b", **changes: Any) -> AwaitAnswer:
    return AwaitAnswer(call_id=call_id, why="it runs outside", **changes)


def open_reply(*waits: QuestionToPerson, results: tuple[ToolResult, ...] = (), refused_edits: int = 0) -> OpenReply:
    return OpenReply.model_construct(
        calls=(PAY, LOOK),
        plan=(asks(expiry=Expiry(after=50.0)), asks("b"))[: len(waits)],
        waits=waits,
        results=results,
        refused_edits=refused_edits,
    )


def carried(*waits: QuestionToPerson, **facts: Any) -> CarryOver:
    return CarryOver(owed=True, open=open_reply(*waits, **facts))


WAITS = QuestionToPerson(call_id="a", reason="needs_approval", why="it asks", since=980.0)


def problem(reply: ReplyParts, verdict: str, **payload: Any) -> str:
    """Why an update with that decision is refused; empty if it is taken."""
    if verdict == names.ANSWER:
        payload = {"content": "", **payload}
    try:
        reply.commands.handlers.check_update(verdict, (payload,))
    except ApplicationError as error:
        return error.message
    return ""


# ---------------------------------------------------------------- what a person is told


async def test_who_decides_on_nothing_is_told_where_to_look(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    none_waits = "No call waits for a decision now. `everturn show talk` shows the state."
    for verdict in VERDICTS:
        assert problem(reply, verdict, call_id=names.EVERY_CALL) == none_waits
        assert problem(reply, verdict, call_id="z") == f"No call 'z' waits. {none_waits}"


async def test_who_decides_on_another_call_is_told_which_ones_wait(reply: ReplyParts) -> None:
    await reply.begin(PAY, LOOK, plan=[asks(), outside()])
    for verdict in VERDICTS:
        assert problem(reply, verdict, call_id="z") == "No call 'z' waits; these do: 'a', 'b'."
        assert problem(reply, verdict, call_id=names.EVERY_CALL) == ""


@pytest.mark.parametrize(
    ("plan", "verdict", "words"),
    [
        (asks(), names.APPROVE, ""),
        (asks(), names.DENY, ""),
        (asks(), names.ANSWER, ""),
        (outside("a"), names.ANSWER, ""),
        (outside("a"), names.DENY, ""),
        (outside("a"), names.APPROVE, "Call 'a' (pay) runs outside: answer or deny it."),
        (
            outside("a", approval="it asks"),
            names.ANSWER,
            "Call 'a' (pay) waits for an approval: approve or deny it. Once it is approved, it can be answered.",
        ),
    ],
)
async def test_who_decides_what_a_call_does_not_wait_for_is_told_what_it_does(
    plan: Any, verdict: str, words: str, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan])
    assert problem(reply, verdict, call_id="a") == words


async def test_the_question_of_a_tool_can_not_be_approved(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[RunTool(call_id="a")])
    asked = ApplicationError("Which?", {"left": {}}, type=names.ASKS)
    await (await reply.sdk.scheduled("pay")).fail(activity_error(asked))
    assert problem(reply, names.APPROVE, call_id="a") == "Call 'a' (pay) asks a question: answer or deny it."


@pytest.mark.parametrize(
    ("plan", "verdict", "words"),
    [
        (outside("a"), names.APPROVE, "No call waits for an approval. These wait for an answer: 'a'."),
        (
            outside("a", approval="it asks"),
            names.ANSWER,
            "No call waits for an answer. These wait for an approval: 'a'.",
        ),
    ],
)
async def test_who_decides_on_all_is_told_what_they_wait_for(
    plan: Any, verdict: str, words: str, reply: ReplyParts
) -> None:
    await reply.begin(PAY, plan=[plan])
    assert problem(reply, verdict, call_id=names.EVERY_CALL) == words


@pytest.mark.parametrize("by", ["ann", ""])
async def test_a_second_decision_is_told_of_the_first(by: str, reply: ReplyParts) -> None:
    await reply.begin(PAY, LOOK, plan=[asks(), asks("b")])
    await reply.send(names.APPROVE, call_id="a", by=by)
    said_by = f" by {by}" if by else ""
    assert problem(reply, names.DENY, call_id="a") == (
        f"Call 'a' was already decided: approve{said_by} at 1970-01-01T00:16:40+00:00."
    )


@pytest.mark.parametrize(("by", "words"), [("ann", "decision by ann"), ("", "decision")])
async def test_a_decision_beside_one_that_is_being_checked_is_to_come_later(
    by: str, words: str, reply: ReplyParts
) -> None:
    await reply.begin(PAY, LOOK, plan=[asks(policy=True), asks("b")])
    await reply.send(names.APPROVE, call_id="a", by=by)
    checked = f"Call 'a': the {words} is being checked. Decide again in a moment."
    assert problem(reply, names.DENY, call_id="a") == checked
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).finish("not allowed")
    assert problem(reply, names.DENY, call_id="a") == ""
    await reply.send(names.APPROVE, call_id="a", by=by)
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).finish("")
    assert "was already decided" in problem(reply, names.DENY, call_id="a")


@pytest.mark.parametrize(("agents", "more"), [(0, None), (1, ""), (10, ""), (11, " and 1 more"), (13, " and 3 more")])
async def test_who_may_mean_a_call_of_a_sub_agent_is_told_where_it_waits(
    agents: int, more: str | None, reply: ReplyParts
) -> None:
    for number in range(agents):
        reply.agents.running[str(number)] = AskedAgent(call_id="c", agent="x", conversation_id=f"talk/{number}")
    for call_id in (names.EVERY_CALL, "z"):
        told = problem(reply, names.APPROVE, call_id=call_id)
        if more is None:
            assert told.endswith("shows the state.")
            continue
        ids = ", ".join(f"'talk/{number}'" for number in range(min(agents, 10)))
        assert told.endswith(f"state. A call of a sub-agent waits in its own conversation; at work are {ids}{more}.")


# ---------------------------------------------------------------- decisions


async def test_a_decision_on_all_reaches_those_that_it_can_be_made_on(reply: ReplyParts) -> None:
    await reply.begin(PAY, LOOK, plan=[asks(), outside()])
    assert reply.commands.handlers.take_update(names.APPROVE, ({"call_id": "*"},)) == {"call_ids": ("a",)}
    await settle()
    assert [*reply.state.pending] == ["b"]
    assert reply.commands.handlers.take_update(names.DENY, ({"call_id": "*"},)) == {"call_ids": ("b",)}


async def test_a_decision_for_always_decides_on_the_other_calls_of_the_tool(reply: ReplyParts) -> None:
    again = PAY.model_copy(update={"call_id": "c"})
    await reply.begin(PAY, LOOK, again, plan=[asks(), asks("b"), asks("c")])
    await reply.send(names.DENY, call_id="a", always=True, by="ann")
    assert [*reply.state.pending] == ["b"]
    assert reply.ledger.results["a"].text == "This call was denied by ann and did not run."
    assert reply.ledger.results["c"].text == "This call was denied by the policy of ann and did not run."


@pytest.mark.parametrize("then", ["approve", "deny", "ask"])
async def test_rules_that_change_decide_on_calls_that_wait(then: Any, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks()])
    await reply.send(names.SET_POLICY, rules=[{"tool": "pay", "then": then}])
    assert (reply.state.pending == {}) is (then != "ask")
    assert bool(reply.sdk.activities) is (then == "approve")


async def test_a_new_rule_denies_also_what_runs_outside_by_now(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[outside("a")])
    await reply.send(names.SET_POLICY, rules=[{"tool": "pay", "then": "deny"}], by="ann")
    assert (await reply.result()).text.startswith("This call was denied by the policy of ann. Its client had it")


async def test_a_call_for_which_only_a_rule_asked_runs_once_there_is_no_rule(reply: ReplyParts) -> None:
    reply.state.policy = (Rule(tool="pay", then="ask"),)
    await reply.begin(PAY, LOOK, plan=[RunTool(call_id="a", policy=True), asks("b")])
    await reply.send(names.SET_POLICY, rules=[])
    assert [*reply.state.pending] == ["b"]
    sent = (await reply.sdk.scheduled("pay")).input
    assert (sent.decision.verdict, sent.decision.at, sent.decision.by_policy) == (
        "approve",
        "1970-01-01T00:16:40+00:00",
        True,
    )


async def test_a_call_that_runs_outside_waits_for_an_approval_once_a_rule_asks(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[outside("a")])
    changes = reply.changes
    await reply.send(names.SET_POLICY, rules=[{"tool": "pay", "then": "ask", "reason": "pays"}])
    pending = reply.state.pending["a"]
    assert (pending.needs, pending.asked.why) == ("approval", "pays")
    assert reply.changes > changes
    assert problem(reply, names.ANSWER, call_id="a") == "", "its client had it already"
    await reply.send(names.APPROVE, call_id="a")
    assert reply.state.pending["a"].needs == "answer"
    await reply.send(names.ANSWER, call_id="a", content="paid")
    assert (await reply.result()).text == "paid"


@pytest.mark.parametrize("again", [False, True])
async def test_commands_of_one_task_follow_one_another_before_the_call_does(*, again: bool, reply: ReplyParts) -> None:
    """Approved, it waits for its answer at once; so a rule that comes next can still ask first, and an answer count."""
    await reply.begin(PAY, plan=[outside("a", approval="it asks")])
    take = reply.commands.handlers.take_signal
    take(names.APPROVE, ({"call_id": "a", "by": "ann"},))
    if again:
        take(names.DENY, ({"call_id": "a", "by": "bob"},))
    else:
        take(names.ANSWER, ({"call_id": "a", "content": "paid"},))
    await settle()
    answered = await reply.result()
    assert answered.text == (
        "This call was denied by bob. Its client had it already, and may have run it." if again else "paid"
    )


async def test_an_edit_of_a_call_that_runs_outside_does_not_let_it_out_at_once(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[outside("a", approval="it asks")])
    reply.commands.handlers.take_signal(names.APPROVE, ({"call_id": "a", "arguments": {"cents": 4}},))
    assert reply.state.pending == {}


async def test_rules_decide_on_a_call_as_it_begins_to_wait(reply: ReplyParts) -> None:
    reply.state.policy = (Rule(tool="pay", then="approve", by="ann"),)
    await reply.begin(PAY, plan=[asks()])
    decision = (await reply.sdk.scheduled("pay")).input.decision
    assert (decision.by, decision.by_policy, decision.at) == ("ann", True, "1970-01-01T00:16:40+00:00")


@pytest.mark.parametrize(("verdict", "ran"), [("approve", True), ("deny", False)])
async def test_a_reviewer_decides_in_peoples_place(verdict: Any, *, ran: bool, reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks(review=Review(verdict=verdict, by="model:m"))])
    assert bool(reply.sdk.activities) is ran
    assert reply.state.pending == {}


async def test_a_rule_that_came_before_the_call_was_let_out_may_deny_it_only_if_it_is_new(reply: ReplyParts) -> None:
    """What denied nothing when a person let the call out denies nothing now."""
    reply.state.policy = (Rule(tool="pay", then="deny", where={"cents": {"above": 10}}),)
    await reply.begin(PAY, plan=[outside("a", approval="it asks")])
    await reply.send(names.APPROVE, call_id="a")
    assert reply.state.pending["a"].needs == "answer"


async def test_all_calls_of_a_closed_conversation_are_denied_also_those_that_would_wait_later(
    reply: ReplyParts,
) -> None:
    await reply.begin(PAY, LOOK, plan=[asks(policy=True), RunTool(call_id="b", policy=True)])
    await reply.send(names.CLOSE, by="ann")
    denied = "This call was denied by ann and did not run. Reason: The conversation was closed."
    assert reply.ledger.results["a"].text == denied
    needs = ApplicationError("it needs one", type=names.NEEDS_APPROVAL)
    await (await reply.sdk.scheduled("look")).fail(activity_error(needs))
    assert [each.text for each in await reply.results()] == [denied, denied]


async def test_nobody_decides_on_calls_of_a_turn_that_was_cancelled(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks()])
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    assert reply.approvals.undecided == {}
    await settle()
    assert reply.state.pending == {}


@pytest.mark.parametrize("approval", ["it asks", None])
async def test_a_handoff_that_was_approved_before_its_turn_was_cancelled_is_carried_out(
    approval: str | None, reply: ReplyParts
) -> None:
    handoff = RunHandoff(call_id="a", successor=Successor(agent="payer"), approval="it asks", policy=approval is None)
    await reply.begin(PAY, plan=[handoff])
    take = reply.commands.handlers.take_signal
    take(names.APPROVE, ({"call_id": "a"},))
    take(names.CANCEL_TURN, ({},))
    await settle()
    assert ("a" in reply.ledger.results) is (approval is not None)


async def test_a_tool_that_was_approved_before_its_turn_was_cancelled_does_not_run(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks()])
    take = reply.commands.handlers.take_signal
    take(names.APPROVE, ({"call_id": "a"},))
    take(names.CANCEL_TURN, ({},))
    await settle()
    assert (reply.ledger.results, reply.sdk.activities) == ({}, [])


@pytest.mark.parametrize(("more", "known"), [(0, True), (1, False)])
async def test_as_many_decisions_are_remembered_as_a_reply_may_have_calls(
    more: int, *, known: bool, fake_sdk: FakeSdk
) -> None:
    decision = Decision(verdict="deny")
    ids = [f"c{number}" for number in range(MOST_DECISIONS_KEPT - 1 + more)]
    results = tuple(ToolResult.model_construct(call_id=each, decision=decision) for each in ids)
    reply = ReplyParts(fake_sdk, carry=carried(WAITS, results=results))
    assert "already decided" in problem(reply, names.DENY, call_id="c0")
    await reply.send(names.DENY, call_id="a")
    assert ("already decided" in problem(reply, names.DENY, call_id="c0")) is known
    assert "already decided" in problem(reply, names.DENY, call_id="c1")


# ---------------------------------------------------------------- what comes early


@pytest.mark.parametrize("verdict", [names.APPROVE, names.DENY])
async def test_a_decision_that_comes_together_with_its_reply_counts(verdict: str, reply: ReplyParts) -> None:
    reply.state.answering = True
    reply.commands.handlers.take_signal(verdict, ({"call_id": "a", "by": "ann"},))
    assert reply.approvals.decision_is_due
    await reply.begin(PAY, plan=[asks(expiry=Expiry(after=50.0))])
    assert bool(reply.sdk.activities) is (verdict == names.APPROVE)
    assert reply.sdk.timers == [], "nobody is waited for"


@pytest.mark.parametrize(
    ("call_id", "kept"), [("a", False), ("b", False), ("c", True), ("d", False), (names.EVERY_CALL, False)]
)
async def test_a_decision_is_kept_for_a_call_that_may_yet_wait(call_id: str, *, kept: bool, reply: ReplyParts) -> None:
    """Not for one that waits, that was decided, that is of no reply, or for all."""
    calls = [ToolCall(call_id=each, name="pay") for each in "abc"]
    await reply.begin(*calls, plan=[asks("a"), asks("b")])
    reply.ledger.results.clear()  # the third one has not begun
    await reply.send(names.DENY, call_id="b")
    assert reply.approvals.keep_early(call_id, lambda _: None) is kept


async def test_a_decision_beside_one_that_is_checked_waits_for_the_check(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks(policy=True)])
    await reply.send(names.APPROVE, call_id="a", by="ann")
    await reply.send(names.DENY, call_id="a", by="bob")
    reply.sdk.time += 5
    assert reply.approvals.decision_is_due
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).finish("not allowed")
    assert (await reply.sdk.scheduled(names.CHECK_DECISION)).input.decision.by == "bob"


async def test_a_decision_beside_one_that_was_allowed_is_too_late(
    reply: ReplyParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr("everturn.workflows.message_dispatch.workflow_log", lambda *_, why, **__: logged.append(why))
    await reply.begin(PAY, plan=[asks(policy=True)])
    await reply.send(names.APPROVE, call_id="a", by="ann")
    await reply.send(names.DENY, call_id="a", by="bob")
    await (await reply.sdk.scheduled(names.CHECK_DECISION)).finish("")
    assert logged == ["Call 'a' was not waiting for it."]
    assert not reply.approvals.decision_is_due


async def test_the_end_of_a_reply_forgets_what_was_said_early(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks(policy=True)])
    await reply.send(names.APPROVE, call_id="a")
    reply.approvals.keep_early("a", lambda _: None)
    reply.approvals.refused_edits = 3
    reply.open_calls.close_reply("enough")
    assert not reply.approvals.decision_is_due
    assert reply.approvals.refused_edits == 0
    assert "already decided" in problem(reply, names.DENY, call_id="a"), "and nothing is being checked"


# ---------------------------------------------------------------- expiry


async def test_a_call_that_nobody_decides_on_expires(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks(expiry=Expiry(after=50.0, remind_before=10.0), policy=True)])
    assert await reply.sdk.fire(f"{names.REMINDER}a") == 40.0
    assert "a" in reply.state.pending
    assert await reply.sdk.fire(f"{names.EXPIRY}a") == 10.0
    expired = await reply.result()
    assert expired.text == (
        f"This call was denied by {names.THE_CLOCK} and did not run. Reason: Nobody decided within 0:00:50."
    )
    assert expired.decision
    assert expired.decision.at == "1970-01-01T00:17:30+00:00"


async def test_a_call_that_expires_as_approved_runs(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks(expiry=Expiry(after=50.0, verdict="approve"), policy=True)])
    await reply.sdk.fire(f"{names.EXPIRY}a")
    assert (await reply.sdk.scheduled("pay")).input.decision.note == "Nobody decided within 0:00:50."


async def test_an_answer_that_does_not_come_in_time_is_an_error(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[outside("a", expiry=Expiry(after=50.0))])
    await reply.sdk.fire(f"{names.EXPIRY}a")
    expired = await reply.result()
    assert (expired.text, expired.is_error) == ("pay timed out: no answer came within 0:00:50.", True)


async def test_a_clock_stops_once_somebody_decides(reply: ReplyParts) -> None:
    await reply.begin(PAY, plan=[asks(expiry=Expiry(after=50.0))])
    await reply.send(names.APPROVE, call_id="a")
    assert [timer.fires.cancelled() for timer in reply.sdk.timers] == [True]


# ---------------------------------------------------------------- from run to run


async def test_a_decision_that_comes_before_the_next_run_takes_up_its_calls_counts(fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, carry=carried(WAITS, results=(ToolResult(call_id="b", name="look"),)))
    assert reply.approvals.find_carried("a") is not None
    reply.commands.handlers.take_signal(names.APPROVE, ({"call_id": "a", "by": "ann"},))
    await reply.go_on(plan=[asks(expiry=Expiry(after=50.0))])
    assert (await fake_sdk.scheduled("pay")).input.decision.by == "ann"
    assert (fake_sdk.timers, reply.approvals.find_carried("a")) == ([], None)


async def test_a_call_has_waited_since_the_run_before(fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, carry=carried(WAITS, results=(ToolResult(call_id="b", name="look"),)))
    await reply.go_on(plan=[asks(expiry=Expiry(after=50.0))])
    assert await fake_sdk.fire(f"{names.EXPIRY}a") == 30.0


async def test_a_call_that_expired_between_two_runs_expires_at_once(fake_sdk: FakeSdk) -> None:
    """Temporal takes no timer of 0 s."""
    late = WAITS.model_copy(update={"since": 900.0})
    reply = ReplyParts(fake_sdk, carry=carried(late, results=(ToolResult(call_id="b", name="look"),)))
    await reply.go_on(plan=[asks(expiry=Expiry(after=50.0))])
    assert reply.approvals.decision_is_due
    assert not reply.open_calls.only_wait
    assert await fake_sdk.fire(f"{names.EXPIRY}a") == 0.001


async def test_what_the_run_before_counted_and_decided_is_known(fake_sdk: FakeSdk) -> None:
    decided = ToolResult(call_id="b", name="look", decision=Decision(verdict="deny", by="eve", at="then"))
    reply = ReplyParts(fake_sdk, carry=carried(WAITS, results=(decided,), refused_edits=2))
    assert reply.approvals.refused_edits == 2
    assert problem(reply, names.DENY, call_id="b") == "Call 'b' was already decided: deny by eve at then."


async def test_a_reply_that_is_cut_short_before_it_was_taken_up_leaves_no_call_waiting(fake_sdk: FakeSdk) -> None:
    reply = ReplyParts(fake_sdk, carry=carried(WAITS))
    reply.open_calls.close_reply("enough")
    assert (reply.state.pending, reply.approvals.find_carried("a"), reply.approvals.undecided) == ({}, None, {})


# ---------------------------------------------------------------- the answer to a tool's question


@pytest.mark.parametrize(
    ("verdict", "is_error", "action", "text"),
    [
        ("answer", False, "accept", "one\ntwo"),
        ("answer", True, "cancel", "one\ntwo"),
        ("deny", False, "decline", ""),
        ("approve", False, "decline", ""),
    ],
)
def test_what_a_person_says_to_a_tools_question(verdict: Any, *, is_error: bool, action: str, text: str) -> None:
    content = (Text(text="one"), Document(data="AA==", media_type="application/pdf"), Text(text="two"))
    applied = AppliedDecision(Decision(verdict=verdict, by="b" * 9_000), content, is_error)
    for left in ({"step": 1}, None):
        answer = applied.as_answer_to(QuestionToPerson(call_id="a", left=left))
        assert (answer.action, answer.text, answer.left) == (action, text, left or {})
        assert len(answer.by) < 9_000
