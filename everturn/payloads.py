"""What crosses Temporal: inputs and outputs of the workflow, its activities, signals, updates and queries.

All of it is plain JSON, so the Temporal CLI, the Web UI and other languages can write and read it. None of it grows
with the conversation: a model turn is sent a position, a digest and the delta since the last turn. What people decide
on calls (approve, deny, answer, a policy) is in calls/decision_records.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, field_serializer, field_validator

from everturn import names
from everturn.batching.records import BatchNotice
from everturn.budgets.records import BudgetNote
from everturn.carryover import Beginning, CarryOver, TranscriptView, WorkerFacts
from everturn.heartbeats.details import LiveAt, SeenReply
from everturn.limits import Limits
from everturn.plans import PlannedCall, WaitReason
from everturn.policy import MAX_RULES, Rule
from everturn.prompts import RecordedPrompt
from everturn.records import (
    ClosedRecord,
    Decision,
    HookAction,
    Message,
    Outcome,
    Part,
    Record,
    Stop,
    ToolCall,
    ToolResult,
    Usage,
)
from everturn.size_estimates import fits
from everturn.sizes import (
    MAX_ID_BYTES,
    MAX_INBOX_BYTES,
    MAX_INPUT_BYTES,
    MAX_INPUT_PARTS,
    MAX_MESSAGE_ID_CHARS,
    MAX_NAME_CHARS,
    storable_json,
)
from everturn.tenants.metadata import MAX_SEARCHABLE, LabelledInput
from everturn.tracing import Trace, TraceContext, or_none
from everturn.user_parts import kinds_problem
from everturn.webhooks.records import WebhookFacts

ToolNames = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)], ...], Field(max_length=100)]
"""Tools that a message names: the model is offered no others until the answer is complete."""

# ---------------------------------------------------------------- the conversation


class Caller(Record):
    """The call, in another conversation, that this conversation answers."""

    conversation_id: str
    call_id: str
    turn: int = 0
    room: int | None = Field(default=None, ge=0)
    """The most bytes that the outcome may have; None: as many as a payload may."""


class Notify(Record):
    """Who is told when a call begins to wait for a person: a workflow, by this signal. Its input is a WaitNotice."""

    workflow_id: str = Field(min_length=1, max_length=MAX_ID_BYTES)
    signal: str = Field(min_length=1, max_length=MAX_NAME_CHARS)


class AskedAgent(Record):
    """A tool call that another agent answers, in a conversation of its own."""

    call_id: str
    agent: str
    conversation_id: str


class WebhookTarget(WebhookFacts):
    """A webhook that hears of a conversation: its own agent's, or that of the conversation that asked for it."""

    conversation_id: str = Field(max_length=MAX_ID_BYTES)
    """The one that its messages are about."""
    path: tuple[AskedAgent, ...] = ()
    """The agents that lead from there to here."""


