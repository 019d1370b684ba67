"""Small changes of the code that survived `make mutants DRAWN=60`: each is seen here."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import JsonValue
from temporalio.exceptions import ChildWorkflowError, TerminatedError

from everturn.models import Limits
from everturn.payloads import Control, Start
from everturn.plans import RetryPlan, RunActivity, RunTool
from everturn.records import ToolCall
from everturn.sizes import MAX_NAME_CHARS, size_of
from everturn.state import State
from everturn.workflows import activity_calls, continue_as_new, timeouts, tool_results, web_ui
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


@pytest.mark.parametrize(
    ("given", "handed"),
    [
        ({}, []),
        ({"a": 1}, [1]),
        ({"a": 1, "b": 2}, [1, 2]),
        ({"b": 2}, [None, 2]),
        ({"a": 1, "b": 2, "c": 3}, [1, 2, 3]),
        ({"c": 3}, [None, None, 3]),
    ],
)
def test_an_activity_takes_its_arguments_by_position_up_to_the_last_that_is_given(
    given: dict[str, JsonValue], handed: list[JsonValue]
) -> None:
    plan = RunActivity(call_id="a", activity="Pay", by_position=("a", "b", "c"))
    assert activity_calls._inputs(plan, given) == handed


def test_temporal_ends_a_call_of_a_tool_only_after_it_should_have_ended_by_itself() -> None:
    plan = RunTool(call_id="a", timeout=60.0, patience=600.0)
    own, local = timeouts.tool_activity_options(plan), timeouts.local_options(plan)
    later = timeouts.HEARTBEAT_TIMEOUT
    assert own["start_to_close_timeout"] == local["start_to_close_timeout"] == timedelta(seconds=60) + later
    assert own["schedule_to_close_timeout"] == timedelta(days=7, seconds=600)
    assert local["schedule_to_close_timeout"] == timedelta(seconds=660) + later


@pytest.mark.parametrize(
    ("task_queue", "awaited", "in_queue"),
    [
        ("theirs", False, timedelta(seconds=10)),
        ("theirs", True, timedelta(days=7)),
        (None, False, timedelta(days=7)),
    ],
)
def test_all_tries_of_a_users_activity_are_bounded_by_its_patience_after_the_queue(
    task_queue: str | None, awaited: bool, in_queue: timedelta
) -> None:
    plan = RunActivity(
        call_id="a", activity="Pay", task_queue=task_queue, timeout=60.0, patience=600.0, retry=RetryPlan()
    )
    options = timeouts.user_activity_options(plan, awaited=awaited)
    assert options["schedule_to_start_timeout"] == in_queue
    assert options["start_to_close_timeout"] == timedelta(seconds=60)
    assert options["schedule_to_close_timeout"] == in_queue + timedelta(seconds=600)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("x" * 150, f"There is no model {'x' * 100!r}. Write provider:name, as in openai:gpt-5.5."),
        ("a:" + "b" * (MAX_NAME_CHARS - 2), None),
        ("a:" + "b" * (MAX_NAME_CHARS - 1), f"There is no model {'a:' + 'b' * 98!r}."),
    ],
)
def test_a_model_that_cannot_be_is_refused_by_its_name(model: str, problem: str | None) -> None:
    state = State(Start(agent="clerk"), run_began=0.0)
    state.pause()
    said = state.resume_problem(Control(model=model))
    assert said is None if problem is None else said is not None and said.startswith(problem)


@pytest.mark.parametrize(
    ("text", "line"),
    [("ab" + " " * 12 + "cd", "ab cd"), ("a b c d e f", "a b c d e…"), ("ab" + " " * 30 + "cd", "ab…")],
)
def test_a_text_is_shortened_after_its_spaces(text: str, line: str) -> None:
    assert web_ui.shortened(text, 10) == line
