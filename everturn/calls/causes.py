"""Why an activity or a run failed, in words. The workflow and the readers of its history use the same words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, FailureError, TimeoutError  # noqa: A004 - Temporal's

from everturn import names
from everturn.batching.records import BatchTurn
from everturn.heartbeats.details import SeenReply, beaten_out

LOST_OR_UNREACHED: Final = "its worker was lost, took too long, or could not reach Temporal"
"""Of a time-out: the server has heard nothing in time. If it was away itself, it can't tell a dead worker from one that
it could not hear."""


@dataclass(frozen=True)
class Stall:
    """Why a conversation waits for a person, and what they can do about it before they say `resume`."""

    cause: str
    cure: str | None = None


@dataclass(frozen=True, slots=True)
class FailureCause:
    """What a failure says, in words."""

    cause: str
    kind: str = ""
    """The type that our code gave its error, one of those in names.py; empty for a time-out and its like."""
    cure: str = ""
    fallback: str = ""
    too_long: bool = False
    call_id: str = ""
    tool: str = ""
    """Said by a tool that ran as a local activity, whose event does not say whose it is."""
    left: dict[str, Any] | None = None
    """What a tool that asks a person saved, to continue from."""
    decision: dict[str, Any] | None = None
    """The approval that the call had, said by a tool that ran locally: its event does not have its input."""
    proposed: dict[str, Any] | None = None
    """What hooks made of the arguments that a person put in."""
    batch: dict[str, Any] | None = None
    """The batch that a model turn is to wait for: a BatchTurn."""
    keeps_batch: bool = False
    """The reply is in a batch that is over, and could not be read."""
    webhook: dict[str, Any] | None = None
    """Said by a model turn that stalls: what its agent's webhook is to be sent, as WebhookFacts."""
    lost: bool = False
    """Before it was handed back, a try of it was lost with its worker: it may have taken effect."""
    said: SeenReply | None = None
    """What a cancelled model turn had said when its worker was lost: by its last heartbeat, which is in Temporal's own
    error, and in that of a worker which noticed first."""

    @property
    def not_hosted(self) -> bool:
        """The activity was handed back by workers that don't host its agent or tool, no worker took it, or the one that
        had it was lost before it began."""
        return self.kind in (names.NOT_HOSTED, names.NOT_TAKEN, names.NEVER_STARTED)

    @property
    def batch_turn(self) -> BatchTurn | None:
        """The batch that a model turn is to wait for; None if it did not fail for that."""
        if self.kind != names.BATCHED or self.batch is None:
            return None
        try:
            return BatchTurn.model_validate(self.batch)
        except ValueError:
            return None


def cause_of(error: BaseException) -> FailureCause:
    """What an error of Temporal's says: one that was raised in a workflow, or decoded from a history."""
    # The first one that says something: its own cause is what it was made of, such as the exception that a tool
    # raised, or the failure of the last try before a time-out.
    while not isinstance(error, ApplicationError | TimeoutError) and isinstance(error.__cause__, FailureError):
        error = error.__cause__
    if isinstance(error, TimeoutError):
        kind = error.type.name.lower().replace("_", " ") if error.type else "unknown"
        streamed = beaten_out(error.last_heartbeat_details)
        return FailureCause(cause=f"{LOST_OR_UNREACHED} ({kind} timeout)", said=streamed)
    if not isinstance(error, ApplicationError):
        return FailureCause(cause=str(error))
    details: dict[str, Any] = {}
    if error.details and isinstance(error.details[0], dict):
        details = error.details[0]
    words: dict[str, Any] = {name: str(details.get(name) or "") for name in ("cure", "fallback", "call_id", "tool")}
    return FailureCause(
        kind=error.type or "",
        cause=error.message,
        too_long=bool(details.get("too_long")),
        left=_object_in(details, "left"),
        decision=_object_in(details, "decision"),
        proposed=_object_in(details, "proposed"),
        batch=_object_in(details, "batch"),
        webhook=_object_in(details, "webhook"),
        keeps_batch=bool(details.get("keeps_batch")),
        lost=bool(details.get("lost")),
        said=beaten_out((None, details.get("said"))),
        **words,
    )


def _object_in(details: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = details.get(name)
    if not isinstance(value, dict):
        return None
    return value


async def read_cause(converter: DataConverter, failure: Failure) -> FailureCause:
    return cause_of(await converter.decode_failure(failure))
