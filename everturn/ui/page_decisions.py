"""What a page sends as a person's decisions and results: whether it fits what is asked, and carrying it out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import JsonValue
from starlette.exceptions import HTTPException

from everturn.client.conversation import Conversation
from everturn.errors import Ended, Refused
from everturn.payloads import WaitingCall
from everturn.text.browser_values import is_same_in_browser, with_exact_values
from everturn.text.json_text import json_text
from everturn.text.shortening import shortened
from everturn.ui.narrator import question_id

MAX_SHOWN_BYTES: Final = 500
"""Of arguments, in an error that a page shows."""

Said = TypeVar("Said", "PageDecision", "PageResult")


@dataclass(frozen=True)
class PageDecision:
    """A person's answer to one question: whether a call may run, perhaps with other arguments."""

    question_id: str
    call_id: str
    """The call at which the page answers the question; empty if it does not say."""
    approved: bool
    reason: str | None = None
    arguments: dict[str, JsonValue] | None = None
    expected: dict[str, JsonValue] | None = None
    """The arguments that the page showed."""


@dataclass(frozen=True)
class PageResult:
    """The result of a call that the page has run."""

    call_id: str
    content: JsonValue
    is_error: bool = False


@dataclass(frozen=True)
class WaitingForPage:
    """What waits for the person at a page."""

    questions: Mapping[str, WaitingCall]
    """The calls that wait for an approval, by the id of the question about each."""
    answers: Mapping[str, WaitingCall]
    """The calls that wait for a result, by call_id."""

    @classmethod
    def from_calls(cls, calls: Sequence[WaitingCall]) -> WaitingForPage:
        return cls(
            {question_id(call): call for call in calls if call.needs == "approval"},
            {call.call_id: call for call in calls if call.needs == "answer"},
        )

    def find_misfits(self, choices: Iterable[PageDecision]) -> Iterator[str]:
        """What the page showed beside a question, if that is not what the question is about."""
        for choice in choices:
            call = self.questions[choice.question_id]
            if choice.call_id not in ("", call.call_id):
                yield (
                    f"The page answers the question about the call {call.call_id!r} at the call "
                    f"{choice.call_id!r:.200}. Nothing was decided: load the page again."
                )
            elif choice.expected is not None and not is_same_in_browser(call.arguments, choice.expected):
                yield (
                    f"The page shows other arguments of the call {call.call_id!r} than it has: "
                    f"{shortened(json_text(call.arguments), max_bytes=MAX_SHOWN_BYTES)}. Nothing was decided: load "
                    "the page again."
                )


class PageDecisions:
    """Carries out what a page sends. `read_waiting`: what the conversation waits for now."""

    def __init__(
        self, conversation: Conversation, read_waiting: Callable[[], Awaitable[WaitingForPage]], *, may_decide: bool
    ) -> None:
        self._conversation = conversation
        self._read_waiting = read_waiting
        self._may_decide = may_decide

    async def carry_out(self, choices: Sequence[PageDecision], outputs: Sequence[PageResult]) -> tuple[bool, list[str]]:
        """Carries out the person's decisions, as far as they are still asked for. Returns whether there were any such,
        and why decisions were refused.

        A call that was decided meanwhile, by this person's first attempt or by somebody else, keeps that decision:
        the answer shows its result. What a page sends together is checked together: if one thing in it does not fit
        what is asked, nothing of it is carried out. Raises HTTPException, NotFound and Unreachable.
        """
        waiting = await self._read_waiting()
        open_choices = [choice for choice in choices if choice.question_id in waiting.questions]
        open_outputs = [output for output in outputs if output.call_id in waiting.answers]
        if open_choices and not self._may_decide:
            raise HTTPException(403, "You may not decide on this call.")
        if problems := [*_find_contradictions(open_choices, open_outputs), *waiting.find_misfits(open_choices)]:
            return True, problems
        try:
            todo: list[tuple[str, Awaitable[str]]] = [
                *[(choice.question_id, self._decide_call(choice, waiting)) for choice in _each_once(open_choices)],
                *[(output.call_id, self._answer_call(output, waiting)) for output in _each_once(open_outputs)],
            ]
        except Refused as error:
            return True, [f"{error.message} {error.cure}"]
        refusals = await asyncio.gather(*(doing for _, doing in todo))
        if any(refusals):  # somebody else may have decided a moment earlier
            waiting = await self._read_waiting()
        still_asked = {*waiting.questions, *waiting.answers}
        named = zip((name for name, _ in todo), refusals, strict=True)
        return bool(todo), [refusal for name, refusal in named if refusal and name in still_asked]

    def _decide_call(self, choice: PageDecision, waiting: WaitingForPage) -> Awaitable[str]:
        """The decision, to be awaited. It is about the call of the question, and about the arguments that this call
        has. Raises Refused for an edit that a browser may have changed."""
        conversation = self._conversation
        call = waiting.questions[choice.question_id]
        is_of_sub_agent = bool(call.path)
        if not choice.approved:
            return _unless_refused(
                lambda: conversation.deny(call.call_id, choice.reason, expected=call, children=is_of_sub_agent)
            )
        edited = choice.arguments
        if edited is not None:
            edited = _arguments_with_exact_values(call, edited)
        return _unless_refused(
            lambda: conversation.approve(
                call.call_id, edited, note=choice.reason, expected=call, children=is_of_sub_agent
            )
        )

    def _answer_call(self, output: PageResult, waiting: WaitingForPage) -> Awaitable[str]:
        conversation = self._conversation
        is_of_sub_agent = bool(waiting.answers[output.call_id].path)
        return _unless_refused(
            lambda: conversation.answer(
                output.call_id, output.content, is_error=output.is_error, children=is_of_sub_agent
            )
        )


def _find_contradictions(choices: Iterable[PageDecision], outputs: Iterable[PageResult]) -> Iterator[str]:
    """What the page says in two ways at once."""
    decisions_by_name: dict[str, PageDecision | PageResult] = {}
    named: list[tuple[str, PageDecision | PageResult]] = [
        *((choice.question_id, choice) for choice in choices),
        *((output.call_id, output) for output in outputs),
    ]
    for name, decision in named:
        if decisions_by_name.setdefault(name, decision) != decision:
            yield f"The page sends two different answers for the call {decision.call_id!r:.200}. Nothing was decided."


def _each_once(decisions: Iterable[Said]) -> list[Said]:
    """The same thing may stand in two parts of a message."""
    distinct: list[Said] = []
    for thing in decisions:
        if thing not in distinct:
            distinct.append(thing)
    return distinct


def _arguments_with_exact_values(call: WaitingCall, edited: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raises Refused."""
    exact = with_exact_values(call.arguments, edited)
    assert isinstance(exact, dict)
    return exact


async def _unless_refused(decide: Callable[[], Any]) -> str:
    try:
        await decide()
    except Refused as error:
        return error.message
    except Ended:
        return ""
    return ""
