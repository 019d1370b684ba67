"""A decision on a call, on its way from whoever decided to the call's task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from everturn.carryover import QuestionToPerson
from everturn.payloads import PersonsAnswer
from everturn.policy import Policy
from everturn.records import Decision, ResultPart, Text, on_lines
from everturn.truncation import shortened_reason


@dataclass(frozen=True)
class AppliedDecision:
    """A decision as it is passed to its call. Only an answer has `content` and `is_error`."""

    decision: Decision
    content: tuple[ResultPart, ...] = ()
    is_error: bool = False
    by_rule: bool = False
    """The decision comes from an expiry, from a closing conversation, or since no rule asks for one any more: not from
    a person, so `approvers` are not asked."""
    asks_first: bool = False
    """This is no decision: a rule wants an approval first, before the call runs outside."""
    rules: Policy = ()
    """Those when it was made: one that comes later may still deny the call."""

    def as_answer_to(self, question: QuestionToPerson) -> PersonsAnswer:
        """The answer for the tool that asked."""
        decided_by = shortened_reason(self.decision.by)
        details = question.left or {}
        if self.decision.verdict != "answer":
            return PersonsAnswer(action="decline", by=decided_by, left=details)
        text = on_lines([part.text for part in self.content if isinstance(part, Text)])
        action: Literal["accept", "cancel"] = "cancel" if self.is_error else "accept"
        return PersonsAnswer(action=action, text=text, by=decided_by, left=details)
