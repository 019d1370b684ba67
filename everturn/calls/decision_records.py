"""What people decide on calls, as they send it: signals, and updates of the same names."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from everturn import names
from everturn.policy import MAX_RULES, Condition, Policy, Rule, problem, said_by
from everturn.records import ClosedRecord, Decision, Record, ResultPart, Text
from everturn.sizes import MAX_INPUT_PARTS, storable_json
from everturn.text.iso_times import iso_time_at

VERDICTS: Final = {names.APPROVE: "approved", names.DENY: "denied", names.ANSWER: "answered"}
"""In words."""


def _checked_always(always: Any) -> Any:
    """No conditions at all would hold for any arguments."""
    if isinstance(always, bool):
        return always
    if isinstance(always, dict) and always:
        return storable_json(always)
    raise ValueError("write true, or conditions by argument, such as {'cents': {'at_most': 2000}}")


Always = Annotated[bool | dict[str, Condition], BeforeValidator(_checked_always)]
"""Decide the same on all later calls of this tool, or on those whose arguments meet these conditions."""

ValidUntil = Annotated[float | None, Field(allow_inf_nan=False)]
"""Seconds since 1970: a decision that comes later is not taken."""


class Approve(ClosedRecord):
    call_id: str
    arguments: dict[str, JsonValue] | None = None
    expected: dict[str, JsonValue] | None = None
    """The arguments that the person saw. The approval is refused if the call has others."""
    question: str | None = None
    """The `question` of the call that the person saw. The decision is refused if something else is asked now. So in
    all three."""
    note: str | None = None
    by: str = ""
    always: Always = False
    valid_until: ValidUntil = None

    _storable = field_validator("arguments", "expected", mode="before")(storable_json)


class Deny(ClosedRecord):
    call_id: str
    question: str | None = None
    reason: str | None = None
    by: str = ""
    always: Always = False
    valid_until: ValidUntil = None


class Answer(ClosedRecord):
    """`answer`: the result, in the tool's place. `parts` instead of `content` if it is more than text or JSON."""

    call_id: str
    question: str | None = None
    content: JsonValue = None
    parts: tuple[ResultPart, ...] = Field(default=(), max_length=MAX_INPUT_PARTS)
    is_error: bool = False
    by: str = ""
    valid_until: ValidUntil = None

    _storable = field_validator("content", "parts", mode="before")(storable_json)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if ("content" in self.model_fields_set) == bool(self.parts):
            raise ValueError("an answer has content, or else parts")
        return self

    def as_parts(self) -> tuple[ResultPart, ...]:
        if self.parts:
            return self.parts
        content = self.content
        return (Text(text=content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)),)


DECISION_RECORDS: Final[dict[str, type[Approve | Deny | Answer]]] = {
    names.APPROVE: Approve,
    names.DENY: Deny,
    names.ANSWER: Answer,
}


def verdict_of(decision: Approve | Deny | Answer) -> str:
    """The name of its signal."""
    return next(name for name, record in DECISION_RECORDS.items() if isinstance(decision, record))


class SetPolicy(ClosedRecord):
    """`set_policy`: these rules replace all others."""

    rules: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)]
    by: str = ""


class InheritPolicy(Record):
    """`inherit_policy`: the rules of the conversation that asked for this one, each time when they change there."""

    rules: tuple[Rule, ...] = ()
    by: str = ""


def policy_after(payload: dict[str, Any], known: Policy) -> Policy | None:
    """The rules after a `set_policy`; None if they can't be taken."""
    change = SetPolicy.model_validate(payload)
    policy = said_by(change.by, change.rules, known=known)
    if problem(policy):
        return None
    return policy


def denial_text(denial: Decision, *, begun: bool = False) -> str:
    """What the model is told of a call that was denied. `begun`: a client may have begun it."""
    denied = "This call was denied"
    if denial.by_policy:
        denied += f" by the policy of {denial.by or 'the conversation'}"
    elif denial.by_model:
        denied += f" by the reviewer {denial.by}"
    elif denial.by:
        denied += f" by {denial.by}"
    ran = ". Its client had it already, and may have run it." if begun else " and did not run."
    return f"{denied}{ran}{reason_text(denial)}"


def reason_text(decision: Decision) -> str:
    return f" Reason: {decision.note}" if decision.note else ""


def already_decided(call_id: str, earlier: Decision) -> str:
    """The refusal of a second decision on a call."""
    decided_by = f" by {earlier.by}" if earlier.by else ""
    return f"Call {call_id!r} was already decided: {earlier.verdict}{decided_by} at {earlier.at}."


def too_late(decision: Approve | Deny | Answer, time: float) -> str | None:
    """Why a decision that comes now is not taken; None if it is in time. `time`: of the conversation's clock."""
    if decision.valid_until is None or time <= decision.valid_until:
        return None
    return f"It came {time - decision.valid_until:.1f} s too late: it was valid until {_as_date(decision.valid_until)}."


def _as_date(seconds: float) -> str:
    try:
        return iso_time_at(seconds)
    except (OverflowError, OSError, ValueError):
        return f"{seconds} s since 1970"
