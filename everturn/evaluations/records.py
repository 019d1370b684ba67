"""What the workflows and activities of evaluations send each other, and what an evaluation comes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import Field

from everturn.records import Record, Usage
from everturn.sizes import MAX_ID_BYTES, MAX_NAME_CHARS

MAX_RESULTS: Final = 20
"""Of one evaluation."""

MAX_EXPLANATION_CHARS: Final = 2_000
"""Of one result. They are in the memo, which lists of evaluations are read from."""

MAX_LABEL_CHARS: Final = 200


class EvaluationResult(Record):
    """One thing that an evaluator said about an answer."""

    name: str
    """What was judged: the evaluator's name, unless it judges several things."""
    score: float | None = None
    """1 or 0 for True or False."""
    label: str = ""
    """A text, or `pass` or `fail` for True or False."""
    reason: str = ""


def lowest_score(results: Iterable[EvaluationResult]) -> float | None:
    """None if no result has a score."""
    return min((result.score for result in results if result.score is not None), default=None)


class Judgement(Record):
    """What an evaluation came to."""

    results: tuple[EvaluationResult, ...] = Field(default=(), max_length=MAX_RESULTS)
    error: str = ""
    """The type of the error that kept the evaluator from judging; empty if it judged."""
    error_text: str = ""
    usage: Usage = Usage()
    """What judging took, beside the conversation's own."""
    cost_usd: float | None = 0.0
    """The same in US dollars; None if a price is not known."""
    seconds: float = 0.0
    version: str | None = None
    """Of the evaluator that judged, which a deploy may have changed since it was asked; None: the one that was asked
    for."""

    @property
    def lowest_score(self) -> float | None:
        return lowest_score(self.results)

    @property
    def label(self) -> str:
        """The label of the result with the lowest score, or else the first one."""
        labelled = [result for result in self.results if result.label]
        lowest = [result for result in labelled if result.score == self.lowest_score]
        return next((result.label for result in lowest or labelled), "")


class SpentBefore(Record):
    """What the tries so far have spent, from one to the next."""

    usage: Usage = Usage()
    cost_usd: float | None = 0.0


class EvaluationRequest(Record):
    """The input of an evaluation: which answer, and which evaluator."""

    conversation_id: str = Field(max_length=MAX_ID_BYTES)
    run_id: str
    turn: int
    answered_at: float
    """When it was given: seconds since 1970."""
    agent: str = Field(max_length=MAX_NAME_CHARS)
    """With its version."""
    evaluator: str = Field(max_length=MAX_NAME_CHARS)
    version: str = ""
    """The evaluator's."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds that one try may take."""
    silence: float = Field(default=15.0, gt=0)
    """Seconds after which a worker that says nothing counts as lost."""
    indexed: bool = False
    """The namespace has the search attributes of evaluations."""
    minimal: bool = False
    """The conversation shows as little as possible in Temporal."""


class EvaluationMemo(EvaluationRequest):
    """An evaluation that is over, as its memo and its result have it."""

    judgement: Judgement


class LookingStart(Record):
    """The input of the workflow that looks for answers, and what its run hands to the next."""

    since: float = 0.0
    """Up to when it has looked: seconds since 1970. 0: answers count from now on."""
    first: float = 0.0
    """When it first looked: earlier answers are not judged."""


class LookRequest(Record):
    """The input of `look_for_answers`."""

    since: float
    first: float


class LookResult(Record):
    """What one look came to."""

    until: float
    """It has seen what was given by then."""
    pause: float
    """Seconds until the next look."""
    started: int = 0
    """How many evaluations."""
