"""More small changes of the code that survived `make mutants DRAWN=60`, drawn with another seed: each is seen here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from everturn.limits import Limits
from everturn.payloads import Start
from everturn.records import Message
from everturn.sizes import MARGIN_BYTES, MAX_PAYLOAD_BYTES, size_of
from everturn.state import State
from everturn.tracing import MAX_LINKS, TraceContext
from everturn.workflows import start_input, tracing, visibility


@pytest.mark.parametrize(("turn", "awaited", "reached"), [(2, True, False), (2, False, True), (3, True, True)])
def test_a_turn_that_is_asked_once_more_does_not_count_as_one_before(turn: int, awaited: bool, reached: bool) -> None:
    """Also an even one, whose stall was resumed."""
    state = State(Start(agent="clerk", limits=Limits(max_turns=2)), run_began=0.0)
    state.turn, state.reply_awaited = turn, awaited
    assert (state.limit_reached(0.0) is not None) is reached


def test_an_answer_is_linked_to_the_last_of_many_traces() -> None:
    one: Any = SimpleNamespace(_caller=None, _links=[])
    for number in range(1, MAX_LINKS + 3):
        tracing.Tracing.note_message(one, TraceContext(traceparent=f"00-{number:032x}-{number:016x}-01"))
    assert [int(link.trace_id, 16) for link in one._links] == [*range(3, MAX_LINKS + 3)]


@pytest.mark.parametrize("beside", [0, 1])
def test_messages_go_along_with_an_unreadable_start_as_far_as_a_payload_has_room(beside: int) -> None:
    message = Message.user("x" * 1_000)
    handed: dict[str, Any] = {"carry": {"inbox": []}, "odd": ""}
    room = MAX_PAYLOAD_BYTES - MARGIN_BYTES - size_of((message,)) + beside
    handed["odd"] = "x" * (room - size_of(handed))
    state = State(Start(agent="clerk", keep_open=1.0), run_began=0.0)
    state.receive_message(message)
    left = start_input.StartInput(Start(agent="clerk"), handed=handed).handed_on(state)
    assert size_of(left) <= MAX_PAYLOAD_BYTES
    (kept,) = left["carry"]["inbox"]
    assert (kept["parts"][0]["text"] == "x" * 1_000) is (beside == 0)


@pytest.mark.parametrize(("shown", "model"), [("full", "openai:m"), ("minimal", "")])
def test_a_turns_summary_names_the_model_only_if_it_may_be_shown(shown: Any, model: str) -> None:
    state = State(Start(agent="clerk", visibility=shown), run_began=0.0)
    state.model.name = "openai:m"
    conversation: Any = SimpleNamespace(_state=state, _is_minimal=shown == "minimal", model="openai:other")
    assert visibility.Visibility.turn_model.fget(conversation) == model  # type: ignore[attr-defined]
