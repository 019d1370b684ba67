"""What one run of a conversation hands to the next. Its size does not grow with the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, field_validator
from pydantic_core import to_json

from everturn import names
from everturn.budgets.records import BudgetNote
from everturn.errors import InvalidSetting
from everturn.limits import Limits
from everturn.plans import PlannedCall, Review, WaitReason
from everturn.policy import Rule
from everturn.records import Decision, Message, Record, Stop, ToolCall, ToolResult, Usage
from everturn.sizes import MAX_BEGINNING_CHARS
from everturn.temporal.ids import known_id
from everturn.text.shortening import clipped
from everturn.tracing import CarriedTrace
from everturn.webhooks.records import WebhookFacts

REMEMBERED_IDS = 1000
"""Message ids that are handed on, so that a repeated message is taken once."""

SHOWN_DIGEST_CHARS: Final = 8


class WorkerFacts(Record):
    """What a workflow can't know by itself, and what changes only with a deploy."""

    agent: str = ""
    """The full name of the agent, if it has a version: the conversation stays with that."""
    model: str = ""
    """`provider:name`, as the agent has it."""
    limits: dict[str, JsonValue] = Field(default_factory=dict)
    """The agent's Limits, if they differ from the defaults."""
    indexed: bool = False
    """The namespace has everturn's search attributes."""
    tenants_indexed: bool = False
    """The namespace has the search attribute for tenants, and the tenant's name may be there."""
    webhook: WebhookFacts | None = None
    """The agent's, if it has one."""
    retention: float | None = None
    """Seconds for which the namespace keeps the history of a run that is over; None if that is not known."""

    @field_validator("limits")
    @classmethod
    def _read_now(cls, limits: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Checked here: limits that can't be read stall the conversation. Unknown names come from another version."""
        try:
            Limits(**{name: value for name, value in limits.items() if name in Limits.model_fields})
        except InvalidSetting as error:
            raise ValueError(error.message) from None
        return limits


def mark_of(limits: Mapping[str, JsonValue]) -> str:
    """Eight characters that differ for different limits; empty for the defaults."""
    if not limits:
        return ""
    return blake2b(to_json(dict(sorted(limits.items()))), digest_size=4).hexdigest()


class PackedTranscript(Record):
    """Messages in the payload itself: see packed_messages.py."""

    kind: Literal["packed"] = "packed"
    data: str


class StoredInRun(Record):
    """Messages that are in the history of an earlier run, or before it."""

    kind: Literal["in_run"] = "in_run"
    run_id: str
    conversation_id: str = ""
    """Of the run; empty if it is the conversation's own."""


Earlier = Annotated[PackedTranscript | StoredInRun, Field(discriminator="kind")]


class TranscriptView(Record):
    """How a transcript is shown to the model; all of them are positions in it."""

    trim_before: int = 0
    """Tool results before this one are shown as notices."""
    tools_from: int = 0
    """Tool calls before this one are not shown, nor their results."""
    summary_at: int | None = None
    """The message that stands for those before `keep_from`."""
    keep_from: int = 0


class QuestionToPerson(Record):
    """A call that waits for a person: what for, and since when."""

    call_id: str
    since: float = 0.0
    """Seconds since 1970."""
    reason: WaitReason | None = None
    """None if the run before was of a version that did not say."""
    why: str = ""
    """The reason in words, and in detail."""
    refused: str = ""
    """Why the last decision on it did not help; said beside `why`."""
    chain_id: str = ""
    """As in CarryOver, of its run; empty if it has not run."""
    left: dict[str, JsonValue] | None = None
    """If its tool asks: what the tool saved, to continue from once it has the answer."""
    decision: Decision | None = None
    """If its tool asks, or it runs outside: the approval that it had before that."""
    only_person: bool = False
    """As in GatedPlan."""
    by_rule: bool = False
    """Only a rule asks for its approval: without the rule, nobody would."""
    arguments: dict[str, JsonValue] | None = None
    """Those that it is about, if they are no longer the model's: as a person or a hook has left them."""
    seen_by_hooks: bool = False
    """These arguments are as hooks have left them."""
    review: Review | None = None
    """What the agent's reviewer has decided on the call as it is."""
    handed_out: bool = False
    """It runs outside, and waited for its result before a rule asked for its approval. So that may still come."""

    @property
    def doubtful(self) -> bool:
        """It may have run, and nobody knows with what outcome."""
        return self.reason == "outcome_unknown"

    @property
    def in_words(self) -> str:
        return self.why + self.refused


class OpenReply(Record):
    """A reply whose calls wait for people, from where the run before left them."""

    calls: tuple[ToolCall, ...] = ()
    """All of the reply's."""
    plan: tuple[PlannedCall, ...] = ()
    """Of those that wait."""
    waits: tuple[QuestionToPerson, ...] = ()
    results: tuple[ToolResult, ...] = ()
    """Of the others."""
    told: tuple[str, ...] = ()
    """The calls in `results` whose results are in events of a run before, too."""
    refused_edits: int = 0
    """How often people put in arguments that did not fit."""
    limit: str | None = None
    """The limit that ends the conversation after this reply, in words."""

    @property
    def planned(self) -> dict[str, tuple[ToolCall, PlannedCall]]:
        """The calls that wait, and their plans."""
        return planned_calls(self.calls, self.plan)


def planned_calls(calls: Iterable[ToolCall], plan: Iterable[PlannedCall]) -> dict[str, tuple[ToolCall, PlannedCall]]:
    """The calls that have a plan, by their ids."""
    by_id = {call.call_id: call for call in calls}
    return {
        call_plan.call_id: (by_id[call_plan.call_id], call_plan) for call_plan in plan if call_plan.call_id in by_id
    }


class Beginning(Record):
    """What a conversation was begun with. The same under the same id is the same work, and is not begun twice."""

    agent: str
    """Its name, without a version: a deploy does not make it other work."""
    text: str = ""
    """How the first message begins, to be shown."""
    digest: str = ""
    """Of the whole first message."""
    fork_of: str = ""
    """The conversation that it is a fork of: that makes it work of its own."""
    tools: str = ""
    """The only tools for the answer to it, as they begin, to be shown; empty if it names none."""
    transcript: str = ""
    """A digest of the messages that it was started after; empty if there were none."""

    @classmethod
    def from_message(cls, agent: str, message: Message, *, transcript: Sequence[Message] = ()) -> Beginning:
        content: dict[str, JsonValue] = {
            "parts": message.model_dump(mode="json")["parts"],
            "provider": message.provider,
        }
        tools = ""
        if message.tools is not None:  # in any order: they may have been a set
            content["tools"] = [*sorted(message.tools)]
            tools = ", ".join(sorted(message.tools)) or "none"
        return cls(
            agent=names.unversioned(agent),
            text=clipped(message.text, MAX_BEGINNING_CHARS),
            digest=_digest_of(content),
            tools=clipped(tools, MAX_BEGINNING_CHARS),
            transcript=_digest_of([earlier.model_dump(mode="json") for earlier in transcript]) if transcript else "",
        )

    @property
    def in_words(self) -> str:
        if self.fork_of:
            return f"a fork of {self.fork_of!r}"
        message = f"the message {self.text!r}" if self.text else "a message without text"
        words = f"agent {self.agent!r} with {message}"
        if self.tools:
            words += f", with only these tools: {self.tools}"
        if self.transcript:
            words += f", after the earlier transcript {self.transcript[:SHOWN_DIGEST_CHARS]}"
        return words

    def is_same(self, other: Beginning) -> bool:
        known = ("agent", "digest", "fork_of", "transcript")
        return all(getattr(self, name) == getattr(other, name) for name in known)


def _digest_of(content: Any) -> str:
    return blake2b(to_json(content), digest_size=16).hexdigest()


class CarryOver(Record):
    """What one run hands to the next. Its size does not grow with the conversation."""

    earlier: Earlier | None = None
    """Where the first `length` messages are: the prefix that the model has seen."""
    keep_by: float | None = None
    """Seconds since 1970: by then, what is in earlier runs is brought into the current one."""
    origin: StoredInRun | None = None
    """The run that this conversation was forked from, or revived from."""
    length: int = 0
    digest: str = ""
    """Of the prefix; empty if none is known."""
    unseen: tuple[Message, ...] = ()
    """What comes after the prefix: results that no model has seen yet."""
    told: tuple[str, ...] = ()
    """The calls in `unseen` whose results are in events of a run before, too."""
    unanswered: int = 0
    """How many messages of the inbox the answer at hand is to, if none of its turns has taken one."""
    owed: bool = False
    """The run ended in the middle of an answer: the next one goes on with it."""
    open: OpenReply | None = None
    """The last reply, if the run ended while its calls waited for people."""
    inbox: tuple[Message, ...] = ()
    message_ids: tuple[str, ...] = ()
    """Messages that were taken before, so that a repeated one is taken once."""
    turn: int = 0
    called_in: int = 0
    """The turn whose reply made the calls in `unseen`; 0: the last one. A summary may come after it, as a turn."""
    tool_calls: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    last_text: str = ""
    """What the model said last; shortened if it is long."""
    last_stop: Stop = "end"
    """Why it stopped there."""
    started_at: float | None = None
    """When the conversation began: seconds since 1970."""
    facts: WorkerFacts | None = None
    chain_id: str = ""
    """The conversation's first run, or the one that a reset made: a part of its calls' idempotency keys."""
    reset_run: str = ""
    """The run that the last reset made; empty if there was none."""
    model: str = ""
    """The model that somebody chose in place of the agent's own."""
    tools: tuple[str, ...] | None = None
    """The only tools for the answer that is owed; None: all."""
    paused: bool = False
    view: TranscriptView | None = None
    summary_due: bool = False
    repairs: int = 0
    """Final replies in a row that did not fit the agent's output type."""
    policy: tuple[Rule, ...] = ()
    inherited: tuple[Rule, ...] = ()
    """The rules of the conversation that asked for this one."""
    agent: str = ""
    """The agent in charge, if the conversation was handed over; empty for the agent that it was started with."""
    handoffs: int = 0
    """How many there were since a user last said something."""
    views: dict[str, TranscriptView] = Field(default_factory=dict)
    """How the transcript was shown last to the agents that were in charge before, by their names."""
    trace: CarriedTrace | None = None
    budget: BudgetNote | None = None
    began: Beginning | None = None
    """What the conversation was begun with; None in its first run, whose start says it, unless it had a
    transcript."""

    @property
    def begins_at_rest(self) -> bool:
        """It is for a fork or another life, which has its own time and goes on from an answer that is there; and not
        for another run. A fork in another namespace has no `origin`."""
        return self.origin is not None or (self.length > 0 and self.started_at is None)


class TakenIds:
    """The ids of the messages that a conversation has taken, so that it takes none twice. The next run is told them."""

    def __init__(self, earlier: Sequence[str]) -> None:
        self._ids = dict.fromkeys(map(known_id, earlier), "")
        """With a digest of what the message says; empty for those of earlier runs."""
        self.forgotten = len(earlier) >= REMEMBERED_IDS
        """Earlier runs had more messages than this run remembers the ids of."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def take_id(self, message_id: str | None, message: Message | None = None) -> bool:
        """False if a message with this id came before. One without an id is always new."""
        if message_id is None:
            return True
        if (known := known_id(message_id)) in self._ids:
            return False
        self._ids[known] = _digest_of(message.parts) if message else ""
        if len(self._ids) > REMEMBERED_IDS:
            self._ids.pop(next(iter(self._ids)))
        return True

    def has_other(self, message_id: str | None, message: Message) -> bool:
        """Whether the id is that of a message of this run that says something else."""
        if message_id is None:
            return False
        digest = self._ids.get(known_id(message_id), "")
        return bool(digest) and digest != _digest_of(message.parts)

    def have_all(self, message_ids: Iterable[str]) -> bool:
        """Whether all messages with these ids were taken, as far as is remembered."""
        return self.forgotten or all(known_id(message_id) in self._ids for message_id in message_ids)
