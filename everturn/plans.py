"""The plan for a reply's calls. The worker that hosts the agent makes it, and the workflow follows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from everturn.records import ApproveOrDeny, Record, Successor, ToolCall, ToolResult
from everturn.sizes import MAX_RESULT_CHARS

MESSAGE: Final = "message"
"""The argument of a handoff, and of an agent that is a tool: what the model says to the other agent."""

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
"""Why a call waits for a person:

- `needs_approval`: its tool asks for one before it runs.
- `outcome_unknown`: it may already have run, and an approval runs it again. It keeps this reason as long as that is so,
  whatever else happens to the call.
- `has_not_run`: it was approved, or needed no approval, but it certainly did not start.
- `invalid_edit`: the arguments that a person edited don't fit the schema.
- `not_allowed`: the last person who decided is not allowed to.
- `runs_outside`: your code has to send its result.
- `asks_user`: the model has a question.
- `tool_asks`: the tool has a question in the middle of its call. It runs again with the answer.
"""


class Expiry(Record):
    """What happens to a call that nobody decides on: after so many seconds, this verdict."""

    after: float
    verdict: ApproveOrDeny = "deny"
    remind_before: float | None = None


class Review(Record):
    """What the agent's reviewer, a model, has decided on a call in people's place."""

    verdict: ApproveOrDeny
    by: str
    """`model:` and its name."""
    reason: str = ""


class GatedPlan(Record):
    """What stands before a call and after it, whoever settles it: a worker, a client, another agent or a person."""

    call_id: str
    approval: str | None = None
    """Why a human has to approve it first; None if nobody has to. A rule of the conversation may still ask for it."""
    defaults: str = ""
    """What the tool will use for what the call leaves out, in words, to be put behind a rule's reason. `approval` has
    these words in it."""
    expiry: Expiry | None = None
    policy: bool = False
    """The agent has `approvers`: they say whether the person may decide."""
    only_person: bool = False
    """Only a person may approve it, and no rule or expiry: what was to check it failed."""
    review: Review | None = None
    """Decides on the approval, unless a rule of the conversation says something else; None leaves it to a person."""
    changed_by: str = ""
    """The hooks that changed its arguments, for its summary."""
    hooks_after: float = 0.0
    """Seconds that the agent's `after_tool` hooks may take with a result that no tool on a worker gave; 0: it has
    none."""


class RunPlan(GatedPlan):
    """What the plans of calls that run have in common."""

    effect: Literal["read", "idempotent", "once"] = "idempotent"
    timeout: float = 600.0
    """Seconds, of one try."""
    patience: float = 1800.0
    """Seconds, of all tries together."""


class RunTool(RunPlan):
    """Plan for a call: run the tool, after a human's approval if `approval` says why."""

    kind: Literal["run"] = "run"
    local: bool = False
    """Run it as a local activity: quicker, and not for what takes long or must not be repeated."""
    hurried: bool = False
    """Local because its last runs were quick: one try, of a second. If it does not end then, it goes to the queue."""
    activity: str = ""
    """Its activity's type, if that is not the tool's name."""
    by_default: dict[str, JsonValue] = Field(default_factory=dict)
    """What a person is shown that it will use for arguments that the call leaves out: once approved, it runs with
    these, whatever a deploy has made of its defaults by then."""
    attaches: bool = False
    """A further try finds what an earlier one has begun, and sends nothing twice. So the call is retried, although its
    effect is `once`."""

    @property
    def retried(self) -> bool:
        """Temporal tries it again by itself."""
        return self.effect != "once" or self.attaches


class RetryPlan(Record):
    """Temporal's retry policy of an activity. Times are in seconds."""

    initial_interval: float = 1.0
    backoff_coefficient: float = 2.0
    maximum_interval: float | None = None
    maximum_attempts: int = 0
    """0: as many as fit into patience."""
    non_retryable_error_types: tuple[str, ...] = ()


class RunActivity(RunPlan):
    """Plan for a call: run an activity that is no tool of ours, as it is, after a human's approval if `approval` says
    why."""

    kind: Literal["activity"] = "activity"
    activity: str
    """Its type, as its worker knows it."""
    task_queue: str | None = None
    """Where its workers are; None: the conversation's own."""
    arguments: dict[str, JsonValue] | None = None
    """As its types want them, with defaults; None: as the model wrote them."""
    by_position: tuple[str, ...] | None = None
    """It takes the arguments by position, in this order; None: all of them as one object."""
    heartbeat_timeout: float | None = None
    """Seconds without a heartbeat after which its worker is lost; None: only `timeout` says so."""
    retry: RetryPlan | None = None
    """How Temporal retries every failure; None: the model is told of a failure, and only a call that was lost with its
    worker is tried again."""
    max_chars: int = MAX_RESULT_CHARS
    """Of its output, for the model."""


