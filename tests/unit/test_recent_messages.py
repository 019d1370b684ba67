"""What a cached conversation holds of its transcript: the latest, within a bound."""

from __future__ import annotations

import pytest

from everturn.carryover import CarryOver, Packed
from everturn.payloads import ModelReply, Start
from everturn.records import Message, Text, ToolCall, ToolResult, Usage
from everturn.state import State
from everturn.workflows import sent_messages
from everturn.workflows.recent_messages import MAX_HELD_CHARS, RecentMessages, whole_prefix
from tests.support.bounds import Bounds


def begun(*, length: int = 0, said: str = "") -> tuple[State, RecentMessages]:
    held = RecentMessages("")
    start = Start(agent="clerk", carry=CarryOver(earlier=Packed(data=""), length=length))
    state = State(start, run_began=0.0, on_prefix=held.add)
    if said:
        state.receive_message(Message.user(said))
        state.begin_turn(messages=1)
    return state, held


def take_turn(state: State, number: int, result: str) -> None:
    call = ToolCall(call_id=f"call_{number}", name="look")
    state.take_reply(ModelReply(message=Message(role="assistant", parts=(call,)), digest=str(number)))
    answer = ToolResult(call_id=call.call_id, name="look", content=(Text(text=result),))
    state.take_results((answer,), recorded=[call.call_id])


def test_what_is_held_is_bounded_and_positions_go_on() -> None:
    state, held = begun(length=1_000)
    for number in range(500):
        take_turn(state, number, "x" * 4_096)
        assert sum(map(len, held.written)) <= MAX_HELD_CHARS
    assert state.prefix.position == 1_000 + 2 * 500 - 1  # the last result is yet to be seen
    assert state.prefix.position - len(held.written) > state.prefix.base == 1_000


def test_a_message_over_the_bound_is_not_held_at_all() -> None:
    state, held = begun(said="?")
    take_turn(state, 0, "x" * (MAX_HELD_CHARS + 1))
    assert len(held.written) == state.prefix.position
    take_turn(state, 1, "small")
    assert (state.prefix.position, [Message.model_validate_json(written).role for written in held.written]) == (
        4,
        ["assistant"],
    )


@pytest.mark.parametrize("held_chars", [MAX_HELD_CHARS, 10])
def test_the_whole_prefix_is_known_as_long_as_all_of_the_run_is_held(held_chars: int, bounds: Bounds) -> None:
    bounds(held_chars=held_chars)
    held = RecentMessages("")
    state = State(Start(agent="clerk"), run_began=0.0, on_prefix=held.add)
    state.receive_message(Message.user("?"))
    state.begin_turn(messages=1)
    take_turn(state, 0, "small")
    whole = whole_prefix(state, held)
    if held_chars == 10:
        assert whole is None
    else:
        assert whole is not None
        assert [message.role for message in whole] == ["user", "assistant"]


def test_a_page_begins_where_something_is_held(bounds: Bounds) -> None:
    bounds(held_chars=1_000)
    state, held = begun(said="?")
    for number in range(20):
        take_turn(state, number, f"result {number}")
    count = len(held.written)
    page = held.read_page(state.unseen.messages, 0, 100)
    assert len(page) == count + 1 < 20
    assert page[-1].tool_results[0].text == "result 19"
    assert held.read_page(state.unseen.messages, count, 100) == page[-1:]
    assert held.read_page(state.unseen.messages, count - 2, 1)[0].tool_results[0].text == "result 18"
    assert held.read_page(state.unseen.messages, count + 1, 100) == []


def test_a_named_result_is_no_more_than_its_id() -> None:
    state, _ = begun()
    take_turn(state, 0, "x" * 4_096)
    delta, named = sent_messages.next_delta(state)
    assert named == ("call_0",)
    assert delta == (Message(role="tool", parts=(ToolResult(call_id="call_0"),)),)


def test_a_cost_of_nothing_is_a_number_with_a_fraction() -> None:
    """As an int, no search attribute of Temporal's takes it, and the workflow task fails for ever."""
    state, _ = begun()
    state.totals.add_usage(Usage(), 0.0)
    assert isinstance(state.totals.cost_usd, float)
