"""A tool that asks a person in the middle of its call: the call ends, waits, and is run again with the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from everturn.errors import NotAnswered, ToolFailed
from everturn.sizes import MAX_LEFT_BYTES, MAX_QUESTION_BYTES, QUESTION_KEY_CHARS, size_of
from everturn.text.shortening import shortened
from everturn.text.utf8 import mend

if TYPE_CHECKING:
    from everturn.payloads import PersonsAnswer


class AsksPerson(Exception):
    """Ends the try: the call waits for an answer, as long as that takes, with no worker and no connection held.

    `carried`: what the next try gets back, as `current_answer().left`, to go on with.
    """

    def __init__(self, question: str, *, carried: dict[str, JsonValue]) -> None:
        super().__init__(question)
        self.question = question
        self.left = carried


_answer: ContextVar[PersonsAnswer | None] = ContextVar("answer", default=None)


def current_answer() -> PersonsAnswer | None:
    """What a person said to the question that an earlier run of this call ended with; None if it had none."""
    return _answer.get()


def set_answer(answer: PersonsAnswer | None) -> None:
    """Sets it for the next tool that runs in this task, or in one started from it."""
    _answer.set(answer)


# ------------------------------------------------------------ context.ask

MAX_QUESTIONS = 20
"""The most questions of one call: a tool, or an MCP server, that asks more might never stop."""

QUESTION = "question"
ANSWERS = "answers"
"""Keys of the data that a try leaves: the question that it ended with, and the answers to earlier ones."""

NAMED_CHARS = 200
"""A longer question is named by its beginning, if nobody answers it."""


class AnswerText(str):
    """A person's answer. `await` returns it, too: sync and async tools ask in the same way."""

    def __await__(self) -> Generator[Any, None, str]:
        return str(self)
        yield


class Questions:
    """The questions that a run of a tool asks by `context.ask`. Those answered before get their answers at once, in
    order; the next question ends the run."""

    def __init__(self, answer: PersonsAnswer | None = None) -> None:
        carried: dict[str, Any] = answer.left if answer else {}
        self._answers: dict[str, list[Any]] = {**carried.get(ANSWERS, {})}
        if answer and isinstance(question := carried.get(QUESTION), str):
            self._answers[question] = [*self._answers.get(question, ()), [answer.action, answer.text]]
        self._asked: Counter[str] = Counter()
        self.open: AsksPerson | None = None
        """The unanswered question that ended the run, even if the tool has caught the exception."""

    def ask_person(self, question: str) -> AnswerText:
        """Raises AsksPerson for a question that nobody has answered yet, and NotAnswered."""
        whole_question = mend(str(question))
        key = whole_question[:QUESTION_KEY_CHARS]
        answers = self._answers.get(key, [])
        place = self._asked[key]
        self._asked[key] += 1
        if place < len(answers):
            action, text = answers[place]
            if action == "accept":
                return AnswerText(text)
            what = "would not answer" if action == "decline" else "did not answer in time"
            question_text = repr(whole_question)
            if len(whole_question) > NAMED_CHARS:
                question_text = f"a question that begins with {whole_question[:NAMED_CHARS]!r}"
            raise NotAnswered(f"The person who was asked {question_text} {what}.")
        if sum(map(len, self._answers.values())) >= MAX_QUESTIONS:
            raise ToolFailed(f"The tool has asked {MAX_QUESTIONS} questions and can't ask more.")
        carried: dict[str, Any] = {QUESTION: key, ANSWERS: self._answers}
        if size_of(carried) > MAX_LEFT_BYTES:
            raise ToolFailed(f"The tool's questions and their answers have more than {MAX_LEFT_BYTES:,} bytes.")
        self.open = AsksPerson(shortened(whole_question, max_bytes=MAX_QUESTION_BYTES), carried=carried)
        raise self.open
