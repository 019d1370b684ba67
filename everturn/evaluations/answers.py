"""An answer as an evaluator is given it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from everturn.names import unversioned
from everturn.records import Decision, Message, Stop, ToolCall, ToolResult, Usage
from everturn.tracing import TraceContext

Effect = Literal["read", "idempotent", "once"]


@dataclass(frozen=True, kw_only=True)
class AnsweredCall:
    """A call of a tool that the model made on the way to its answer."""

    call: ToolCall
    effect: Effect | None = None
    """None if no tool of a worker ran: a sub-agent or a client gave the result, or the call was refused."""
    result: ToolResult | None = None
    started_at: datetime | None = None
    """When its last run began; None if it never ran as an activity."""
    finished_at: datetime | None = None

    @property
    def name(self) -> str:
        """The tool's."""
        return self.call.name

    @property
    def arguments(self) -> dict[str, JsonValue]:
        return self.call.arguments

    @property
    def decision(self) -> Decision | None:
        """What a person, or a rule, said to it."""
        return self.result.decision if self.result else None


@dataclass(frozen=True, kw_only=True)
class JudgedAnswer:
    """What an agent said to somebody, and how it came to that."""

    conversation_id: str
    run_id: str
    """The workflow run whose history has it."""
    turn: int
    """The turn of the final reply."""
    agent: str
    """The agent that gave it, with its version if it has one: `clerk@2`."""
    model: str = ""
    """`provider:name`; empty if it is not known."""
    input: str = ""
    """What people said since the answer before it."""
    text: str = ""
    """The final reply's."""
    stop: Stop = "end"
    """Why the model stopped there: with anything but `end`, the reply is not the whole answer."""
    output: JsonValue = None
    """The final reply as the agent's `output` type, as JSON; None if it has none."""
    messages: tuple[Message, ...] = ()
    """The transcript up to and including the final reply."""
    calls: tuple[AnsweredCall, ...] = ()
    """All calls of the answer, in order."""
    turns: int = 1
    """How many replies the model gave for it."""
    usage: Usage = field(default_factory=Usage)
    """Of these replies."""
    cost_usd: float | None = None
    """The same; None if a price is not known."""
    started_at: datetime
    """When its first turn began."""
    finished_at: datetime
    tenant: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the conversation was started with."""
    trace: TraceContext | None = None
    """The span of the answer; None if its worker traced nothing."""

    @property
    def agent_name(self) -> str:
        """Without its version."""
        return unversioned(self.agent)

    @property
    def seconds(self) -> float:
        """From its first turn to its final reply, with the time that it waited for people."""
        return (self.finished_at - self.started_at).total_seconds()
