"""Bugs that somebody put in who had not seen the code, and that nothing found: neither the simulation nor a test."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from everturn.calls.pending_calls import PendingCall
from everturn.carryover import CarryOver, QuestionToPerson, WorkerFacts
from everturn.heartbeat_details import SeenReply
from everturn.payloads import Start
from everturn.plans import Expiry, RunPlan
from everturn.records import Message, Successor, ToolCall, ToolResult, Usage
from everturn.state import State
from everturn.workflows import approvals, continue_as_new


def state(**carried: Any) -> State:
    return State(Start(agent="clerk", model="openai:chosen", carry=CarryOver(**carried)), run_began=100.0)


def test_the_limit_of_time_counts_from_the_first_run_on() -> None:
    assert state(started_at=5.0).started_at == 5.0
    assert state().started_at == 100.0


def test_messages_that_waited_as_it_closed_are_answered_with_those_that_came_later() -> None:
    one = state()
    one.receive(Message.user("first"), None)
    one.inbox, one.late = [*one.inbox, Message.user("waited")], [Message.user("late")]
    one.take_up_again(200.0)
    assert [message.text for message in one.inbox] == ["first", "waited", "late"]
    assert one.late == []


def test_an_agent_that_takes_over_has_its_own_model() -> None:
    one = state()
    assert one.model == "openai:chosen"
    one.follow_handoffs(
        [ToolResult(call_id="c", name="transfer_to_expert", content=(), successor=Successor(agent="expert"))]
    )
    assert one.agent == "expert"
    assert one.model == ""


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
    one.spend(Usage(input_tokens=10), 0.5)
    one.spend(Usage(input_tokens=5), 0.25)
    assert one.cost_usd == 0.75
    assert one.usage.input_tokens == 15
    one.spend(Usage(), None)
    assert one.cost_usd is None


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

    monkeypatch.setattr(approvals.workflow, "sleep", sleep)
    monkeypatch.setattr(approvals.workflow, "now", lambda: datetime.fromtimestamp(now[0], UTC))
    expiry = Expiry(after=50.0, verdict="deny", remind_before=remind_before)
    call = ToolCall(call_id="c", name="pay", arguments={})
    asked = QuestionToPerson(call_id="c", reason="needs_approval", since=1_000.0)
    pending = PendingCall(call, RunPlan(call_id="c", expiry=expiry), asked)
    decided: list[str] = []

    class Waiting:
        def decide(self, call_id: str, _: Any) -> None:
            decided.append(call_id)

    expires: Coroutine[Any, Any, None] = approvals.PendingApprovals._expire(Waiting(), pending, expiry)  # type: ignore[arg-type]
    await expires
    assert decided == ["c"]
    assert now[0] == pytest.approx(1_050.0)
    assert len(slept) == (2 if remind_before in (10.0, 49.0) else 1)
