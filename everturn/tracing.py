"""Where a conversation's spans belong, and the spans that no activity can make: they cover time in the workflow.

An activity's span is made by the try that ran. A wait for a person, and an answer as a whole, pass between activities:
the workflow notes them and hands them to the next model turn, whose try exports them with its own. Their ids follow
from the conversation's, so each try exports the same. See decision 0018. No OpenTelemetry in here.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Literal

from pydantic import Field, field_validator

from everturn.records import Record, Usage

MAX_OVER = 8
"""Answers that ended without a reply since the last model turn. If there are more, the latest ones."""

TOOL_ERROR = "tool_error"
"""The error.type of a call whose result tells the model of an error."""

MAX_LINKS = 16
"""Messages of other traces that one answer is linked to."""

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-|$)")
_TRACEPARENT_CHARS = 55
_LONGEST_TRACESTATE = 512

LastTurnTraced = Literal["unknown", "sampled", "dropped", "off"]
"""What the last model turn said of itself: nothing yet; it said its spans; a sampler drops this trace; it has no
traces."""


class TraceContext(Record):
    """A span's place, in the words of W3C's Trace Context."""

    traceparent: str
    tracestate: str = ""

    @field_validator("traceparent")
    @classmethod
    def _as_specified(cls, traceparent: str) -> str:
        if not _TRACEPARENT.match(traceparent):
            raise ValueError(f"{traceparent!r:.100} is not a traceparent")
        return traceparent[:_TRACEPARENT_CHARS]  # later versions of the standard may have more

    @field_validator("tracestate")
    @classmethod
    def _or_none(cls, tracestate: str) -> str:
        if len(tracestate) > _LONGEST_TRACESTATE or not (tracestate.isascii() and tracestate.isprintable()):
            return ""
        return tracestate

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return self.traceparent[36:52]

    @property
    def sampled(self) -> bool:
        return bool(int(self.traceparent[53:55], 16) & 1)

    @classmethod
    def from_ids(cls, trace_id: str, span_id: str, *, sampled: bool, tracestate: str = "") -> TraceContext:
        return cls(traceparent=f"00-{trace_id}-{span_id}-0{int(sampled)}", tracestate=tracestate)


def or_none(context: Any) -> Any:
    """A trace's context as a caller sends it; None for what is none. The standard says to go on without, then: nothing
    is refused for it."""
    try:
        return TraceContext.model_validate(context)
    except ValueError:
        return None


class WaitSpan(Record):
    """A call waited for a person, or for an activity that is not ours and has no span of ours; or all of the
    conversation waited for somebody to resume it."""

    call_id: str = ""
    tool: str = ""
    needs: Literal["approval", "answer", "activity", "resume"] = "approval"
    reason: str = ""
    """A WaitReason; for a conversation that waits to be resumed: 'stalled' or 'paused'."""
    answer: int = 0
    """The first turn of the answer that the wait was in; 0 if it was in none."""
    since: float
    """Seconds since 1970, by the server's clock; as all times here."""
    until: float
    verdict: str = ""
    """Empty if nobody decided: the turn was cancelled. For a wait to be resumed: the command that ended it."""
    by: str = ""
    error: str = ""
    """The type of the error that the activity ended with."""


class AnswerSpan(Record):
    """What happens from a message to the final reply: one invocation of the agent."""

    turn: int
    """The answer's first turn."""
    since: float
    links: tuple[TraceContext, ...] = Field(default=(), max_length=MAX_LINKS)
    """The traces of the messages that it answers, beside the caller's."""
    usage: Usage = Usage()
    """Spent so far, without the turn at hand."""
    cost_usd: float | None = None
    """The same in US dollars; None if a price is not known."""
    until: float | None = None
    """When it ended, if no reply ended it."""
    status: str = ""
    """How it ended then: 'cancelled', 'limit_reached' ..."""


class Trace(Record):
    """Where a model turn's spans belong, and which other spans it is to export. `over` and `waits` are sent again
    until a reply of a worker that traces is recorded."""

    chain_id: str
    caller: TraceContext | None = None
    """The span that started the conversation. None if it is not known: the conversation is then a trace of its own."""
    answer: AnswerSpan | None = None
    """The current answer; None if a sampler drops the trace: then no span is exported."""
    over: tuple[AnswerSpan, ...] = ()
    waits: tuple[WaitSpan, ...] = ()

    @property
    def trace_id(self) -> str:
        if self.caller:
            return self.caller.trace_id
        return _hex_digits("trace", self.chain_id)[:32]

    def answer_context(self, turn: int, *, sampled: bool) -> TraceContext:
        """The span of the answer that began with this turn."""
        state = self.caller.tracestate if self.caller else ""
        span_id = _hex_digits("answer", self.chain_id, turn)[:16]
        return TraceContext.from_ids(self.trace_id, span_id, sampled=sampled, tracestate=state)

    def wait_span_id(self, wait: WaitSpan) -> str:
        return _hex_digits("wait", self.chain_id, wait.call_id or wait.reason, wait.since, wait.until)[:16]


class CarriedTrace(Record):
    """What one run hands to the next for its traces."""

    trace: Trace
    told: LastTurnTraced = "unknown"
    links: tuple[TraceContext, ...] = Field(default=(), max_length=MAX_LINKS)
    """The traces of messages that no answer has taken yet."""
    usage_before: Usage = Usage()
    """What the conversation had spent when the answer at hand began."""
    cost_before: float | None = 0.0


class ExportSpans(Record):
    """The input of `export_spans`: the spans that are left when a conversation ends without a last reply."""

    agent: str
    model: str = ""
    trace: Trace


def _hex_digits(*what: object) -> str:
    return sha256("\n".join(map(str, ("everturn", *what))).encode("utf-8", "surrogatepass")).hexdigest()
