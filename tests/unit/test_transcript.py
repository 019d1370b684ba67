"""The transcript, and the answers in it, as folds over a history: at moments that no test on a server can choose."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from everturn.heartbeats.details import SeenReply
from everturn.history import steps
from everturn.history.answers import AnswerReader
from everturn.history.transcript import Transcript
from everturn.payloads import MessageIn, ModelReply, ModelRequest, Start, ToolRequest
from everturn.plans import RunTool
from everturn.records import Message, Text, ToolCall, ToolResult

AT = datetime(2026, 1, 1, tzinfo=UTC)
HELLO = Message.user("Hello")
ASKED = ModelRequest(agent="clerk", turn=1, delta=(HELLO,))
CALL = ToolCall(call_id="c", name="look")
CALLED = ModelReply(message=Message(role="assistant", parts=(CALL,)), plan=(RunTool(call_id="c"),))
LOOKED = ToolResult(call_id="c", name="look", content=(Text(text="seen"),))
LOOK = ToolRequest(agent="clerk", turn=1, call_id="c", name="look")
SUMMARY = ModelReply(message=Message(role="assistant", parts=(Text(text="SUMMARY."),), summary=True))
SAID = ModelReply(message=Message(role="assistant", parts=(Text(text="Hi."),)))
TERMINATED = steps.RunClosed(30, AT, None, why="it was terminated")


def fold(*taken: steps.Step) -> list[Message]:
    transcript = Transcript()
    transcript.take_step(steps.RunStarted(1, AT, Start(agent="clerk", message="Hello")))
    for step in taken:
        transcript.take_step(step)
    return transcript.messages


@pytest.mark.parametrize("written", [False, True])
def test_results_that_a_summary_came_before_are_there_after_a_termination(*, written: bool) -> None:
    summarise = ModelRequest(agent="clerk", turn=2, position=2, summarise=True)
    messages = fold(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCompleted(7, AT, ASKED, CALLED),
        steps.ToolScheduled(9, AT, "look", LOOK),
        steps.ToolCompleted(11, AT, "look", LOOK, LOOKED),
        steps.TurnScheduled(13, AT, summarise),
        *([steps.TurnCompleted(15, AT, summarise, SUMMARY)] if written else []),
        TERMINATED,
    )
    results = Message(role="tool", parts=(LOOKED,))
    assert messages == [HELLO, CALLED.message, *([SUMMARY.message] if written else []), results]


@pytest.mark.parametrize("written", [False, True])
def test_what_a_cut_reply_said_stays_behind_a_summary(*, written: bool) -> None:
    summarise = ModelRequest(agent="clerk", turn=2, position=0, summarise=True)
    messages = fold(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCancelled(7, AT, ASKED, SeenReply(turn=1, text="Half")),
        steps.TurnScheduled(9, AT, summarise),
        *([steps.TurnCompleted(11, AT, summarise, SUMMARY)] if written else []),
        TERMINATED,
    )
    assert [message.text for message in messages] == [*(["SUMMARY."] if written else []), "Hello", "Half"]


@pytest.mark.parametrize("summarised", [False, True])
def test_an_answer_begins_behind_what_was_said_as_the_one_before_was_cancelled(*, summarised: bool) -> None:
    """What a cancelled turn had said and used was the next answer's, too."""
    summarise = ModelRequest(agent="clerk", turn=2, position=2, summarise=True)
    half = Message(role="assistant", parts=(Text(text="Half"),), cut_short=True)
    request = ModelRequest(agent="clerk", turn=3, position=2 + summarised, delta=(Message.user("And now?"),))
    summary = [steps.TurnScheduled(11, AT, summarise), steps.TurnCompleted(13, AT, summarise, SUMMARY)]
    reader = AnswerReader()
    for step in (
        steps.RunStarted(1, AT, Start(agent="clerk", message="Hello", keep_open=60.0)),
        steps.TurnScheduled(5, AT, ASKED),
        steps.CommandSent(6, AT, "cancel_turn", {}, accepted=True),
        steps.WorkflowTaskCompleted(7, AT, 1.0),
        steps.TurnCompleted(9, AT, ASKED, ModelReply(message=half)),
        *(summary if summarised else []),
        steps.TurnScheduled(15, AT, request),
        steps.TurnCompleted(17, AT, request, SAID),
    ):
        reader.take_step(step)
    assert reader.under_way.begin is not None
    assert [message.text for message in reader.transcript.messages[reader.under_way.begin :]] == ["And now?", "Hi."]
    assert reader.under_way.turns == 1


