"""A tool that says that its failure passes: tried again, as long as its patience lasts, and never if it runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, OutcomeUnknown, Patience, Retry, ToolContext, tool
from everturn.activities import tool_calls
from everturn.activities.model_turns import ModelTurns
from everturn.errors import InvalidTool, NeedsApproval
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.waiting import reaches, waiting

Scripted = Callable[..., ScriptedModel]


async def _told(client: Client, scripted: Scripted, book: Any, **options: Any) -> tuple[str, bool]:
    """What the model was told of one call, and whether that was an error."""
    agent = agent_on(scripted([call(book.name), "Done."]), tools=[book])
    async with hosting(client, agent, **options):
        conversation = await client.start(agent, "Book it")
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    return result.text, result.is_error


@pytest.mark.parametrize("local", [False, True], ids=["activity", "local"])
async def test_a_call_is_tried_again_after_the_time_that_its_tool_names(
    client: Client, scripted: Scripted, cached_conversations: int, local: bool
) -> None:
    tries: list[tuple[int, str]] = []

    @tool(effect="read", timeout=timedelta(seconds=5), local=local)
    def book(context: ToolContext) -> str:
        tries.append((context.attempt, context.idempotency_key))
        if len(tries) < 3:
            raise Retry("The books are locked.", after=timedelta(milliseconds=100))
        return "booked"

    told = await _told(client, scripted, book, cached_conversations=cached_conversations)
    assert told == ("booked", False)
    assert [attempt for attempt, _ in tries] == [1, 2, 3]
    assert len({key for _, key in tries}) == 1


async def test_named_exceptions_are_tried_again_and_others_are_not(client: Client, scripted: Scripted) -> None:
    raised: list[Exception] = [ConnectionResetError("reset"), TimeoutError("slow"), KeyError("81")]

    @tool(retry=(ConnectionError, TimeoutError))
    async def book() -> str:
        raise raised.pop(0)

    assert await _told(client, scripted, book) == ("KeyError: '81'", True)
    assert raised == []


async def test_the_model_is_told_once_patience_is_over(client: Client, scripted: Scripted) -> None:
    @tool(timeout=timedelta(seconds=1), patience=timedelta(seconds=1))
    def book() -> str:
        raise Retry("The books are locked.", after=0.3)

    text, is_error = await _told(client, scripted, book)
    assert text.startswith("The books are locked. It was tried ")
    assert text.endswith(" times, for as long as 0:00:01.")
    assert is_error


async def test_a_wait_longer_than_patience_is_not_begun(client: Client, scripted: Scripted) -> None:
    @tool
    def book() -> str:
        raise Retry("The books are locked.", after=timedelta(days=1))

    text, is_error = await _told(client, scripted, book)
    assert text == "The books are locked. It was tried 1 time, for as long as 0:30:00."
    assert is_error


async def test_a_run_once_call_is_never_tried_again_and_says_so(client: Client, scripted: Scripted) -> None:
    tries: list[int] = []

    @tool(effect="once")
    def book() -> str:
        tries.append(1)
        raise Retry("The books are locked.")

    text, is_error = await _told(client, scripted, book)
    assert text == "The books are locked. It is not tried again: book has effect='once', so it runs only once."
    assert is_error
    assert tries == [1]


class Speechless(Exception):
    """As SDKs have them: `__str__` reads what is not always there."""

    def __str__(self) -> str:
        return str(self.response)  # type: ignore[attr-defined]


def nameless() -> Exception:
    class Unnamed(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise RuntimeError("no name")

    class Nameless(Exception, metaclass=Unnamed): ...

    return Nameless()


ASKED_TWICE = {"timeout": timedelta(seconds=1), "patience": timedelta(seconds=1)}


@pytest.mark.parametrize(("error", "name"), [(Speechless, "Speechless"), (nameless, "Nameless")], ids=["words", "name"])
async def test_an_exception_without_words_or_name_ends_as_any_other(
    client: Client, scripted: Scripted, error: Callable[[], Exception], name: str
) -> None:

    @tool(**ASKED_TWICE)
    def book(how: int) -> str:
        raise [error(), Retry(error()), NeedsApproval(error())][how]  # type: ignore[arg-type]

    made = error()

    @tool(retry=(type(made),), **ASKED_TWICE)
    def listed() -> str:
        raise made

    calls = [*(call("book", {"how": how}, id=str(how)) for how in range(3)), call("listed", id="3")]
    agent = agent_on(scripted([calls, "Done."]), tools=[book, listed])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        (asked,) = (await conversation.status()).waiting
        assert asked.why == ("Speechless" if error is Speechless else "book needs approval")
        await conversation.deny(asked.call_id)
        assert (await conversation.outcome()).text == "Done."
    raised, retried, _, patient = [result.text for result in results_of(await conversation.transcript())]
    assert raised == name
    assert all("It was tried" in text for text in (retried, patient))


async def test_what_nobody_foresaw_is_retried_for_the_tools_patience_and_no_longer(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise Speechless

    monkeypatch.setattr(tool_calls.HookRuns, "after_tool", broken)

    @tool(**ASKED_TWICE)
    def book() -> str:
        return "booked"

    text, is_error = await _told(client, scripted, book)
    assert is_error
    assert text.startswith("book has no result: Speechless (tried ")
    assert text.endswith("for 0:00:01). It may or may not have taken effect.")


async def test_a_turn_whose_error_nobody_foresaw_stalls_when_the_agents_patience_is_over(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise Speechless

    agent = agent_on(scripted(["Done."]), patience=Patience(model=timedelta(seconds=1)))
    async with hosting(client, agent):
        with monkeypatch.context() as breaking:
            breaking.setattr(ModelTurns, "_prepare_turn", broken)
            conversation = await client.start(agent, "Go")
            status = await reaches(conversation, "stalled")
        assert status.cause is not None
        assert status.cause.startswith("Speechless (tried ")
        await conversation.resume()
        assert await conversation.reply() == "Done."


LONG = 5_000_000
"""More than a message to the server may have."""


@pytest.mark.long
async def test_a_long_text_is_reported_shortened_and_is_no_lost_worker(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    tries: dict[str, list[int]] = {}

    def book(where: str, how: str, attempt: int) -> str:
        tries.setdefault(f"{how} {where}", []).append(attempt)
        if attempt > 2:
            return "booked"
        if how == "listed":
            raise ConnectionError("y" * LONG)
        try:
            raise ValueError("z" * LONG)
        except ValueError:
            raise Retry("x" * LONG if how == "Retry" else "short", after=0.1)  # noqa: B904 - as it is written

    @tool(retry=(ConnectionError,), effect="read", timeout=timedelta(seconds=5))
    def activity(how: str, context: ToolContext) -> str:
        return book("activity", how, context.attempt)

    @tool(retry=(ConnectionError,), effect="read", local=True, timeout=timedelta(seconds=5))
    def local(how: str, context: ToolContext) -> str:
        return book("local", how, context.attempt)

    caplog.set_level("INFO")
    cases = [(where, how) for where in ("activity", "local") for how in ("Retry", "listed", "chained")]
    calls = [call(where, {"how": how}, id=f"{how}_{where}") for where, how in cases]
    agent = agent_on(scripted([calls, "Done."]), tools=[activity, local])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Book it")
        assert (await conversation.outcome()).text == "Done."
    results = results_of(await conversation.transcript())
    assert {result.call_id: (result.text, result.is_error) for result in results} == {
        f"{how}_{where}": ("booked", False) for where, how in cases
    }
    assert tries == {f"{how} {where}": [1, 2, 3] for where, how in cases}
    assert len(caplog.text) < LONG / 10


async def test_the_model_is_told_as_much_of_a_long_text_as_of_any_result(client: Client, scripted: Scripted) -> None:
    @tool(effect="once")
    def book() -> str:
        raise Retry("x" * LONG)

    text, is_error = await _told(client, scripted, book)
    assert is_error
    assert text.startswith("x" * 10_000)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"retry": ConnectionError, "effect": "once"}, "effect='once', which is never retried"),
        ({"retry": "ConnectionError"}, "Write exception types"),
        ({"retry": (KeyboardInterrupt,)}, "Write exception types"),
        ({"retry": ConnectionError, "runs_on": "client"}, "no worker runs it"),
    ],
)
def test_what_can_not_be_retried_is_refused_where_the_tool_is_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidTool, match=problem):
        tool(lambda: "booked", name="book", **options)


async def test_a_run_once_call_that_says_that_its_outcome_is_unknown_waits_for_a_person(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """As a failure, the model read it, and asked for the payment once more."""
    paid: list[int] = []

    @tool(effect="once")
    def pay(cents: int) -> str:
        paid.append(cents)
        raise OutcomeUnknown("The bank did not answer." + "x" * 5_000_000)

    agent = agent_on(scripted([call("pay", {"cents": 5}, id="c1"), "Done."]), tools=[pay])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay it")
        assert await waiting(conversation) == ("c1",)
        (call_,) = (await conversation.status()).waiting
        assert call_.reason == "outcome_unknown"
        assert "The bank did not answer." in call_.why
        await conversation.answer("c1", "paid, says the bank")
        assert await conversation.reply() == "Done."
    [result] = results_of(await conversation.transcript())
    assert (result.text, paid) == ("paid, says the bank", [5])


async def test_an_unknown_outcome_of_what_may_run_twice_is_tried_again(client: Client, scripted: Scripted) -> None:
    raised = [OutcomeUnknown("No answer.")]

    @tool
    def book() -> str:
        if raised:
            raise raised.pop()
        return "booked"

    assert await _told(client, scripted, book) == ("booked", False)


async def _in_a_task_group(*errors: Exception) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(fail(error))


async def test_what_a_task_group_raised_is_tried_again_if_all_of_it_passes(client: Client, scripted: Scripted) -> None:
    raised: list[tuple[Exception, ...]] = [
        (Retry("The books are locked.", after=timedelta(milliseconds=50)), ConnectionResetError("reset")),
        (ConnectionResetError("reset"), KeyError("81")),
    ]

    @tool(retry=ConnectionError)
    async def book() -> str:
        await _in_a_task_group(*raised.pop(0))
        return "booked"

    text, is_error = await _told(client, scripted, book)
    assert is_error
    assert text.splitlines()[1:] == ["- ConnectionResetError: reset", "- KeyError: '81'"]
    assert raised == []


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda error: ExceptionGroup("", [ValueError("no"), ExceptionGroup("", [error])]),
        lambda error: _from(RuntimeError("could not pay"), error),
    ],
    ids=["in a group", "raised from it"],
)
async def test_an_unknown_outcome_is_seen_in_a_group_and_behind_another_error(
    client: Client, scripted: Scripted, wrapped: Callable[[Exception], Exception]
) -> None:
    @tool(effect="once")
    async def pay(cents: int) -> str:
        raise wrapped(OutcomeUnknown("The bank did not answer."))

    agent = agent_on(scripted([call("pay", {"cents": 5}, id="c1"), "Done."]), tools=[pay])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Pay it")
        assert await waiting(conversation) == ("c1",)
        (call_,) = (await conversation.status()).waiting
        assert call_.reason == "outcome_unknown"
        assert "The bank did not answer." in call_.why


def _from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error