class Start(LabelledInput):
    """The workflow's input."""

    agent: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    message: str | Annotated[tuple[Part, ...], Field(max_length=MAX_INPUT_PARTS)] = ()
    message_id: str | None = Field(default=None, max_length=MAX_MESSAGE_ID_CHARS)
    provider: str = ""
    """The provider that can read the `extra` of the message's parts, such as 'anthropic'."""
    tools: ToolNames | None = None
    """The tools for the answer to the message; None: all that the agent has."""
    keep_open: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Seconds to idle for the next message after a final reply; None: the first final reply ends it."""
    model: str | None = Field(default=None, max_length=MAX_NAME_CHARS)
    limits: Limits | None = None
    """A limit that is set here overrides the agent's own."""
    stream: bool = False
    """Somebody follows the text as it is written: see Streamed."""
    visibility: names.VisibilityLevel = "full"
    """What is shown outside of the payloads. `minimal`: the state, the number of the turn and the names of tools."""
    caller: Caller | None = None
    """The call that this conversation answers, if its agent is another agent's tool."""
    trace: TraceContext | None = None
    """The span that starts the conversation. A context that can't be read counts as none."""
    notify: Notify | None = None
    webhooks: tuple[WebhookTarget, ...] = ()
    """Of the conversation that asks, if its agent is another agent's tool: they hear of what waits here."""
    policy: tuple[Rule, ...] = Field(default=(), max_length=MAX_RULES)
    """Rules that decide on calls in advance."""
    inherited: tuple[Rule, ...] = ()
    """The rules of the conversation that asks, if its agent is another agent's tool."""
    searchable: tuple[str, ...] = Field(default=(), max_length=MAX_SEARCHABLE)
    """The keys of the metadata, and `tenant`, that the conversation can be found by."""
    forked_from: tuple[str, ...] = ()
    """The conversations that this one shares its beginning with: the one that it is a fork of, the one that that is a
    fork of, and so on."""
    carry: CarryOver | None = None

    _storable = field_validator("message", mode="before")(storable_json)
    _or_none = field_validator("trace", mode="before")(or_none)

    @field_validator("limits", mode="before")
    @classmethod
    def _in_seconds(cls, limits: Any) -> Any:
        """On the wire, durations are seconds."""
        if isinstance(limits, dict) and isinstance(seconds := limits.get("max_duration"), int | float):
            return {**limits, "max_duration": f"PT{seconds}S"}
        return limits

    @field_serializer("limits")
    def _only_what_was_set(self, limits: Limits | None) -> dict[str, Any] | None:
        """For a limit that is left out, the agent's own holds."""
        if limits is None:
            return None
        return limits.model_dump(mode="json", exclude_unset=True)

    def as_message(self) -> Message:
        return Message.user(self.message).model_copy(update={"provider": self.provider, "tools": self.tools})

    @property
    def began(self) -> Beginning:
        """What the conversation was begun with, in this run or in an earlier one."""
        if self.carry and self.carry.began:
            return self.carry.began
        return Beginning.from_message(self.agent, self.as_message())


class JoinRequest(Record):
    """The input of `join_conversation`: what a workflow of a user's wanted to start under an id that is taken."""

    conversation_id: str
    start: Start
    wait: bool = False
    """For its outcome."""


class JoinedConversation(Record):
    """The output of `join_conversation`."""

    begun: bool = False
    """False if there is no conversation by now."""
    outcome: Outcome | None = None


StateName = Literal["running", "awaiting_approval", "awaiting_answer", "stalled", "paused", "idle", "done"]
"""What the conversation is doing: `stalled` waits for `resume`, `idle` for the next message."""

BATCHED_STATUS: Final = "batched"
"""In place of `running`, what lists say of a conversation whose turn waits for a provider's batch."""


class WaitingCall(Record):
    """A tool call that waits for a person, as the `status` query shows it."""

    call_id: str
    tool: str
    """The tool's name."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    needs: Literal["approval", "answer"] = "approval"
    reason: WaitReason | None = None
    """None if the worker's version is too old to give one."""
    why: str = ""
    """The reason in words, with details: 'refund needs approval', 'outcome unknown: its worker was lost ...'."""
    since: str = ""
    """ISO 8601, UTC."""
    expires_at: str | None = None
    """ISO 8601, UTC; None if it never expires."""
    question: str = ""
    """Names what is asked about the call now: its tool, arguments, reason and words. If it waits again with others of
    these, such as after its worker was lost, that is another question; with the same, it is the same one. Empty if the
    worker's version is too old to name it."""
    path: tuple[AskedAgent, ...] = ()
    """The agents that led to it, if it waits in a sub-agent's conversation: from the one that was asked first to the
    one whose call it is. Empty if it waits in the conversation itself. Clients add these calls: the query has only the
    conversation's own."""

    @property
    def address(self) -> str:
        """Names the call beyond doubt, also if a call of another agent has the same id: the ids of the calls that lead
        to it, and its own, each after a slash. A call of the conversation itself: `/call_id`."""
        return address_of(self.path, self.call_id)

    def as_json(self) -> dict[str, Any]:
        """All fields but an empty path."""
        written = {name: getattr(self, name) for name in type(self).model_fields if name != "path"}
        if self.path:
            written["path"] = [asked_agent.model_dump() for asked_agent in self.path]
        return written


