"""What a tool raised: which exceptions count, and what the model is told of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from everturn import Agent, tool
from everturn.errors import InvalidAgent, InvalidTool, NeedsApproval, OutcomeUnknown, Retry, ToolFailed
from everturn.tools import raised
from everturn.tools.results import error_text

REFUSED = ConnectionError("the warehouse refused")


def made_from(error: Exception, *causes: Exception) -> Exception:
    """`raise error from cause from ...`."""
    latest = error
    for cause in causes:
        latest.__cause__ = cause
        latest = cause
    return error


def group(*errors: Exception) -> ExceptionGroup:
    return ExceptionGroup("unhandled errors in a TaskGroup", errors)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (group(REFUSED), "ConnectionError: the warehouse refused"),
        (group(group(group(REFUSED))), "ConnectionError: the warehouse refused"),
        (group(ToolFailed("Sold out.")), "Sold out."),
        (
            group(REFUSED, group(ToolFailed("Sold out."), KeyError("81"))),
            "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)\n"
            "- ConnectionError: the warehouse refused\n- Sold out.\n- KeyError: '81'",
        ),
        (
            made_from(RuntimeError("no stock"), ConnectionError("the warehouse refused"), OSError("no route")),
            "RuntimeError: no stock (from ConnectionError: the warehouse refused) (from OSError: no route)",
        ),
        (made_from(RuntimeError("no stock"), group(REFUSED)), "RuntimeError: no stock (from ConnectionError: the "),
        (made_from(ToolFailed("Sold out."), REFUSED), "Sold out."),
        (made_from(Retry("Later."), REFUSED), "Later."),
    ],
)
def test_the_model_reads_the_words_of_the_errors_inside(error: Exception, text: str) -> None:
    assert error_text(error).startswith(text)


def test_an_unknown_outcome_is_not_lost_where_the_cleanup_fails() -> None:
    """But a tool that is `raise`d on from another word of its own has said what is to happen."""

    def fails_in_cleanup(word: Exception) -> Exception:
        try:
            try:
                raise word
            finally:
                raise RuntimeError("the connection could not be closed")
        except RuntimeError as error:
            return error

    unknown = OutcomeUnknown("no answer")
    lost = fails_in_cleanup(unknown)
    assert raised.find_error(lost, OutcomeUnknown, also_handled=True) is unknown
    assert raised.find_error(group(lost), OutcomeUnknown, also_handled=True) is unknown
    assert raised.find_error(lost, OutcomeUnknown) is None
    assert not raised.all_are(fails_in_cleanup(Retry("Later.")), (Retry,))
    lost.__suppress_context__ = True  # raise ... from None
    assert raised.find_error(lost, OutcomeUnknown, also_handled=True) is None


def test_of_very_many_errors_the_first_are_told() -> None:
    text = error_text(group(*(ValueError(str(number)) for number in range(5_000))))
    assert text.splitlines()[-2:] == ["- ValueError: 9", "- …"]


UNKNOWN, LATER = OutcomeUnknown("no answer"), Retry(after=5)


@pytest.mark.parametrize(
    ("error", "kinds", "found", "all_of_it"),
    [
        (UNKNOWN, OutcomeUnknown, True, True),
        (group(ValueError(), group(UNKNOWN)), OutcomeUnknown, True, False),
        (made_from(RuntimeError(), ValueError(), UNKNOWN), OutcomeUnknown, True, True),
        (made_from(RuntimeError(), group(ValueError(), UNKNOWN)), OutcomeUnknown, True, True),
        (made_from(group(ValueError()), UNKNOWN), OutcomeUnknown, True, False),
        (made_from(ToolFailed("It was not paid."), UNKNOWN), OutcomeUnknown, False, False),
        (group(REFUSED, REFUSED), ConnectionError, True, True),
        (group(REFUSED, made_from(RuntimeError(), REFUSED)), ConnectionError, True, True),
        (group(REFUSED, ToolFailed("Sold out.")), ConnectionError, True, False),
        (made_from(ToolFailed("Given up."), REFUSED), ConnectionError, False, False),
        (group(NeedsApproval("large"), ValueError()), NeedsApproval, True, False),
    ],
)
def test_the_errors_that_count_are_seen(error: Exception, kinds: type[Exception], found: bool, all_of_it: bool) -> None:
    assert (raised.find_error(error, kinds) is not None) == found
    assert raised.all_are(error, (kinds,)) == all_of_it


def test_errors_that_were_raised_from_each_other_end() -> None:
    first, second = RuntimeError("1"), RuntimeError("2")
    made_from(first, second, first)
    assert raised.find_error(first, OutcomeUnknown) is None
    assert error_text(first).startswith("RuntimeError: 1 (from RuntimeError: 2)")


def test_the_longest_wait_that_one_of_them_asks_for_counts() -> None:
    error = group(LATER, group(Retry(after=timedelta(minutes=1)), Retry()), made_from(ValueError(), Retry(after=30)))
    assert raised.longest_wait(error) == timedelta(minutes=1)


# ---------------------------------------------------------------- errors of other libraries


class Coded(BaseModel):
    code: Annotated[str, Field(pattern=r"\d+")]


LOOK_AHEAD = Annotated[str, Field(pattern=r"^(?!0)\d+$")]


def test_the_reason_of_another_librarys_error_is_told() -> None:
    """It is in the last line, behind four that say where pydantic was."""

    def show(code: LOOK_AHEAD) -> str:
        return code

    with pytest.raises(InvalidTool, match=r"look-ahead and look-behind, is not supported\. Use types"):
        tool(show)
    with pytest.raises(InvalidAgent, match=r"'clerk' has output=.*look-ahead and look-behind, is not supported"):
        Agent("clerk", model="scripted:x", output=list[LOOK_AHEAD])
    with pytest.raises(InvalidTool, match="unclosed group"):
        tool(lambda code: code, name="show", parameters=_late_model())


def _late_model() -> type[BaseModel]:
    class Late(BaseModel):
        model_config = {"defer_build": True}
        code: Annotated[str, Field(pattern="(")]

    return Late


def test_a_time_that_is_no_number_says_nothing_and_the_call_is_tried_again_all_the_same() -> None:
    retry = Retry("Later.", after=float("nan"))
    assert (str(retry), retry.after) == ("Later.", None)
