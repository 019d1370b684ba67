"""What a model turn is asked with, and what an outcome brings of it: as much as fits, and none twice."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.carryover import CarryOver, WorkerFacts, mark_of
from everturn.limits import Limits
from everturn.payloads import Caller, Start
from everturn.policy import Rule
from everturn.records import Message, Successor, Text, ToolResult
from everturn.sizes import INLINE_BYTES, MAX_DELTA_BYTES, MAX_INBOX_BYTES, size_of
from everturn.state import State
from everturn.workflows import sent_messages


def new(**given: Any) -> State:
    return State(Start(**{"agent": "clerk"} | given), run_began=0.0)


def result(call_id: str, text: str = "done", **more: Any) -> ToolResult:
    return ToolResult(call_id=call_id, name="look", content=(Text(text=text),), **more)


def test_a_request_says_what_is_special_about_the_conversation() -> None:
    plain = sent_messages.next_request(new(), summarise=False)
    assert plain.model_dump(mode="json", exclude={"agent", "turn"}) == {}
    state = new(caller=Caller(conversation_id="c", call_id="a"), limits=Limits(max_tool_calls=3), model="openai:m")
    state.take_facts(WorkerFacts(limits={"max_turns": 7}))
    state.totals.tool_calls = 1
    request = sent_messages.next_request(state, summarise=True)
    assert (request.asked, request.calls_left, request.model, request.summarise) == (True, 2, "openai:m", True)
    assert (request.limits_mark, request.signed) == (mark_of({"max_turns": 7}), False)
    state.follow_handoffs([result("a", successor=Successor(agent="expert"))])
    handed = sent_messages.next_request(state, summarise=False)
    assert (handed.agent, handed.signed, handed.model) == ("expert", True, None)


def test_a_summary_is_asked_for_without_what_is_unseen() -> None:
    state = new(carry=CarryOver(unseen=(Message.user("Hello"),)))
    assert sent_messages.next_request(state, summarise=False).delta == (Message.user("Hello"),)
    assert sent_messages.next_request(state, summarise=True).delta == ()


@pytest.mark.parametrize(
    ("rules", "ruled"),
    [(("approve",), False), (("approve", "ask"), True), (("deny", "approve"), True), (("approve", "approve"), False)],
)
def test_only_rules_that_may_hold_a_call_up_are_told(rules: tuple[Any, ...], *, ruled: bool) -> None:
    policy = tuple(Rule(tool=str(number), then=then) for number, then in enumerate(rules))
    assert sent_messages.next_request(new(policy=policy), summarise=False).ruled is ruled


def test_as_many_messages_are_taken_as_fit_and_one_at_least() -> None:
    half = Message.user("x" * (MAX_INBOX_BYTES // 2 - 1_000))
    fitting = []
    for inbox in ([], [half], [half] * 3, [Message.user("x" * 2 * MAX_INBOX_BYTES)] * 2):
        state = new()
        state.inbox.messages = inbox
        fitting.append(sent_messages.how_many_waiting_fit(state))
    assert fitting == [1, 1, 2, 1]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("beside", [0, 1])
def test_only_a_large_result_that_is_in_its_own_event_is_named(beside: int, *, recorded: bool) -> None:
    text = "x" * (INLINE_BYTES - size_of(result("a", "")) + beside)
    state = new()
    state.take_results((result("a", text), result("b")), recorded=["a", "b"] if recorded else [])
    delta, named = sent_messages.next_delta(state)
    assert named == (("a",) if recorded and beside else ())
    texts = [part.text for part in delta[0].tool_results]
    assert texts == ["" if named else text, "done"]


def test_a_delta_fits_its_payload() -> None:
    state = new(carry=CarryOver(unseen=(Message.user("x" * MAX_DELTA_BYTES),)))
    delta, _ = sent_messages.next_delta(state)
    assert MAX_DELTA_BYTES - 1_000 < size_of(delta) <= MAX_DELTA_BYTES


@pytest.mark.parametrize(("beside", "whole"), [(-1, False), (0, True), (1, True)])
def test_a_reply_is_cut_and_its_output_left_out_if_both_have_no_room(beside: int, *, whole: bool) -> None:
    state = new()
    state.last_reply.text, state.last_reply.output = "x" * 500, {"a": 1}
    room = size_of("x" * 500) + size_of({"a": 1}) + beside
    text, output = sent_messages.last_reply(state, room)
    assert (text, output) == ("x" * 500, {"a": 1} if whole else None)
    shorter, _ = sent_messages.last_reply(state, 400)
    assert size_of(shorter) <= 402


def test_a_tail_has_the_first_messages_that_fit() -> None:
    state = new(carry=CarryOver(unseen=(Message.user("a" * 300),), inbox=(Message.user("b" * 300),)))
    both = (Message.user("a" * 300), Message.user("b" * 300))
    assert sent_messages.outcome_tail(state, room=size_of(both)) == both
    for room in (-1, 0, 1, 20):
        assert sent_messages.outcome_tail(state, room=room) == ()
    some = sent_messages.outcome_tail(state, room=size_of(both[:1]) + 50)
    assert size_of(some) <= size_of(both[:1]) + 50
    assert some
