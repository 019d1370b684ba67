"""What a cached conversation holds of its transcript: the latest, within a bound."""

from __future__ import annotations

from everturn.carryover import CarryOver
from everturn.payloads import ModelReply
from everturn.records import Message, Text, ToolCall, ToolResult, Usage
from everturn.workflows.progress import MAX_HELD_CHARS, Progress
from tests.support.bounds import Bounds


def take_turn(state: Progress, number: int, result: str) -> None:
    call = ToolCall(call_id=f"call_{number}", name="look")
    state.take_reply(ModelReply(message=Message(role="assistant", parts=(call,)), digest=str(number)))
    answer = ToolResult(call_id=call.call_id, name="look", content=(Text(text=result),))
    state.take_results((answer,), recorded=[call.call_id])


def test_what_is_held_is_bounded_and_positions_go_on() -> None:
    state = Progress.from_carry(CarryOver(length=1_000))
    for number in range(500):
        take_turn(state, number, "x" * 4_096)
        assert state.held_chars == sum(map(len, state.held)) <= MAX_HELD_CHARS
    assert state.position == 1_000 + 2 * 500 - 1  # the last result is yet to be seen
    assert state.held_from > state.base == 1_000


def test_a_message_over_the_bound_is_not_held_at_all() -> None:
    state = Progress(unseen=[Message.user("?")])
    take_turn(state, 0, "x" * (MAX_HELD_CHARS + 1))
    assert state.held_from == 0
    take_turn(state, 1, "small")
    assert (state.position, [Message.model_validate_json(one).role for one in state.held]) == (4, ["assistant"])


def test_a_page_begins_where_something_is_held(bounds: Bounds) -> None:
    bounds(held_chars=1_000)
    state = Progress(unseen=[Message.user("?")])
    for number in range(20):
        take_turn(state, number, f"result {number}")
    page = state.page(state.held_from, 100)
    assert len(page) == state.position + 1 - state.held_from < 20
    assert page[-1].tool_results[0].text == "result 19"
    assert state.page(state.position, 100) == page[-1:]
    assert state.page(state.position - 2, 1)[0].tool_results[0].text == "result 18"
    assert state.page(state.position + 1, 100) == []


def test_a_named_result_is_no_more_than_its_id() -> None:
    state = Progress()
    take_turn(state, 0, "x" * 4_096)
    delta, named = state.delta()
    assert named == ("call_0",)
    assert delta == (Message(role="tool", parts=(ToolResult(call_id="call_0"),)),)


def test_a_cost_of_nothing_is_a_number_with_a_fraction() -> None:
    """As an int, no search attribute of Temporal's takes it, and the workflow task fails for ever."""
    progress = Progress()
    progress.spend(Usage(), 0.0)
    assert isinstance(progress.cost_usd, float)
