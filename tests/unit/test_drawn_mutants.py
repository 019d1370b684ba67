"""Small changes of the code that survived `make mutants DRAWN=60`: each is seen here."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ChildWorkflowError, TerminatedError

from everturn.models import Limits
from everturn.payloads import Start
from everturn.records import ToolCall
from everturn.sizes import size_of
from everturn.state import State
from everturn.workflows import continue_as_new, tool_results
from tests.support.bounds import Bounds


@pytest.mark.parametrize(("most", "made", "left"), [(None, 3, None), (7, 0, 7), (7, 2, 5), (7, 7, 0), (7, 9, 0)])
def test_as_many_calls_are_left_as_were_not_made(most: int | None, made: int, left: int | None) -> None:
    state = State(Start(agent="clerk", limits=Limits(max_tool_calls=most)), run_began=0.0)
    state.tool_calls = made
    assert state.calls_left() == left


@pytest.mark.parametrize(("beside", "fits"), [(-1, False), (0, True), (1, True)])
def test_what_is_larger_than_the_bound_is_not_handed_over(beside: int, fits: bool, bounds: Bounds) -> None:
    handed = Start(agent="clerk", message="Hello")
    bounds(open_bytes=size_of(handed) + beside)
    assert continue_as_new.may_be_open(handed) is fits


def test_an_agent_whose_conversation_was_ended_could_not_answer_in_our_words() -> None:
    error = ChildWorkflowError(
        "failed",
        namespace="default",
        workflow_id="talk",
        run_id="run",
        workflow_type="Conversation",
        initiated_event_id=1,
        started_event_id=2,
        retry_state=None,
    )
    error.__cause__ = TerminatedError("Temporal's words")
    told = tool_results.no_answer(ToolCall(call_id="a", name="helper"), error).text
    assert told.startswith("helper could not answer: ")
    assert "Temporal's words" not in told
