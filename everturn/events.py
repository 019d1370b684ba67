"""What happens in a conversation, for those who watch: typed events. See history/event_reader.py."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, JsonValue

from everturn.payloads import AskedAgent
from everturn.plans import WaitReason
from everturn.records import HookPoint, Message, Outcome, Record, Stop, ToolCall, ToolResult, Usage


class _Event(Record):
    cursor: str = ""
    """The event's place: `events(since=cursor)` continues after it."""
    at: str = ""
    """The server's time: ISO 8601, UTC."""
    child: str = ""
    """The conversation that it happened in, if that is a sub-agent's."""
    path: tuple[AskedAgent, ...] = ()
    """The agents that led there, from the one that was asked first to the one whose conversation `child` is."""


class _CallEvent(_Event):
    """About a whole call. Its parts have the names that they have on other events, and in `status().waiting`."""

    if TYPE_CHECKING:
        call: ToolCall

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.call.name

    @property
    def call_id(self) -> str:
        return self.call.call_id

    @property
    def arguments(self) -> dict[str, JsonValue]:
        """The call's arguments."""
        return self.call.arguments


class MessageReceived(_Event):
    """Somebody sent a message; the conversation takes it before its next turn."""

    kind: Literal["message_received"] = "message_received"
    message: Message


class TurnStarted(_Event):
    """The model is asked. After a stall or a fallback, the same turn starts again."""

    kind: Literal["turn_started"] = "turn_started"
    turn: int
    agent: str = ""
    """Whose turn it is."""
    position: int | None = None
    """Where its reply will be in the transcript, counted from 0; None if the turn only sums up what was said."""


class TextDelta(_Event):
    """More text of a running turn. The deltas of a turn, joined, are the beginning of its reply's text, and all of
    it once the turn has Replied. Its cursor is that of the event before: if you resume there, you get the text
    again."""

    kind: Literal["text_delta"] = "text_delta"
    turn: int
    text: str


class ThinkingDelta(_Event):
    """More of the model's thoughts in a running turn."""

    kind: Literal["thinking_delta"] = "thinking_delta"
    turn: int
    text: str


class TurnRetried(_Event):
    """The turn is tried again, or its text was withdrawn. Drop what you showed of it: the text starts over."""

    kind: Literal["turn_retried"] = "turn_retried"
    turn: int
    attempt: int


class TurnLimited(_Event):
    """The turn waits for its provider's rate limit, and goes on by itself. It is not in the history, and comes only
    while the turn waits."""

    kind: Literal["turn_limited"] = "turn_limited"
    turn: int
    provider: str
    """Such as 'openai'."""


class Replied(_Event):
    """The model's whole reply."""

    kind: Literal["replied"] = "replied"
    turn: int
    message: Message
    usage: Usage = Usage()
    cost_usd: float | None = None
    """None if the price is not known."""
    agent: str = ""
    """The agent that replied."""
    final: bool = False
    """No tool calls: this answers what was asked."""
    stop: Stop = "end"
    """Why the model stopped, as in Reply.stop: `length`, `filtered` and `refused` mean that the answer is not whole."""
    details: dict[str, JsonValue] = Field(default_factory=dict)
    """The provider's details of the reply as a whole, as in Reply.details."""


class ToolCalled(_CallEvent):
    """One of the calls that the reply asks for."""

    kind: Literal["tool_called"] = "tool_called"
    turn: int
    call: ToolCall
    refused: str | None = None
    """What the model is told, if the call can't run as it is."""
    awaits_answer: bool = False
    """It runs outside of workers: `answer_requested` comes when it may begin, after its approval if it needs one."""


class ApprovalRequested(_CallEvent):
    """The call waits for a person's decision; `reason`, `why` and `question` are those of `status().waiting`."""

    kind: Literal["approval_requested"] = "approval_requested"
    turn: int
    call: ToolCall
    reason: WaitReason | None = None
    why: str = ""
    question: str = ""
    awaits_answer: bool = False
    """As of `tool_called`."""


class AnswerRequested(_CallEvent):
    """The call runs outside of workers: somebody has to send its result."""

    kind: Literal["answer_requested"] = "answer_requested"
    turn: int
    call: ToolCall
    reason: WaitReason | None = None
    why: str = ""
    question: str = ""


class Decided(_Event):
    """Somebody approved, denied or answered; the first decision on a call counts."""

    kind: Literal["decided"] = "decided"
    call_id: str
    verdict: str
    by: str = ""
    note: str | None = None
    arguments: dict[str, JsonValue] | None = None
    """The edited arguments, if an approval replaced the model's."""
    by_policy: bool = False
    """Whether a rule that `by` made earlier decided."""
    by_model: bool = False
    """Whether no person decided, but the agent's reviewer, a model."""


