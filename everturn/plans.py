"""The plan for a reply's calls: what the worker that has the agent lets each of them do, for the workflow to follow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from everturn.records import Record

WaitReason = Literal[
    "needs_approval",
    "outcome_unknown",
    "has_not_run",
    "invalid_edit",
    "not_allowed",
    "runs_outside",
    "asks_user",
    "tool_asks",
]
"""What a call waits for a person for:

- `needs_approval`: its tool asks for one before it runs.
- `outcome_unknown`: it may have run already, and an approval runs it again. For as long as that is so, this is the
  reason, whatever else happens to the call.
- `has_not_run`: it was approved, or needed no approval, and it is certain that its run did not begin.
- `invalid_edit`: the arguments that a person put in do not fit.
- `not_allowed`: the last person to decide may not.
- `runs_outside`: somebody is to send its result.
- `asks_user`: the model has a question.
- `tool_asks`: the tool has one, in the middle of its call, which is run again with the answer.
"""


class Expiry(Record):
    """What happens to a call that nobody decides on: after so many seconds, this verdict."""

    after: float
    verdict: Literal["deny", "approve"] = "deny"
    remind_before: float | None = None


class RunTool(Record):
    """Plan for a call: run the tool, after a human's approval if `approval` says why."""

    kind: Literal["run"] = "run"
    call_id: str
    effect: Literal["read", "idempotent", "once"] = "idempotent"
    timeout: float = 600.0
    patience: float = 1800.0
    approval: str | None = None
    expiry: Expiry | None = None
    local: bool = False
    """Run it as a local activity: quicker, and not for what takes long or must not be repeated."""
    policy: bool = False
    """The agent says who may decide: ask it."""


class AwaitAnswer(Record):
    """Plan for a call: it runs outside; wait until somebody answers it."""

    kind: Literal["await"] = "await"
    call_id: str
    why: str = ""
    reason: WaitReason = "runs_outside"
    expiry: Expiry | None = None


class RefuseCall(Record):
    """Plan for a call: it can't run as it is, and this is what the model is told."""

    kind: Literal["refuse"] = "refuse"
    call_id: str
    text: str


class RunAgent(Record):
    """Plan for a call: another agent answers it, in a conversation of its own."""

    kind: Literal["agent"] = "agent"
    call_id: str
    agent: str


PlannedCall = Annotated[RunTool | RunAgent | AwaitAnswer | RefuseCall, Field(discriminator="kind")]
