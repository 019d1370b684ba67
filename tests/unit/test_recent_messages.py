"""What a cached conversation holds of its transcript: the latest, within a bound."""

from __future__ import annotations

import pytest

from everturn.carryover import CarryOver, PackedTranscript, StoredInRun
from everturn.packed_messages import pack
from everturn.payloads import ModelReply, Start
from everturn.records import Message, Text, ToolCall, ToolResult, Usage
from everturn.sizes import MAX_DELTA_BYTES, MAX_PAGE_BYTES, size_of
from everturn.state import State
from everturn.workflows import sent_messages
from everturn.workflows.recent_messages import MAX_HELD_CHARS, MessagesInMemory, RecentMessages, whole_prefix
from tests.support.bounds import Bounds


def begun(*, length: int = 0, said: str = "") -> tuple[State, RecentMessages]:
    held = RecentMessages("")
    start = Start(agent="clerk", carry=CarryOver(earlier=PackedTranscript(data=""), length=length))
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


def short(texts: list[str]) -> list[Message]:
    return [Message.user(text) for text in texts]


@pytest.mark.parametrize(("beside", "held"), [(-1, 1), (0, 2), (1, 2)])
def test_as_many_characters_are_held_as_the_bound_says(beside: int, held: int, bounds: Bounds) -> None:
    messages = short(["one", "two"])
    bounds(held_chars=sum(len(message.model_dump_json()) for message in messages) + beside)
    recent = RecentMessages("")
    recent.add(messages)
    assert len(recent.written) == held


@pytest.mark.parametrize("held", [0, 1, 4, 5, 6])
def test_the_latest_lines_are_known_though_few_messages_are_held(held: int, bounds: Bounds) -> None:
    messages = short([f"number {number}" for number in range(9)])
    bounds(held_chars=held * len(messages[0].model_dump_json()))
    recent = RecentMessages("before")
    for message in messages:
        recent.add([message])
    assert len(recent.written) == held
    assert [line[-1] for line in recent.latest_lines([])] == [*"45678"]
    assert [line[-1] for line in recent.latest_lines(short(["number a", "number b"]))] == [*"678ab"]


def test_what_the_model_said_in_the_run_before_is_shown_until_more_is_there() -> None:
    assert RecentMessages("").latest_lines([]) == []
    recent = RecentMessages("Hello from before")
    (line,) = recent.latest_lines([])
    assert "Hello from before" in line
    recent.add(short(["a"] * 4))
    assert recent.latest_lines([])[0] == line
    recent.add(short(["a"]))
    assert line not in recent.latest_lines([])


def test_a_page_has_as_many_messages_as_fit_an_answer_and_one_at_least() -> None:
    recent = RecentMessages("")
    third = Message.user("x" * (MAX_PAGE_BYTES // 3))
    small = Message.user("small")
    assert len(recent.read_page([third] * 4, 0, 9)) == 2
    assert len(recent.read_page([third, third, small, small], 0, 9)) == 4
    large = Message.user("x" * 2 * MAX_PAGE_BYTES)
    assert recent.read_page([large, small], 0, 9) == [large]
    assert recent.read_page([small, large, small], 0, 9) == [small]
    recent.add([small])
    assert recent.read_page([large], 0, 9) == [small]
    (cut,) = recent.read_page([Message.user("x" * MAX_DELTA_BYTES)], 1, 9)
    assert size_of([cut]) <= MAX_DELTA_BYTES


def test_all_that_fits_exactly_is_on_a_page() -> None:
    """Their sizes as a list, which has brackets."""
    message = Message.user("x" * (MAX_PAGE_BYTES // 2 - size_of([Message.user("")])))
    beside = MAX_PAGE_BYTES - size_of(message) - size_of([message])
    last = Message.user(f"{message.text}{'x' * beside}")
    longer = Message.user(f"{last.text}x")
    recent = RecentMessages("")
    assert recent.read_page([message, last], 0, 9) == [message, last]
    assert recent.read_page([message, longer], 0, 9) == [message]


def test_the_worker_finds_what_the_conversation_has_in_memory() -> None:
    held = RecentMessages("")
    before = short(["before"])
    start = Start(agent="clerk", carry=CarryOver(earlier=PackedTranscript(data=pack(before)), length=1))
    state = State(start, run_began=0.0, on_prefix=held.add)
    memory = MessagesInMemory(state, held)
    assert memory.prefix == (*before,)
    take_turn(state, 0, "first")
    assert memory.prefix is not None
    assert [message.role for message in memory.prefix] == ["user", "assistant"]
    assert [result.text for result in memory.unseen_results(["call_9", "call_0"])] == ["first"]


@pytest.mark.parametrize(
    "earlier", [PackedTranscript(data="nonsense"), StoredInRun(run_id="r"), PackedTranscript(data="")]
)
def test_a_prefix_that_is_elsewhere_or_can_not_be_read_is_not_known(earlier: PackedTranscript | StoredInRun) -> None:
    held = RecentMessages("")
    state = State(Start(agent="clerk", carry=CarryOver(earlier=earlier, length=1)), run_began=0.0, on_prefix=held.add)
    assert whole_prefix(state, held) is None