def address_of(path: Sequence[AskedAgent], call_id: str) -> str:
    """`WaitingCall.address` of a call at the end of this path."""
    return "".join(f"/{name}" for name in (*(asked_agent.call_id for asked_agent in path), call_id))


class WaitNotice(Record):
    """The input of the signal that Start.notify names."""

    conversation_id: str
    agent: str
    waiting: tuple[WaitingCall, ...] = ()
    """The calls that have just begun to wait. Without their arguments if those are large: the `status` query has
    them."""


class Status(Record):
    """The answer to the `status` query. All fields are written, for readers without this class."""

    state: StateName
    agent: str = ""
    """The agent in charge: the one that it was started with, or the one that it was handed over to last."""
    turn: int = 0
    """Turns begun so far."""
    waiting: tuple[WaitingCall, ...] = ()
    """The calls that wait for a person. A client's answer has those of sub-agents too, with their path."""
    agents: tuple[AskedAgent, ...] = ()
    """The sub-agents that work on calls now. The status of their conversations says what they wait for."""
    usage: Usage = Usage()
    """So far."""
    cost_usd: float | None = None
    """So far; None if a price is not known."""
    cause: str | None = None
    """While it is stalled: why. While it runs: what it waits for, if no worker hosts its agent or has its tool, and why
    its turn is tried again."""
    cure: str | None = None
    """What to do about the cause. A stalled conversation then needs `resume`; one that runs goes on by itself."""
    limited_by: str = ""
    """The provider whose limit its turn waits for, such as 'openai'; empty if it waits for none. Clients read it from
    the turn's heartbeats; the query's answer never has it."""
    collector: str = ""
    """The workflow that collects the batch which its turn waits for; empty if it waits for none."""
    joined_at: str = ""
    """When its turn joined that."""
    chain_id: str = ""
    """The conversation's first run, or the one that a reset made."""
    policy: tuple[Rule, ...] = ()
    """The rules that decide on calls, including remembered decisions."""
    inherited: tuple[Rule, ...] = ()
    """Rules of the conversation that asked for this one. They decide, too, and change with those of that one."""

    def as_json(self) -> dict[str, Any]:
        waiting = [call.as_json() for call in self.waiting]
        usage = {name: getattr(self.usage, name) for name in Usage.model_fields}
        facts = {
            name: getattr(self, name) for name in ("state", "agent", "turn", "cost_usd", "cause", "cure", "chain_id")
        }
        if self.limited_by:
            facts["limited_by"] = self.limited_by
        if self.collector:
            facts |= {"collector": self.collector, "joined_at": self.joined_at}
        if self.inherited:
            facts["inherited"] = [rule.model_dump(mode="json") for rule in self.inherited]
        agents = [asked_agent.model_dump() for asked_agent in self.agents]
        policy = [rule.model_dump(mode="json") for rule in self.policy]
        return {**facts, "waiting": waiting, "agents": agents, "usage": usage, "policy": policy}


class TranscriptPage(Record):
    """The input of the `transcript` query."""

    start: int = Field(default=0, ge=0, alias="from")
    limit: int = Field(default=50, ge=1, le=1000)


# ---------------------------------------------------------------- signals, and updates of the same names


class MessageIn(ClosedRecord):
    """`message`: a text or parts. A message with the `message_id` of an earlier one is not taken again."""

    text: str | None = None
    parts: tuple[Part, ...] = Field(default=(), max_length=MAX_INPUT_PARTS)
    message_id: str | None = Field(default=None, max_length=MAX_MESSAGE_ID_CHARS)
    provider: str = ""
    """The provider that can read the `extra` of the parts, such as 'anthropic'."""
    tools: ToolNames | None = None
    """The tools for its answer, as in Start. If an answer is under way, these hold for the rest of it; None leaves it
    as it is."""
    stream: bool | None = None
    """From now on, as in Start; None leaves it as it is."""
    trace: TraceContext | None = None
    """The span that it is sent from, as in Start."""

    _storable = field_validator("parts", mode="before")(storable_json)
    _or_none = field_validator("trace", mode="before")(or_none)

    def as_message(self) -> Message:
        message = Message.user(self.text if self.text is not None else self.parts)
        return message.model_copy(update={"provider": self.provider, "tools": self.tools})

    def problem(self, size: int, *, after: Sequence[Message] | None) -> str | None:
        """Why a message of `size` bytes of JSON can't be accepted; None if it can. `after`: what came before it since
        the conversation began to close; None if it is open."""
        if size > MAX_INPUT_BYTES:
            return f"The message has {size:,} bytes of JSON; the limit is {MAX_INPUT_BYTES:,}. Send a link instead."
        if after is not None and not fits([*after, self.as_message()], MAX_INBOX_BYTES):
            return "The conversation is closing, and too many messages came since then."
        if not (self.text or self.parts):
            return "A message needs text or parts."
        return kinds_problem(self.parts)


