"""Bugs that somebody put in who had not seen the code, and that nothing found: neither the simulation nor a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from everturn import tool
from everturn.activities import tool_retries
from everturn.calls.decision_records import Deny
from everturn.calls.pending_calls import PendingCall, rules_of
from everturn.carryover import CarryOver, PackedTranscript, QuestionToPerson, StoredInRun, WorkerFacts
from everturn.errors import Retry
from everturn.heartbeats.details import SeenReply
from everturn.history.revival import next_life
from everturn.limits import Limits
from everturn.payloads import Start
from everturn.plans import Expiry, RunPlan, RunTool, WaitReason
from everturn.policy import Condition, Rule
from everturn.records import Message, Successor, ToolCall, ToolResult, Usage
from everturn.state import State
from everturn.workflows import continue_as_new, new_waits
from everturn.workflows.expiry import wait_until_expired


def state(**carried: Any) -> State:
    return State(Start(agent="clerk", model="openai:chosen", carry=CarryOver(**carried)), run_began=100.0)


def test_the_limit_of_time_counts_from_the_first_run_on() -> None:
    assert state(started_at=5.0).totals.started_at == 5.0
    assert state().totals.started_at == 100.0


def test_messages_that_waited_as_it_closed_are_answered_with_those_that_came_later() -> None:
    one = state()
    one.receive_message(Message.user("first"), None)
    one.inbox.messages, one.inbox.late = [*one.inbox.messages, Message.user("waited")], [Message.user("late")]
    one.take_up_again(200.0)
    assert [message.text for message in one.inbox.messages] == ["first", "waited", "late"]
    assert one.inbox.late == []


def test_an_agent_that_takes_over_has_its_own_model() -> None:
    one = state()
    assert one.model.name == "openai:chosen"
    one.follow_handoffs(
        [ToolResult(call_id="c", name="transfer_to_expert", content=(), successor=Successor(agent="expert"))]
    )
    assert one.agent == "expert"
    assert one.model.name == ""


def test_what_another_turn_had_said_is_not_taken() -> None:
    one = state()
    one.begin_turn(messages=0)
    one.take_seen(SeenReply(turn=one.turn + 1, text="of the next turn"))
    assert one._seen is None
    one.take_seen(SeenReply(turn=one.turn, text="of this turn"))
    assert one._seen is not None
    one.take_seen(SeenReply(turn=one.turn + 1, text="of the next turn, and longer than the one before"))
    assert one._seen.text == "of this turn"


def test_what_turns_cost_adds_up() -> None:
    one = state()
    one.totals.add_usage(Usage(input_tokens=10), 0.5)
    one.totals.add_usage(Usage(input_tokens=5), 0.25)
    assert one.totals.cost_usd == 0.75
    assert one.totals.usage.input_tokens == 15
    one.totals.add_usage(Usage(), None)
    assert one.totals.cost_usd is None


def test_the_oldest_history_decides_by_when_messages_are_brought_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continue_as_new.workflow, "time", lambda: 1_000.0)
    facts = WorkerFacts(indexed=True, retention=500.0)
    assert continue_as_new._keep_by(state(facts=facts)) == 1_250.0
    assert continue_as_new._keep_by(state(facts=facts, keep_by=1_100.0)) == 1_100.0


@pytest.mark.parametrize("remind_before", [None, 10.0, 49.0, 50.0, 80.0])
async def test_a_reminder_makes_nothing_expire_later(
    remind_before: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, slept = [1_000.0], []

    async def sleep(seconds: float, *, summary: str) -> None:
        slept.append((summary.partition(" ")[0], seconds))
        now[0] += seconds

    monkeypatch.setattr(workflow, "sleep", sleep)
    monkeypatch.setattr(workflow, "now", lambda: datetime.fromtimestamp(now[0], UTC))
    expiry = Expiry(after=50.0, verdict="deny", remind_before=remind_before)
    call = ToolCall(call_id="c", name="pay", arguments={})
    asked = QuestionToPerson(call_id="c", reason="needs_approval", since=1_000.0)
    pending = PendingCall(call, RunPlan(call_id="c", expiry=expiry), asked)
    await wait_until_expired(pending)
    assert now[0] == pytest.approx(1_050.0)
    assert len(slept) == (2 if remind_before in (10.0, 49.0) else 1)


# ---------------------------------------------------------------- of a third stranger


def asked(reason: WaitReason, *, since: float = 7.0) -> PendingCall:
    plan = RunTool(call_id="a", effect="once", timeout=1.0, patience=1.0, approval="it asks", expiry=Expiry(after=60.0))
    question = QuestionToPerson(call_id="a", reason=reason, why="it asks", since=since)
    return PendingCall(ToolCall(call_id="a", name="pay", arguments={"cents": 5}), plan, question)


def test_who_may_not_decide_does_not_make_a_call_wait_longer() -> None:
    again = asked("needs_approval").after_check(decided_by="ann", refusal="no")
    assert (again.asked.reason, again.asked.since, again.asked_since(99.0).asked.since) == ("not_allowed", 7.0, 7.0)


@pytest.mark.parametrize("reason", ["needs_approval", "not_allowed"])
def test_new_rules_decide_what_waits_however_it_came_to_that(reason: WaitReason) -> None:
    rule = Rule(tool="pay", then="deny")
    assert asked(reason).ruling_of((rule,), again=True) == rule


def test_a_denial_for_always_keeps_its_conditions() -> None:
    (rule,) = rules_of(Deny(call_id="a", always={"cents": Condition(above=4.0)}), [asked("needs_approval")])
    assert (rule.then, rule.where) == ("deny", {"cents": Condition(above=4.0)})


def test_a_turn_that_is_asked_again_does_not_count_twice() -> None:
    one = state(turn=1)
    one.limits = Limits(max_turns=2)
    one.begin_turn()  # the last one that may be
    assert one.limit_reached(100.0) is None
    assert one.limit_reached(100.0) is None, "nor once more, after a stall"
    one.reply_awaited = False
    assert one.limit_reached(100.0)


def test_what_was_told_two_runs_ago_is_not_told_again() -> None:
    unseen = (Message(role="tool", parts=(ToolResult(call_id="a", name="pay", content=()),)),)
    one = state(unseen=unseen, told=("a",))
    assert one.unseen.in_events == ("a",)
    assert one.carry_over(earlier=PackedTranscript(data=""), keep_by=None).told == ("a",)


def test_another_life_has_all_of_its_time() -> None:
    one = state(started_at=5.0)
    origin = StoredInRun(run_id="r", conversation_id="c")
    assert next_life(one, [], origin=origin).started_at is None


@pytest.mark.parametrize("after", [timedelta(milliseconds=500), timedelta(days=1, seconds=5)])
async def test_a_tool_says_how_long_to_wait_to_the_millisecond(
    after: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    def delay(seconds: float | None, **_: Any) -> timedelta:
        waits.append(seconds)
        return timedelta(seconds=1)

    monkeypatch.setattr(tool_retries.retry_delays, "retry_delay", delay)
    monkeypatch.setattr(tool_retries.patience, "spend", lambda *_: True)
    monkeypatch.setattr(tool_retries.activity, "info", lambda: SimpleNamespace(attempt=1))

    @tool(effect="idempotent")
    def look() -> str:
        """Look."""
        return ""

    with pytest.raises(ApplicationError):
        await tool_retries.retry_or_text(look, Retry("later", after=after))
    assert waits == [after.total_seconds()]


def test_a_call_that_waits_again_is_announced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_waits, "OwnLoop", lambda: SimpleNamespace(is_running=True))
    one = state()
    waits = new_waits.NewWaits(one, announced=(), look=lambda: None)
    announced: list[list[str]] = []
    for pending in ({"a": asked("needs_approval")}, {}, {"a": asked("not_allowed")}):
        one.pending = pending
        announced.append([call.call_id for call in waits.take()])
    assert announced == [["a"], [], ["a"]]
