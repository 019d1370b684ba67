"""A conversation and whoever reads its history come to the same, in whatever order things come within one workflow
task: the orders that once differed, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from everturn import names
from everturn.payloads import ModelReply, Start
from everturn.plans import AwaitAnswer, CheckedCall, Expiry, PlannedCall, RunActivity, RunHandoff, RunTool, UseResult
from everturn.policy import Rule
from everturn.records import Decision, Message, Successor, Text, ToolCall, ToolResult, results_in
from tests.support.played_history import Arrival, BroughtEvent, PlayedHistory, SentCommand, signal, update
from tests.support.played_runs import RUN_ID
from tests.support.played_worlds import ACTIVITY, PlayedWorld, result_of_hook, show_command

BY_BOTH_WAYS = pytest.mark.parametrize("send", [signal, update])

DENY_ALL = Rule(tool="*", then="deny")
ASK_FIRST = RunTool(call_id="c1", approval="it asks")
RUN_OUTSIDE = AwaitAnswer(call_id="c1")
THEIRS = RunActivity(call_id="c1", activity=ACTIVITY, effect="once")
HAND_OVER = RunHandoff(call_id="c1", approval="it asks", successor=Successor(agent="boss"))
GIVEN = UseResult(call_id="c1", approval="it asks", result=result_of_hook("c1", "a"))

SEEDS = range(100)
"""So many as can be played in some seconds."""


# ---------------------------------------------------------------- the steps of a test


def begin(**fields: Any) -> PlayedHistory:
    """The model is asked."""
    history = PlayedHistory(Start(**{"agent": "clerk", "message": "Hello", "keep_open": 600.0} | fields))
    take(history)
    return history


def begin_calls(*plans: PlannedCall, **fields: Any) -> PlayedHistory:
    """The model has called the tools a, b ... with these plans."""
    history = begin(**fields)
    take(history, reply_with(history, *plans))
    return history


def reply_with(history: PlayedHistory, *plans: PlannedCall) -> BroughtEvent:
    calls = [
        ToolCall(call_id=plan.call_id, name=tool, arguments={"n": 1}) for plan, tool in zip(plans, "ab", strict=False)
    ]
    message = Message(role="assistant", parts=tuple(calls))
    return history.find_activity(names.CALL_MODEL).completed(ModelReply(message=message, plan=plans, digest="d1"))


def take(history: PlayedHistory, *arrivals: Arrival) -> None:
    """One workflow task, after which both agree."""
    history.take_task(*arrivals)
    assert history.find_differences() == {}
    if history.outcome is None:
        assert history.find_transcript_differences() == []


def end(history: PlayedHistory, activity_type: str, result: Any) -> BroughtEvent:
    return history.find_activity(activity_type).completed(result)


def check(history: PlayedHistory, call_id: str = "c1", **checked: Any) -> BroughtEvent:
    """A worker has looked at the call."""
    checks = [activity for activity in history.activities if activity.activity_type == names.CHECK_CALL]
    (activity,) = (activity for activity in checks if activity.input["call_id"] == call_id)
    return activity.completed(CheckedCall(run_id=RUN_ID, **checked))


def ran(call_id: str, tool: str) -> ToolResult:
    return ToolResult(call_id=call_id, name=tool, content=(Text(text=f"{tool} ran"),))


def results(history: PlayedHistory) -> dict[str, str]:
    """What the model is told of the calls: both agree on which ones, and the workflow knows the words."""
    texts = {
        result.call_id: result.text for message in history.state.unseen.messages for result in message.tool_results
    }
    read = history.by_history.state.unseen.messages
    assert [result.call_id for message in read for result in message.tool_results] == [*texts]
    return texts


def waits(history: PlayedHistory) -> list[tuple[str, str]]:
    """The calls that wait, and what for."""
    return [(call_id, pending.needs) for call_id, pending in history.state.pending.items()]


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("policy", "refusal", "text"),
    [
        (False, "", "denied by the policy of bob"),
        (True, "", "denied by the policy of bob"),
        (True, "not bob", "hook gave"),
    ],
    ids=["no approvers", "approvers allow it", "approvers refuse it"],
)
def test_a_rule_that_denies_goes_before_a_result_that_a_hook_gives_meanwhile(
    refusal: str, text: str, *, policy: bool
) -> None:
    history = begin_calls(THEIRS.model_copy(update={"policy": policy}))
    take(history, signal(names.SET_POLICY, rules=[{"tool": "*", "then": "deny"}], by="bob"))
    take(history, signal(names.PAUSE, by="ann"))  # else the next turn's request says what the results are
    take(history, check(history, result=result_of_hook("c1", "a")))
    if policy:
        take(history, end(history, names.CHECK_DECISION, refusal))
    assert text in results(history)["c1"]


@BY_BOTH_WAYS
@pytest.mark.parametrize("in_one_task", [False, True], ids=["before the check", "with the check"])
@pytest.mark.parametrize(
    ("command", "refusal", "text"),
    [
        ({"name": names.SET_POLICY, "rules": [{"tool": "*", "then": "deny"}]}, "", "denied by the policy of bob"),
        ({"name": names.SET_POLICY, "rules": [{"tool": "*", "then": "deny"}]}, "not bob", ""),
        ({"name": names.CLOSE}, None, "the conversation was closed"),
    ],
    ids=["denied", "denied by nobody", "closed"],
)
@pytest.mark.parametrize(
    ("plan", "approved_text"), [(HAND_OVER, "handed over"), (GIVEN, "hook gave")], ids=["handoff", "given"]
)
def test_what_no_activity_runs_is_stopped_while_approvers_look_at_its_approval(
    plan: PlannedCall,
    approved_text: str,
    command: dict[str, Any],
    refusal: str | None,
    text: str,
    send: Callable[..., SentCommand],
    *,
    in_one_task: bool,
) -> None:
    history = begin_calls(plan.model_copy(update={"policy": True}))
    take(history, update(names.APPROVE, call_id="c1", by="ann"), signal(names.MESSAGE, text="More."))
    sent = send(command["name"], by="bob", **{name: value for name, value in command.items() if name != "name"})
    allowed = end(history, names.CHECK_DECISION, "")
    if in_one_task:
        take(history, sent, allowed)
    else:
        take(history, sent)
        take(history, allowed)
    if refusal is not None:
        take(history, end(history, names.CHECK_DECISION, refusal))
    result = results_in(history.state.unseen.messages)["c1"]
    assert (text or approved_text) in result.text
    assert history.state.agent == ("boss" if plan is HAND_OVER and not text else "clerk")


@pytest.mark.parametrize("policy", [False, True], ids=["no approvers", "approvers"])
def test_a_call_that_begins_just_before_a_rule_denies_another_one_has_begun(*, policy: bool) -> None:
    history = begin_calls(THEIRS, THEIRS.model_copy(update={"call_id": "c2", "policy": policy}))
    take(history, signal(names.SET_POLICY, rules=[{"tool": "b", "then": "deny"}], by="bob"))
    take(history, check(history, arguments={"n": 1}), check(history, "c2", result=result_of_hook("c2", "b")))
    if policy:
        take(history, end(history, ACTIVITY, {"x": 1}))
        take(history, end(history, names.CHECK_DECISION, ""))
    else:
        take(history, signal(names.CLOSE, by="ann"))
        assert history.outcome is None
        take(history, end(history, ACTIVITY, {"x": 1}))
        assert history.outcome is not None


@pytest.mark.parametrize(
    ("before", "after", "plan", "expected"),
    [
        ([DENY_ALL], [], ASK_FIRST, [("c1", "approval")]),
        ([DENY_ALL], [], RUN_OUTSIDE, [("c1", "answer")]),
        ([], [DENY_ALL], ASK_FIRST, []),
        ([], [DENY_ALL], RUN_OUTSIDE, []),
        ([], [Rule(tool="*", then="ask")], RUN_OUTSIDE, [("c1", "approval")]),
    ],
    ids=["lifts a deny", "lifts a deny outside", "denies", "denies outside", "asks"],
)
def test_rules_that_an_update_sets_are_there_before_the_reply_of_the_same_task(
    before: list[Rule], after: list[Rule], plan: PlannedCall, expected: list[tuple[str, str]]
) -> None:
    history = begin(policy=tuple(before))
    rules = [rule.model_dump(mode="json", exclude_defaults=True) for rule in after]
    take(history, update(names.SET_POLICY, rules=rules, by="ann"), reply_with(history, plan))
    assert waits(history) == expected
    if expected == [("c1", "answer")]:
        take(history, update(names.ANSWER, call_id="c1", content="done"))
        assert results(history) == {"c1": "done"}


def test_a_call_waits_since_a_rule_decided_on_it_if_approvers_refuse_that_later() -> None:
    plan = ASK_FIRST.model_copy(update={"policy": True, "expiry": Expiry(after=3600)})
    history = begin_calls(plan, policy=(Rule(tool="*", then="approve", by="bob"),))
    history.pass_time(1800)
    take(history, end(history, names.CHECK_DECISION, "not bob"))
    waiting, read = history.state.pending["c1"], history.by_history.state.pending["c1"]
    assert (read.since, read.expires) == (waiting.since, waiting.expires)


# ---------------------------------------------------------------- decisions and expiries


def test_an_answer_that_comes_before_its_approval_is_none() -> None:
    history = begin_calls(AwaitAnswer(call_id="c1", approval="it asks"))
    take(history, signal(names.ANSWER, call_id="c1", content="early"), signal(names.APPROVE, call_id="c1"))
    assert waits(history) == [("c1", "answer")]


@BY_BOTH_WAYS
@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_person_who_approves_as_the_approval_expires_is_in_time(
    send: Callable[..., SentCommand], verdict: Literal["approve", "deny"]
) -> None:
    expiry = Expiry(after=20, verdict=verdict)
    history = begin_calls(AwaitAnswer(call_id="c1", approval="it asks", approval_expiry=expiry))
    take(history, history.timers[0].fired(), send(names.APPROVE, call_id="c1"))
    assert waits(history) == [("c1", "answer")]


def test_the_decision_of_an_expiry_has_its_time_and_its_reason() -> None:
    history = begin_calls(ASK_FIRST.model_copy(update={"expiry": Expiry(after=20, verdict="approve")}))
    take(history, history.timers[0].fired())
    decision = history.by_history.decisions.approvals["c1"]
    assert decision == Decision.model_validate(history.find_activity("a").input["decision"])
    assert (decision.at, decision.note) == ("2026-01-01T00:00:22+00:00", "Nobody decided within 0:00:20.")


# ---------------------------------------------------------------- the end of a turn, and of a conversation


@BY_BOTH_WAYS
def test_an_agent_stays_in_charge_if_its_turn_is_cancelled_as_the_edits_of_its_handoff_are_checked(
    send: Callable[..., SentCommand],
) -> None:
    history = begin_calls(HAND_OVER)
    take(history, update(names.APPROVE, call_id="c1", arguments={"n": 9}))
    take(history, send(names.CANCEL_TURN, by="ann"), check(history, arguments={"n": 9}))
    assert history.by_history.state.agent == history.state.agent == "clerk"


@BY_BOTH_WAYS
@pytest.mark.parametrize(
    "accepted",
    [
        update(names.PAUSE, by="ann"),
        update(names.SET_POLICY, rules=[], by="ann"),
        update(names.MESSAGE, text="And more."),
    ],
    ids=str,
)
def test_results_are_kept_if_the_last_one_comes_as_the_turn_is_cancelled(
    send: Callable[..., SentCommand], accepted: SentCommand
) -> None:
    history = begin_calls(RunTool(call_id="c1"), AwaitAnswer(call_id="c2"))
    take(history, update(names.ANSWER, call_id="c2", content="done"), signal(names.MESSAGE, text="More."))
    take(history, send(names.CANCEL_TURN, by="ann"), end(history, "a", ran("c1", "a")), accepted)
    assert results(history) == {"c1": "a ran", "c2": "done"}


def test_an_answer_to_a_new_message_has_all_its_corrections_if_the_last_result_comes_with_a_close() -> None:
    history = begin()
    misfit = ModelReply(
        message=Message(role="assistant", parts=(Text(text="{"),)), output_problem="no JSON", digest="d0"
    )
    take(history, end(history, names.CALL_MODEL, misfit))
    take(history, reply_with(history, THEIRS.model_copy(update={"task_queue": "q", "effect": "idempotent"})))
    take(history, signal(names.MESSAGE, text="More."))
    take(history, end(history, ACTIVITY, {"x": 1}), update(names.CLOSE, by="ann"))
    assert history.by_history.state.last_reply.corrections == 0
    assert names.CALL_MODEL in [activity.activity_type for activity in history.activities]


@pytest.mark.parametrize(
    "approved", [ASK_FIRST, RunActivity(call_id="c1", activity=ACTIVITY, approval="it asks")], ids=["tool", "activity"]
)
def test_a_call_that_is_approved_as_its_conversation_closes_does_not_begin(approved: PlannedCall) -> None:
    history = begin_calls(approved, RunTool(call_id="c2"))
    take(history, signal(names.MESSAGE, text="More."))
    take(history, signal(names.APPROVE, call_id="c1"), update(names.CLOSE, by="ann"))
    take(history, end(history, "b", ran("c2", "b")))
    assert "c1" in results(history)


# ---------------------------------------------------------------- random orders


@pytest.mark.parametrize("seed", SEEDS)
def test_random_orders_come_to_the_same(seed: int) -> None:
    try:
        differences = PlayedWorld(seed).play()
    except Exception as error:
        error.add_note(f"This shows it: {show_command(seed)}")
        raise
    assert differences == {}, f"The workflow's first, the history's second. This shows it: {show_command(seed)}"
