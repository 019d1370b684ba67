"""A tool that ran, and whose result can't be shown, says that it ran."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_serializer

from everturn import Document, Image, Text, ToolContext, ToolFailed, tool
from everturn.tools.results import error_text
from everturn.tools.unwritten_results import UnwrittenResult
from tests.support.vendors import langchain_callbacks, langchain_tools

CONTEXT = ToolContext(call_id="c1")


class Receipt:
    """Of the user's own: pydantic does not know it."""


class Broken(BaseModel):
    number: int = 81

    @field_serializer("number")
    def _number(self, number: int) -> int:
        raise LookupError(f"no words for {number}")


def lines() -> Iterator[int]:
    yield 1
    raise ConnectionError("the line broke")


def slow() -> Iterator[int]:
    time.sleep(2)
    yield 1


def holds_itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


RESULTS: dict[str, tuple[Any, str]] = {
    "a class of the user's own": (Receipt, "a Receipt, which can't be written as JSON"),
    "within a list": (lambda: [{"receipt": Receipt()}], "can't be written as JSON"),
    "bytes": (lambda: b"\x00", "Return a str"),
    "a picture that is no base64": (lambda: Image(data="%%%", media_type="image/png"), "not base64"),
    "a picture whose address can't be written": (lambda: Image(url="https://x/\ud83d"), ""),
    "a document with such a name": (lambda: Document(url="https://x/", name="\ud83d"), ""),
    "parts and something else": (lambda: [Text(text="a"), Receipt()], "its item 1 is a Receipt"),
    "an iterator that raises": (lines, "the line broke"),
    "an iterator in an object": (lambda: {"lines": lines()}, "the line broke"),
    "an iterator that takes too long": (slow, "The tool ran"),
    "a model that raises": (Broken, "no words for 81"),
    "a list that holds itself": (holds_itself, "can't be written as JSON"),
}


@pytest.mark.parametrize(("make", "reason"), RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_result_that_can_not_be_shown_says_that_the_tool_ran(make: Any, reason: str, kind: str) -> None:
    def pay() -> Any:
        return make()

    async def pay_later() -> Any:
        return make()

    function = pay if kind == "sync" else pay_later
    timeout = timedelta(seconds=0.2 if make is slow else 60)
    with pytest.raises(UnwrittenResult) as failure:
        await tool(function, name="pay", timeout=timeout).run({}, CONTEXT)
    text = error_text(failure.value)
    assert text.startswith("The tool ran, and what it did stands: do not call it again")
    assert reason in text


async def test_what_an_iterator_says_outright_is_the_tools_own_word() -> None:
    def pages() -> Iterator[int]:
        raise ToolFailed("Sold out.")
        yield 1

    def book() -> Any:
        return pages()

    with pytest.raises(ToolFailed, match=r"^Sold out\.$"):
        await tool(book).run({}, CONTEXT)


class Unwritable:
    def __repr__(self) -> str:
        raise LookupError("no words")


def broken_log() -> Any:
    class BrokenLog(langchain_callbacks.BaseCallbackHandler):
        raise_error = True

        def on_tool_end(self, *_: Any, **__: Any) -> None:
            raise ConnectionError("the log is down")

    return BrokenLog()


AFTER_LANGCHAIN_TOOLS: dict[str, tuple[Any, Callable[[], dict[str, Any]], str]] = {
    "no artifact": ("paid", lambda: {"response_format": "content_and_artifact"}, "two-tuple"),
    "one too many": (("paid", 1, 2), lambda: {"response_format": "content_and_artifact"}, "two-tuple"),
    "a callback that raises": ("paid", lambda: {"callbacks": [broken_log()]}, "the log is down"),
    "no words for it": (Unwritable(), dict, "no words"),
}


@pytest.mark.parametrize(("returned", "options", "reason"), AFTER_LANGCHAIN_TOOLS.values(), ids=AFTER_LANGCHAIN_TOOLS)
@pytest.mark.parametrize("kind", ["sync", "async", "class"])
async def test_what_fails_in_langchain_after_its_tool_says_that_the_tool_ran(
    returned: Any, options: Callable[[], dict[str, Any]], reason: str, kind: str
) -> None:
    def pay() -> Any:
        return returned

    async def pay_later() -> Any:
        return returned

    class Pay(langchain_tools.BaseTool):
        name: str = "pay"
        description: str = "Pays."
        times: int = 0

        def _run(self) -> Any:
            self.times += 1
            return returned

    given: dict[str, Any] = {"func": pay} if kind == "sync" else {"coroutine": pay_later}
    paying = langchain_tools.StructuredTool.from_function(**given, name="pay", description="Pays.", **options())
    if kind == "class":
        paying = Pay(**options())
    with pytest.raises(UnwrittenResult) as failure:
        await tool(paying).run({}, CONTEXT)
    text = error_text(failure.value)
    assert text.startswith("The tool ran, and what it did stands: do not call it again")
    assert reason in text
    assert getattr(paying, "times", 1) == 1  # its own, not a copy's


async def test_what_fails_in_langchain_before_or_in_its_tool_is_told_as_it_is() -> None:
    class Refusing(langchain_callbacks.BaseCallbackHandler):
        raise_error = True

        def on_tool_start(self, *_: Any, **__: Any) -> None:
            raise PermissionError("not on Sundays")

    def pay() -> str:
        raise ConnectionError("the bank is down")

    for callbacks, error in (([], ConnectionError), ([Refusing()], PermissionError)):
        paying = langchain_tools.StructuredTool.from_function(
            func=pay, name="pay", description="Pays.", callbacks=callbacks
        )
        with pytest.raises(error):
            await tool(paying).run({}, CONTEXT)
