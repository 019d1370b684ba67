"""What a hook returns is checked field by field: what can't be meant is its failure, and says what is wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from everturn import Message, ModelSettings, Text, ToolCall, ToolResult
from everturn.activities.hook_answers import UnfitHookAnswer, check_answer, own_copy, same_record
from everturn.activities.hook_runs import _reply_problem
from everturn.hooks import AskApproval, DenyCall, ModelInput, StallWith, StopWith
from everturn.records import Reply

CALL = ToolCall(call_id="c1", name="pay", arguments={"cents": 5, "to": {"name": "Ann"}})
REPLY = Reply(message=Message(role="assistant", parts=(Text(text="So I pay."), CALL)), model="scripted:demo")
RESULT = ToolResult(call_id="c1", name="pay", content=(Text(text="paid"),))
INPUT = ModelInput(messages=(Message.user("Pay"),), instructions="Be brief.", tools=("pay",), model="scripted:demo")
HALF = "\ud800"


def of(said: Any, before: Any = CALL) -> Any:
    return check_answer(said, given=own_copy(before), original=before)


def _with(record: Any, **changes: Any) -> Any:
    return record.model_copy(update=changes)


@pytest.mark.parametrize(
    ("said", "before", "why"),
    [
        (StopWith(None), CALL, "the text of its StopWith is of type NoneType"),  # type: ignore[arg-type]
        (DenyCall(5), CALL, "the reason of its DenyCall is of type int"),  # type: ignore[arg-type]
        (AskApproval(b"x"), CALL, "the why of its AskApproval is of type bytes"),  # type: ignore[arg-type]
        (StallWith("why", None), REPLY, "the cure of its StallWith is of type NoneType"),  # type: ignore[arg-type]
        (replace(INPUT, messages=("hi",)), INPUT, "one of type str, and not Message"),  # type: ignore[arg-type]
        (replace(INPUT, messages=None), INPUT, "messages of its ModelInput are of type NoneType"),  # type: ignore[arg-type]
        (replace(INPUT, tools="pay"), INPUT, "tools of its ModelInput are of type str"),  # type: ignore[arg-type]
        (replace(INPUT, settings={"temperature": 1}), INPUT, "settings of its ModelInput are of type dict"),  # type: ignore[arg-type]
        (replace(INPUT, instructions=None), INPUT, "instructions of its ModelInput is of type NoneType"),  # type: ignore[arg-type]
        (replace(INPUT, settings=_with(ModelSettings(), temperature="hot")), INPUT, "ModelSettings that is none"),
        (replace(INPUT, messages=(_with(INPUT.messages[0], parts=None),)), INPUT, "message that is none: parts"),
        (_with(REPLY, message=None), REPLY, "Reply that is none: message"),
        (_with(REPLY, usage=None), REPLY, "Reply that is none: usage"),
        (_with(REPLY, message=_with(REPLY.message, parts=("hello",))), REPLY, r"message\.parts\.0"),
        (_with(REPLY, details={"x": object()}), REPLY, "Reply that is none: details"),
        (_with(CALL, arguments=None), CALL, "ToolCall that is none: arguments"),
        (_with(CALL, arguments={"cents": object()}), CALL, "ToolCall that is none: arguments"),
        (_with(CALL, arguments={"cents": math.nan}), CALL, "arguments.cents is NaN"),
        (_with(CALL, arguments={1: 2}), CALL, "ToolCall that is none: arguments"),
        (_with(RESULT, content="hello"), RESULT, "ToolResult that is none: content"),
        (_with(RESULT, is_error="perhaps"), RESULT, "ToolResult that is none: is_error"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_can_not_be_meant_is_refused_with_its_place(said: Any, before: Any, why: str) -> None:
    with pytest.raises(UnfitHookAnswer, match=why):
        of(said, before)


def test_a_reply_has_no_calls_and_no_results_but_the_models() -> None:
    for part in (CALL.model_copy(update={"call_id": "c2"}), RESULT):
        changed = _with(REPLY, message=_with(REPLY.message, parts=(part,)))
        assert _reply_problem(REPLY, of(changed, REPLY))
    assert not _reply_problem(REPLY, REPLY)


def test_arguments_that_go_round_in_a_circle_are_refused() -> None:
    circle: dict[str, Any] = {}
    circle["inside"] = circle
    with pytest.raises(UnfitHookAnswer, match="nested too deeply"):
        of(_with(CALL, arguments=circle))


@pytest.mark.parametrize(
    ("said", "before", "text"),
    [
        (StopWith(f"so{HALF}"), CALL, "so\ufffd"),
        (f"so{HALF}", RESULT, "so\ufffd"),
        (replace(INPUT, instructions=f"so{HALF}"), INPUT, "so\ufffd"),
        (_with(CALL, arguments={"to": f"so{HALF}"}), CALL, "so\ufffd"),
        (_with(RESULT, content=(Text(text=f"so{HALF}"),)), RESULT, "so\ufffd"),
    ],
    ids=["stop", "str", "instructions", "arguments", "result"],
)
def test_a_text_that_can_not_be_written_is_mended(said: Any, before: Any, text: str) -> None:
    assert text in str(of(said, before))


def test_what_is_meant_stays_as_it_is() -> None:
    for said, before in ((None, CALL), (CALL, CALL), (REPLY, REPLY), (INPUT, INPUT), ("", RESULT)):
        assert of(said, before) == said
    changed = _with(CALL, arguments={"cents": 6})
    assert of(changed) == changed
    more = replace(INPUT, messages=[*INPUT.messages, Message.user("now")])  # type: ignore[arg-type]
    assert of(more, INPUT).messages == (*INPUT.messages, Message.user("now"))


def test_what_is_changed_in_place_is_a_change_and_nothing_else_sees_it() -> None:
    given = own_copy(CALL)
    given.arguments["to"]["name"] = "Bob"
    assert CALL.arguments == {"cents": 5, "to": {"name": "Ann"}}
    assert check_answer(None, given=given, original=CALL).arguments["to"] == {"name": "Bob"}
    given.arguments["cents"] = object()
    with pytest.raises(UnfitHookAnswer, match="ToolCall that is none"):
        check_answer(None, given=given, original=CALL)
    assert check_answer(DenyCall("no"), given=given, original=CALL) == DenyCall("no")


@pytest.mark.parametrize("before", [CALL, REPLY], ids=["call", "reply"])
def test_true_in_the_place_of_1_is_a_change(before: Any) -> None:
    with_one, with_true = (_with(CALL, arguments={"cents": value}) for value in (1, True))
    if before is REPLY:
        with_one, with_true = (
            _with(REPLY, message=_with(REPLY.message, parts=(call,))) for call in (with_one, with_true)
        )
    assert with_one == with_true, "Python's 1 equals True"
    assert not same_record(of(with_true, before=with_one), with_one)
    assert same_record(of(with_one, before=with_one), with_one)