def read_answer(*taken: steps.Step) -> AnswerReader:
    reader = AnswerReader()
    reader.take_step(steps.RunStarted(1, AT, Start(agent="clerk", message="Hello", keep_open=60.0)))
    for step in taken:
        reader.take_step(step)
    return reader


@pytest.mark.parametrize("accepted", [False, True])
def test_an_answer_ends_as_its_conversation_is_closed_while_its_calls_run(*, accepted: bool) -> None:
    """A message that waits by then has an answer of its own."""
    results = Message(role="tool", parts=(LOOKED,))
    request = ModelRequest(agent="clerk", turn=2, position=2, delta=(results, Message.user("And now?")))
    close = steps.CommandSent(12, AT, "close", {}, accepted=accepted)
    reader = read_answer(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCompleted(7, AT, ASKED, CALLED),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
        steps.ToolScheduled(9, AT, "look", LOOK),
        steps.MessageSent(10, AT, MessageIn(text="And now?"), accepted=False),
        steps.WorkflowTaskCompleted(11, AT, 2.0),
        close,
        steps.WorkflowTaskCompleted(13, AT, 3.0),
        steps.ToolCompleted(14, AT, "look", LOOK, LOOKED),
        steps.WorkflowTaskCompleted(15, AT, 4.0),
        steps.TurnScheduled(16, AT, request),
        steps.TurnScheduled(18, AT, request),  # no worker had taken it
        steps.TurnCompleted(19, AT, request, SAID),
    )
    answer = reader.under_way
    assert (answer.turns, answer.effects, answer.begin) == (1, {}, 2)


def test_a_turn_that_runs_as_its_conversation_is_closed_is_its_answers() -> None:
    results = Message(role="tool", parts=(LOOKED,))
    request = ModelRequest(agent="clerk", turn=2, position=2, delta=(results,))
    reader = read_answer(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCompleted(7, AT, ASKED, CALLED),
        steps.ToolCompleted(9, AT, "look", LOOK, LOOKED),
        steps.WorkflowTaskCompleted(10, AT, 1.0),
        steps.TurnScheduled(11, AT, request),
        steps.CommandSent(12, AT, "close", {}, accepted=True),
        steps.TurnScheduled(13, AT, request),  # no worker had taken it
        steps.TurnCompleted(14, AT, request, SAID),
    )
    assert (reader.under_way.turns, reader.under_way.begin) == (2, 0)


@pytest.mark.parametrize("without_deciding", [False, True])
def test_a_cancellation_that_the_conversation_passes_over_ends_no_answer(*, without_deciding: bool) -> None:
    """It does, while a call waits for an approval, if whoever sent it may not decide."""
    asks = CALLED.model_copy(update={"plan": (RunTool(call_id="c", approval="it asks"),)})
    request = ModelRequest(agent="clerk", turn=2, position=2, delta=(Message(role="tool", parts=(LOOKED,)),))
    reader = read_answer(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCompleted(7, AT, ASKED, asks),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
        steps.CommandSent(9, AT, "cancel_turn", {"without_deciding": without_deciding}, accepted=False),
        steps.WorkflowTaskCompleted(10, AT, 2.0),
        steps.TurnScheduled(11, AT, request),
        steps.TurnCompleted(13, AT, request, SAID),
    )
    assert reader.under_way.turns == (2 if without_deciding else 1)