class ToolStarted(_Event):
    """The tool's activity is scheduled."""

    kind: Literal["tool_started"] = "tool_started"
    turn: int
    call_id: str
    tool: str
    conversation_id: str = ""
    """Where the work is done, if the tool is another agent."""


class ToolProgress(_Event):
    """What a running tool last reported with `ToolContext.heartbeat(progress)`."""

    kind: Literal["tool_progress"] = "tool_progress"
    turn: int
    call_id: str
    tool: str
    progress: JsonValue = None


class ToolFinished(_Event):
    """The call's result, as the model will get it: the tool's own, an answer, or why it did not run."""

    kind: Literal["tool_finished"] = "tool_finished"
    turn: int
    result: ToolResult

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.result.name

    @property
    def call_id(self) -> str:
        return self.result.call_id


class ToolLost(_Event):
    """A tool's run ended without a report."""

    kind: Literal["tool_lost"] = "tool_lost"
    turn: int
    call_id: str
    tool: str
    cause: str


class HookActed(_Event):
    """A hook changed something, denied or answered a call or asked for its approval, stopped the answer, or failed:
    `did` says which, and `why` is its reason, or the answer that it gave after a tool."""

    kind: Literal["hook_acted"] = "hook_acted"
    turn: int
    hook: str
    """The hook's name."""
    point: HookPoint
    did: Literal["changed", "denied", "asked", "answered", "stopped", "failed"]
    call_id: str = ""
    """The call; empty if it acted on the turn."""
    why: str = ""


class HandedOff(_Event):
    """The conversation was handed over to another agent: `agent`."""

    kind: Literal["handed_off"] = "handed_off"
    turn: int
    """The turn whose reply handed it over."""
    agent: str
    by: str
    """The agent that was in charge before."""


class Stalled(_Event):
    """Retries don't cure the failure: the conversation waits for `resume`."""

    kind: Literal["stalled"] = "stalled"
    turn: int
    cause: str
    cure: str = ""


class TurnBatched(_Event):
    """The turn waits for a provider's batch: for the next one, or for the one with this `batch_id`, once that is
    sent."""

    kind: Literal["turn_batched"] = "turn_batched"
    turn: int
    provider: str = ""
    batch_id: str = ""
    """As the provider calls it."""
    sent_at: str = ""
    """ISO 8601, UTC."""


class WorkerAwaited(_Event):
    """No worker of the queue hosts the conversation's agent or has its tool: the conversation waits for one while
    patience lasts. Or no worker polls the queue at all: live watchers get this after 5 s, and it is not in the
    history."""

    kind: Literal["worker_awaited"] = "worker_awaited"
    turn: int
    cause: str
    cure: str = ""


class Compacted(_Event):
    """From now on the model is shown less: old tool results as notices, or old parts as a `summary`."""

    kind: Literal["compacted"] = "compacted"
    turn: int
    summary: str | None = None


class FellBack(_Event):
    """A model failed, and the next one in line goes on."""

    kind: Literal["fell_back"] = "fell_back"
    turn: int
    cause: str
    model: str


class ApprovalReminder(_Event):
    """A waiting call is about to expire."""

    kind: Literal["approval_reminder"] = "approval_reminder"
    call_id: str


RESET = "reset"


class Switched(_Event):
    """Somebody paused, resumed or closed the conversation, cancelled its turn, or reset it: `name` says which. After
    a "reset", it goes on from an earlier point, and the events since then come again as they happen again."""

    kind: Literal["switched"] = "switched"
    name: str
    by: str = ""
    reason: str | None = None


class Done(_Event):
    """The end; `outcome` is None if the workflow failed or was terminated, and `why` says so."""

    kind: Literal["done"] = "done"
    outcome: Outcome | None = None
    why: str = ""


Event = Annotated[
    MessageReceived
    | TurnStarted
    | TextDelta
    | ThinkingDelta
    | TurnRetried
    | TurnLimited
    | Replied
    | ToolCalled
    | ApprovalRequested
    | AnswerRequested
    | Decided
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ToolLost
    | HookActed
    | HandedOff
    | Stalled
    | TurnBatched
    | WorkerAwaited
    | FellBack
    | Compacted
    | ApprovalReminder
    | Switched
    | Done,
    Field(discriminator="kind"),
]

CURSOR = re.compile(r"(?P<run>[0-9a-f-]{36})/(?P<step>\d{1,9})(\.(?P<n>\d{1,9}))?")
