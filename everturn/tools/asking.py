"""A tool that asks a person in the middle of its call: the call ends, waits, and is run again with the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from everturn.errors import NotAnswered, ToolFailed
from everturn.sizes import size_of
from everturn.utf8 import mend

if TYPE_CHECKING:
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


# ------------------------------------------------------------ context.ask

MAX_QUESTIONS = 20
"""Of one call. A tool that asks more asks without end."""

QUESTION, ANSWERS = "question", "answers"
"""In what a call leaves: the question that it ended with, and what was answered to those before."""


class AnswerText(str):
    """What a person said. `await` gives it, too, so that a sync tool asks as an async one does."""

    def __await__(self) -> Generator[Any, None, str]:
        return str(self)
        yield


class Questions:
    """What one run of a tool asks by `context.ask`: what was answered before it gets at once, in its order; at the next
    question the run ends."""

    def __init__(self, answer: PersonsAnswer | None = None) -> None:
        left: dict[str, Any] = answer.left if answer else {}
        self._answers: dict[str, list[Any]] = {**left.get(ANSWERS, {})}
        if answer and isinstance(question := left.get(QUESTION), str):
            self._answers[question] = [*self._answers.get(question, ()), [answer.action, answer.text]]
        self._asked: Counter[str] = Counter()
        self.open: AsksPerson | None = None
        """What ended the run, even if the tool has caught that: nobody has answered it."""

    def ask(self, question: str) -> AnswerText:
        """Raises AsksPerson for a question that nobody has answered yet, and NotAnswered."""
        question = mend(str(question))[:MAX_QUESTION_CHARS]
        answers, place = self._answers.get(question, []), self._asked[question]
        self._asked[question] += 1
        if place < len(answers):
            action, text = answers[place]
            if action == "accept":
                return AnswerText(text)
            what = "would not answer" if action == "decline" else "did not answer in time"
            raise NotAnswered(f"The person who was asked {question[:200]!r} {what}.")
        if sum(map(len, self._answers.values())) >= MAX_QUESTIONS:
            raise ToolFailed(f"The tool has asked {MAX_QUESTIONS} questions and can't ask more.")
        left: dict[str, Any] = {QUESTION: question, ANSWERS: self._answers}
        if size_of(left) > MAX_LEFT_BYTES:
            raise ToolFailed(f"The tool's questions and their answers have more than {MAX_LEFT_BYTES:,} bytes.")
        self.open = AsksPerson(question, left=left)
        raise self.open
