"""What happens in a conversation, one step for each event of its history. All readers of histories fold over these."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everturn.batching.records import BatchNotice, BatchTurn
from everturn.carryover import PackedTranscript
from everturn.heartbeats.details import SeenReply
from everturn.payloads import DecisionCheck, MessageIn, ModelReply, ModelRequest, Start, ToolRequest
from everturn.records import Outcome, ToolResult


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: at event `id` of its run, at the server's time `at`.

    A plain Step is an event that only Temporal needs.
    """

    id: int
    at: datetime


@dataclass(frozen=True, slots=True)
class RunStarted(Step):
    start: Start
    previous_run_id: str = ""
    """Set if the run continues another."""


@dataclass(frozen=True, slots=True)
class WorkflowTaskCompleted(Step):
    """A worker has taken in all that came before, and done what follows from it. Waiting calls can now be decided."""

    time: float = 0.0
    """The conversation's clock at that moment: seconds since 1970."""


@dataclass(frozen=True, slots=True)
class MessageSent(Step):
    said: MessageIn
    accepted: bool = False
    """It came as an update, and the conversation has taken it. A signal may still be passed over."""


@dataclass(frozen=True, slots=True)
class CommandSent(Step):
    """A signal or an accepted update other than `message`; `payload` as it came."""

    name: str
    payload: dict[str, Any]
    accepted: bool = False
    """As in MessageSent."""


Sent = MessageSent | CommandSent
"""What people send."""


@dataclass(frozen=True, slots=True)
class TurnScheduled(Step):
    request: ModelRequest
    activity_id: str = ""


@dataclass(frozen=True, slots=True)
class TurnCompleted(Step):
    request: ModelRequest
    reply: ModelReply
    attempt: int = 1
    """The turn that the reply belongs to."""


@dataclass(frozen=True, slots=True)
class TurnFailed(Step):
    request: ModelRequest
    cause: str
    cure: str
    fallback: str = ""
    """The model that goes on in its place."""
    passing: bool = False
    """The conversation does not stall. It goes on by itself: it shows the model less, or waits for a worker."""
    awaited: bool = False
    """It waits for a worker that hosts its agent, or for a batch: then the same request is made again."""
    batch: BatchTurn | None = None
    """The batch that it waits for."""


@dataclass(frozen=True, slots=True)
class BatchTold(Step):
    """What became of a turn that waits in a batch."""

    notice: BatchNotice


@dataclass(frozen=True, slots=True)
class TurnCancelled(Step):
    """A turn that the conversation has cancelled ended without a reply."""

    request: ModelRequest
    said: SeenReply | None = None
    """What it had said when its worker was lost."""


@dataclass(frozen=True, slots=True)
class TranscriptKept(Step):
    """The messages of earlier runs were brought into this one."""

    messages: PackedTranscript


@dataclass(frozen=True, slots=True)
class PrefixExtended(Step):
    """Messages that no model had seen became a part of the prefix, because they were too large to hand to the next
    run."""

    request: ModelRequest
    digest: str = ""
    """The digest of the prefix with them."""


@dataclass(frozen=True, slots=True)
class ReminderFired(Step):
    """A waiting call is about to expire."""

    call_id: str


@dataclass(frozen=True, slots=True)
class CallExpired(Step):
    """Nobody decided on a call in time."""

    call_id: str


@dataclass(frozen=True, slots=True)
class ToolScheduled(Step):
    tool: str
    request: ToolRequest
    activity_id: str = ""
    conversation_id: str = ""
    """Of the agent that is the tool, if it is one."""


@dataclass(frozen=True, slots=True)
class ToolCompleted(Step):
    tool: str
    request: ToolRequest
    result: ToolResult
    outcome: Outcome | None = None
    """Of the agent that is the tool, if it is one."""
    local: bool = False
    """It ran as a local activity. Its only event is a marker, which the conversation itself wrote."""


@dataclass(frozen=True, slots=True)
class ActivityEnded(Step):
    """A user's own activity that ended: with an output, or with an error that the model is told."""

    tool: str
    request: ToolRequest
    result: ToolResult
    """Made from what the event holds. The transcript's result also holds the note of the person who approved the
    call."""


@dataclass(frozen=True, slots=True)
class ToolRunFailed(Step):
    """A tool's activity that ended without a result."""

    tool: str
    request: ToolRequest
    cause: str
    kind: str
    """The type of the error, such as InvalidEdit; empty for a timeout."""
    cure: str = ""
    awaited: bool = False
    """No worker has taken the tool yet. The conversation waits for one."""
    stalled: bool = False
    """No worker took the tool within its patience. The conversation waits for a person."""
    left: dict[str, Any] | None = None
    """As in FailureCause."""
    again: bool = False
    """It is tried again immediately: a user's own activity that was lost with its worker."""
    local: bool = False
    """As in ToolCompleted."""
    proposed: dict[str, Any] | None = None
    """As in FailureCause."""


@dataclass(frozen=True, slots=True)
class CheckScheduled(Step):
    """A worker is to look at a call before it begins."""

    call_id: str


@dataclass(frozen=True, slots=True)
class CallChecked(Step):
    """A worker has looked at a call before it runs elsewhere: it may."""

    request: ToolRequest
    arguments: dict[str, Any]
    """Those that a person put in, if somebody did."""
    result: ToolResult | None = None
    """A hook gave it, and nothing runs."""


@dataclass(frozen=True, slots=True)
class DecisionChecked(Step):
    """The agent's policy was asked whether a person may decide."""

    check: DecisionCheck
    refusal: str
    """Why this person may not decide; empty if they may."""


@dataclass(frozen=True, slots=True)
class QueuedCallDenied(Step):
    """A rule denies a call that had passed the gate and waited until others were done. The conversation has written
    that down itself."""

    call_id: str


@dataclass(frozen=True, slots=True)
class InputUnreadable(Step):
    """The conversation could not read what it was started with, or a signal, and waits for a person. It has written
    that down itself."""

    cause: str
    cure: str
    start: bool = False
    """It is the start: nothing begins in this run."""


@dataclass(frozen=True, slots=True)
class CancelRequested(Step):
    """Somebody cancelled the workflow, which is about to end."""


@dataclass(frozen=True, slots=True)
class RunClosed(Step):
    """The run is over, with an outcome; or without one, and then with the reason."""

    outcome: Outcome | None
    why: str = ""
    next_run_id: str = ""
    """Set if it continued as a new run."""
    alike: int = 0
    """An operator reset it. The next run begins with so many events of this one."""


Stalling = TurnFailed | ToolRunFailed | InputUnreadable
"""What a conversation may stall over."""
