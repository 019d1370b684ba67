"""What happens in a conversation, one step for each event of its history: what the readers of histories fold over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everturn.carryover import Packed
from everturn.payloads import DecisionCheck, MessageIn, ModelReply, ModelRequest, Start, ToolRequest
from everturn.records import Outcome, ToolResult


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: at event `id` of its run, at the server's time `at`.

    A plain Step is an event that only Temporal cares for.
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
    """A worker has taken in all that came before, and done what followed from it: calls that wait can be decided."""

    time: float = 0.0
    """Of the conversation's clock when it did: seconds since 1970."""


@dataclass(frozen=True, slots=True)
class MessageSent(Step):
    said: MessageIn
    accepted: bool = False
    """It came as an update, which the conversation has taken. A signal may yet be passed over."""


@dataclass(frozen=True, slots=True)
class CommandSent(Step):
    """A signal or an accepted update other than `message`; `payload` as it came."""

    name: str
    payload: dict[str, Any]
    accepted: bool = False
    """As in Said."""


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
    """The one that the reply is of."""


@dataclass(frozen=True, slots=True)
class TurnFailed(Step):
    request: ModelRequest
    cause: str
    cure: str
    fallback: str = ""
    """The model that goes on in its place."""
    passing: bool = False
    """The conversation is not stalled: it goes on by itself, by showing the model less or waiting for a worker."""
    awaited: bool = False
    """It waits for a worker that hosts its agent."""


@dataclass(frozen=True, slots=True)
class TranscriptKept(Step):
    """The messages of earlier runs were brought into this one."""

    messages: Packed


@dataclass(frozen=True, slots=True)
class PrefixExtended(Step):
    """What no model had seen became a part of the prefix, since it was too large to be handed to the next run."""

    request: ModelRequest
    digest: str = ""
    """Of the prefix with it."""


@dataclass(frozen=True, slots=True)
class ReminderFired(Step):
    """A call that waits is about to expire."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Expired(Step):
    """Nobody decided on a call for as long as it was to wait."""

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
    """It ran as a local activity: its one event is a marker, which the conversation itself has written."""


@dataclass(frozen=True, slots=True)
class ActivityEnded(Step):
    """A user's own activity that ended: with an output, or with an error that the model is told of."""

    tool: str
    request: ToolRequest
    result: ToolResult
    """Made of what the event holds: the transcript's also has the word of the person who approved the call."""


@dataclass(frozen=True, slots=True)
class ToolRunFailed(Step):
    """A tool's activity that ended without a result."""

    tool: str
    request: ToolRequest
    cause: str
    kind: str
    """The error's type, such as InvalidEdit; empty for a time-out."""
    cure: str = ""
    awaited: bool = False
    """No worker had the tool yet: the conversation waits for one."""
    stalled: bool = False
    """No worker had the tool for as long as patience lasts: the conversation waits for a person."""
    left: dict[str, Any] | None = None
    """As in FailureCause."""
    again: bool = False
    """It is tried again at once: a user's own activity that was lost with its worker."""
    local: bool = False
    """As in ToolCompleted."""


@dataclass(frozen=True, slots=True)
class DecisionChecked(Step):
    """The agent's policy was asked whether a person may decide."""

    check: DecisionCheck
    refusal: str
    """Why they may not; empty if they may."""


@dataclass(frozen=True, slots=True)
class CancelRequested(Step):
    """Somebody cancelled the workflow, which is about to end."""


@dataclass(frozen=True, slots=True)
class RunClosed(Step):
    """The run is over: with an outcome, or without one and the reason why."""

    outcome: Outcome | None
    why: str = ""
    next_run_id: str = ""
    """Set if it continued as a new run."""
    alike: int = 0
    """An operator reset it: so many events of the next run are this one's, too."""