class Control(ClosedRecord):
    """`pause`, `resume`, `cancel_turn` and `close`."""

    reason: str | None = None
    by: str = ""
    model: str | None = None
    """For `resume` after a stall: the model to go on with."""
    only_stalled: bool = False
    """For `resume`: a paused conversation stays paused."""
    seen: SeenReply | None = None
    """For `cancel_turn`: what people saw of the reply."""
    without_deciding: bool = False
    """For `cancel_turn` and `close`, which deny the calls that wait: refused while one waits for an approval, since who
    sends it may not decide."""


class Withdrawal(Record):
    """`withdraw`, a signal: the update that is no longer to be accepted."""

    update_id: str = Field(min_length=1, max_length=MAX_ID_BYTES)


# ---------------------------------------------------------------- a model turn


class ModelRequest(LabelledInput):
    """The input of `call_model`. The transcript is: the prefix of `position` messages, then `delta`."""

    agent: str
    turn: int
    position: int = 0
    digest: str = ""
    """Of the prefix: a hash chained over its messages. Empty for an empty prefix, or if none is known."""
    delta: tuple[Message, ...] = ()
    named: tuple[str, ...] = ()
    """Calls whose results are too large to repeat here: their tool activities' own events hold the content."""
    model: str | None = None
    tools: tuple[str, ...] | None = None
    """The only tools that the model is offered, by name; None: all."""
    conclude: str | None = None
    """Why the model gets this last turn without tools."""
    view: TranscriptView | None = None
    summarise: bool = False
    """This is not a turn of the conversation: the model writes the summary that the next view shows."""
    stream: bool = False
    """Somebody follows its text as it is written."""
    calls_left: int | None = None
    """How many tool calls its reply may make, if the conversation limits them; None: as the agent says."""
    hand_back_for: float | None = None
    """For so many seconds, workers that do not host the agent hand the request back for another worker to take. None:
    for a few seconds; then the conversation is told, and asks again with all its patience."""
    trace: Trace | None = None
    """Where its spans belong, and what else it is to say; None if the worker of the last turn does not trace."""
    signed: bool = False
    """The conversation was handed over: the reply is to say which agent wrote it."""
    asked: bool = False
    """Another conversation called this one: for the tenant's budget, this one counts as a part of that one."""
    budget: BudgetNote | None = None
    """What the last reply handed on."""
    prompts: tuple[str, ...] = ()
    """The digests of the prompts that the run's history holds."""
    prompt_room: int | None = None
    live_at: LiveAt | None = None
    """Where its text can be read over HTTP, if the worker that scheduled it also runs it. What the running worker says
    itself (Streamed.live_at) overrides this."""
    limits_mark: str = ""
    """`mark_of` the agent's limits that the conversation knows. A worker whose agent has others sends them."""
    ruled: bool = False
    """Rules of the conversation may ask for an approval of its calls: their plans say what people are to be shown."""
    batch: BatchNotice | None = None
    """What became of its line in a batch; None if it has not joined one."""


