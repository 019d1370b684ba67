"""A tool that asks a person in the middle of its call: the call ends, waits, and is run again with the answer."""

from __future__ import annotations

from contextvars import ContextVar

from pydantic import JsonValue

from everturn.payloads import PersonsAnswer

MAX_QUESTION_CHARS = 4_000

MAX_LEFT_BYTES = 48_000
"""Of what a call leaves to the one with the answer. It enters the history twice."""


class AsksPerson(Exception):
    """Ends the try: the call waits for an answer, as long as that takes, with no worker and no connection held.

    `left`: what the next try gets back, as `answered().left`, to go on with.
    """

    def __init__(self, question: str, *, left: dict[str, JsonValue]) -> None:
        super().__init__(question)
        self.question = question
        self.left = left


class OutcomeUnknown(Exception):
    """The call was sent, and what became of it can't be known: it is tried again only if that does no harm."""


_answer: ContextVar[PersonsAnswer | None] = ContextVar("answer", default=None)


def answered() -> PersonsAnswer | None:
    """What a person said to the question that an earlier run of this call ended with; None if it had none."""
    return _answer.get()


def set_answer(answer: PersonsAnswer | None) -> None:
    """For the tool that is run next in this task, or from it."""
    _answer.set(answer)