class RunNexus(RunPlan):
    """Plan for a call: run a Nexus operation as it is, after a human's approval if `approval` says why."""

    kind: Literal["nexus"] = "nexus"
    endpoint: str
    service: str
    operation: str
    arguments: dict[str, JsonValue] | None = None
    by_position: tuple[str, ...] | None = None
    """Its input is the one argument of this name, or nothing if there is none; None: all of them as one object."""
    max_chars: int = MAX_RESULT_CHARS
    """Of its output, for the model."""


RunElsewhere = RunActivity | RunNexus
"""Activities and Nexus operations that are not ours, and run as they are."""


class AwaitAnswer(GatedPlan):
    """Plan for a call: it runs outside; wait until somebody answers it, after a human's approval if `approval` says
    why. `expiry` is that of the answer."""

    kind: Literal["await"] = "await"
    why: str = ""
    reason: WaitReason = "runs_outside"
    approval_expiry: Expiry | None = None


class UseResult(GatedPlan):
    """Plan for a call: a hook has given its result, and nothing runs. A human approves that first if `approval` says
    why."""

    kind: Literal["result"] = "result"
    result: ToolResult


class RefuseCall(Record):
    """Plan for a call: it can't run as it is, and this is what the model is told."""

    kind: Literal["refuse"] = "refuse"
    call_id: str
    text: str


class TypedInput(Record):
    """Another agent reads the arguments of a call as JSON, since they have a type: they are no message in words."""

    arguments: dict[str, JsonValue] | None = None
    """With defaults; None: as the model wrote them."""

    def as_text(self, given: Mapping[str, JsonValue], *, edited: bool = False) -> str:
        arguments = given if edited or self.arguments is None else self.arguments
        return json.dumps(arguments, ensure_ascii=False)


class RunAgent(GatedPlan):
    """Plan for a call: another agent answers it, in a conversation of its own, after a human's approval if `approval`
    says why."""

    kind: Literal["agent"] = "agent"
    agent: str
    input: TypedInput | None = None

    def asks(self, call: ToolCall, *, edited: Mapping[str, JsonValue] | None = None) -> str:
        """The message that the other agent's conversation begins with. `edited`: the arguments that a person put
        in."""
        given = call.arguments if edited is None else edited
        if self.input:
            return self.input.as_text(given, edited=edited is not None)
        return str(given.get(MESSAGE, ""))


class RunHandoff(RunPlan):
    """Plan for a call: once all calls of the reply have results, another agent goes on with the conversation."""

    kind: Literal["handoff"] = "handoff"
    successor: Successor
    note: str = ""
    """What the next agent is told of the messages that it is not shown, beside what the model says to it."""
    input: TypedInput | None = None

    def says(self, call: ToolCall, *, edited: Mapping[str, JsonValue] | None = None) -> str:
        """What the model tells the next agent; empty if nothing. `edited`: the arguments that a person put in."""
        given = call.arguments if edited is None else edited
        if self.input:
            return self.input.as_text(given, edited=edited is not None)
        message = given.get(MESSAGE)
        if not isinstance(message, str):
            return ""
        return message


PlannedCall = Annotated[
    RunTool | RunActivity | RunNexus | RunAgent | RunHandoff | AwaitAnswer | UseResult | RefuseCall,
    Field(discriminator="kind"),
]


# ---------------------------------------------------------------- beside a plan that runs an activity


class CheckedCall(Record):
    """The output of `check_call`; its input is a ToolRequest."""

    result: ToolResult | None = None
    """A hook gave it for the arguments that a person put in: nothing runs."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Those that a person put in, as the activity's types want them, with defaults."""
    run_id: str = ""
    """The run in which it was looked at: what a reset undid later was not seen."""


class ActivityCall(Record):
    """The call that a user's own activity, or a Nexus operation, serves. It travels in a header, since the input is the
    user's own. Headers are not encrypted, so nothing that anybody said is in it."""

    turn: int
    call_id: str
    tool: str
    """As the model knows it; the activity may be called differently."""
    awaited: bool = False
    """No worker took it at first, and the conversation says that it waits for one."""
    own_queue: bool = False
    """It is on the conversation's own task queue, where workers of other versions may hand it back."""
    again: bool = False
    """If it is lost with its worker, it is tried again."""