class ModelReply(Record):
    """The output of `call_model`: the reply, and the plan that the workflow follows for its calls."""

    message: Message
    plan: tuple[PlannedCall, ...] = ()
    stop: Stop = "end"
    """As it is written; `stopped` says why the model really stopped."""
    digest: str = ""
    """Of the transcript with this reply."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    """None if the price is not known."""
    details: dict[str, JsonValue] = Field(default_factory=dict)
    """Reply.details; what is over 64 KB is left out, and named in `left_out`."""
    output: JsonValue = None
    """A final reply as the agent's `output` type; None if it has none, or if the reply does not fit it."""
    output_problem: str | None = None
    """What is wrong with a final reply that does not fit the agent's `output` type, for the model to mend."""
    view: TranscriptView | None = None
    """How the transcript is to be shown from now on; None if nothing changes."""
    summary_due: bool = False
    """The transcript nears the model's window, and trimming no longer helps."""
    prompt: RecordedPrompt | None = None
    """The turn's instructions and tools, if the user's functions decided them."""
    facts: WorkerFacts | None = None
    """Sent when a worker first gets the conversation; None if the facts sent before still hold."""
    hooks: tuple[HookAction, ...] = ()
    """What hooks did to the turn, to the reply and to its calls."""
    budget: BudgetNote | None = None
    """For the next turn; None if its tenant has no budget."""
    traced: Literal["sampled", "dropped"] | None = None
    """Set if its worker traces. `sampled`: it has exported the spans handed to it; `dropped`: it drops this trace."""

    @property
    def stopped(self) -> Stop:
        """Why the model stopped. `tool_calls` is not written into `stop`: the message has the calls."""
        if self.stop == "end" and self.message.tool_calls:
            return "tool_calls"
        return self.stop

    @property
    def final(self) -> bool:
        """Nothing is left to do for it: it has no calls, and the model did not just pause."""
        return not (self.plan or self.stop == "paused" or self.message.cut_short)

    @property
    def ends_answer(self) -> bool:
        """After it, the model is asked again only if somebody says something."""
        return self.final and self.output_problem is None


# ---------------------------------------------------------------- a tool call


class PersonsAnswer(Record):
    """What a person said to a tool's question."""

    action: Literal["accept", "decline", "cancel"]
    """The person answered, declined, or nobody answered in time."""
    text: str = ""
    by: str = ""
    left: dict[str, JsonValue] = Field(default_factory=dict)
    """What the tool saved when it asked, to continue from."""


class ToolRequest(LabelledInput):
    """The input of a tool's activity; its output is a ToolResult."""

    agent: str
    turn: int
    call_id: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    decision: Decision | None = None
    """A human's approval, if one was asked for."""
    as_shown: bool = False
    """The person saw these arguments as hooks had left them, and changed nothing: hooks don't see them again."""
    by_default: dict[str, JsonValue] = Field(default_factory=dict)
    """As in RunTool, if a person approved the call."""
    room: int | None = None
    """The most bytes that the result may have; None: as many as any result may."""
    chain_id: str = ""
    """As in CarryOver. It is written here, so that every try of the call has the same."""
    hand_back_for: float | None = None
    """As in ModelRequest, also for workers whose agent lacks the tool."""
    reset_run: str = ""
    """The run that the last reset of the conversation made, this one or one before; empty if there was none."""
    again: bool = False
    """A person said to run it, though it may have run before."""
    once: bool = False
    """By its plan, its effect is `once`. An MCP server's list may say something else by now."""
    answer: PersonsAnswer | None = None
    """The answer to the tool's last question."""
    left: dict[str, JsonValue] = Field(default_factory=dict)
    """What an activity of this call, which was handed back, had left for its next try: that its MCP server has it, and
    the id of the task that it is there."""
    trace: TraceContext | None = None
    """The parent of its span; None if there is to be none."""
    tool: str = ""
    """The tool's name, for `check_call`, and for a tool's activity that has another name."""
    given: bool = False
    """For `check_call`: a hook gave the call's result, so one has to give it for these arguments, too."""
    endpoint: str = ""
    """The Nexus endpoint, for `check_call`: it has to exist before an operation is scheduled."""
    result: ToolResult | None = None
    """The result that hooks are to see, for `check_result`."""


class DecisionCheck(LabelledInput):
    """The input of `check_decision`; its output is why the person may not decide, or an empty text."""

    agent: str
    call: ToolCall
    decision: Decision
    turn: int = 0
    hand_back_for: float | None = None
    """As in ModelRequest."""
