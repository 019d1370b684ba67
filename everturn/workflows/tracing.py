"""What a conversation notes for whoever traces it: its answers, and how long calls waited for people.

Nothing is exported from here, so that a replay has nothing to repeat: the next model turn is given the notes, and
exports them.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, FailureError

from everturn import names
from everturn.calls import causes
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import CarryOver
from everturn.payloads import ModelReply, Start
from everturn.records import Decision, ToolCall, ToolResult
from everturn.sizes import MAX_SPAN_NAME_BYTES, MAX_WAITS_BYTES, size_of
from everturn.state import State
from everturn.text.shortening import shortened
from everturn.tracing import (
    MAX_LINKS,
    MAX_OVER,
    TOOL_ERROR,
    AnswerSpan,
    CarriedTrace,
    ExportSpans,
    LastTurnTraced,
    Trace,
    TraceContext,
    WaitSpan,
    or_none,
)
from everturn.workflows.eviction_guard import OwnLoop

HEADER = "_tracer-data"
"""Where temporalio.contrib.opentelemetry puts the caller's context."""

EXPORT_TIMEOUT = timedelta(seconds=2)
"""Well below a workflow task's time-out: what is said for the end of a conversation may not hold it up."""


class Tracing:
    def __init__(self, state: State, start: Start, carry: CarryOver, *, chain_id: str) -> None:
        self._state = state
        self._own_loop = OwnLoop()
        self._chain_id = chain_id
        carried = carry.trace or CarriedTrace.model_construct(
            trace=Trace(chain_id=chain_id, caller=start.trace or _by_header()),
            usage_before=state.totals.usage,
            cost_before=state.totals.cost_usd,
        )
        self._caller: TraceContext | None = carried.trace.caller
        self._answer = carried.trace.answer
        self._over = list(carried.trace.over)
        self._waits = list(carried.trace.waits)
        self._links = list(carried.links)
        """Of messages that no model turn was asked with yet: the answer that takes them is linked to them."""
        self._told: LastTurnTraced = carried.told
        self._usage_before = carried.usage_before
        self._cost_before = carried.cost_before
        """What the conversation had spent when the answer at hand began."""

    # ------------------------------------------------------------ what is noted

    def begin_answer(self) -> None:
        """An answer begins, unless the run before began it."""
        if self._answer:
            return
        self._usage_before = self._state.totals.usage
        self._cost_before = self._state.totals.cost_usd
        self._answer = AnswerSpan(turn=self._state.turn + 1, since=workflow.time(), links=tuple(self._links))
        self._links.clear()

    def note_message(self, context: TraceContext | None) -> None:
        """A message came from this place."""
        if context is None or (self._caller and context.trace_id == self._caller.trace_id):
            return
        # Not to the answer at hand: its last turn may be under way, and would not export it.
        self._links = [*self._links, context.model_copy(update={"tracestate": ""})][-MAX_LINKS:]

    def note_wait(self, pending: PendingCall, decision: Decision | None) -> None:
        """That call's wait is over: by a decision, or cut short."""
        decided = {"verdict": "", "by": ""}
        if decision:
            decided = {"verdict": decision.verdict, "by": shortened(decision.by, max_bytes=MAX_SPAN_NAME_BYTES)}
        self._add_wait(
            call_id=pending.call.call_id,
            tool=pending.call.name,
            needs=pending.needs,
            reason=pending.asked.reason or "",
            since=pending.asked.since,
            **decided,
        )

    def was_held(self, reason: Literal["stalled", "paused"], *, since: float, ended: str, resumed_by: str) -> None:
        """The conversation waited for somebody, until the command `ended` of `resumed_by`; until it was cancelled, if
        empty."""
        resumed_by = shortened(resumed_by, max_bytes=MAX_SPAN_NAME_BYTES)
        self._add_wait(needs="resume", reason=reason, since=since, verdict=ended, by=resumed_by)

    async def note_activity(self, call: ToolCall, result: Awaitable[ToolResult]) -> ToolResult:
        """The result of a call that a user's own activity serves. Such an activity exports no span of ours, so its time
        is noted here."""
        since = workflow.time()
        error = "cancelled"
        try:
            given = await result
            error = TOOL_ERROR if given.is_error else ""
            return given
        except ActivityError as failure:
            error = causes.cause_of(failure).kind or "timeout"
            raise
        finally:
            self._add_wait(call_id=call.call_id, tool=call.name, needs="activity", since=since, error=error)

    def _add_wait(self, **facts: Any) -> None:
        if self._told in ("dropped", "off") or not self._own_loop.is_running:
            return
        answer = self._answer.turn if self._answer else 0
        self._waits.append(WaitSpan(answer=answer, until=workflow.time(), **facts))
        while len(self._waits) > 1 and size_of(self._waits) > MAX_WAITS_BYTES:
            self._waits.pop(0)

    def take_reply(self, reply: ModelReply, *, ends: bool) -> None:
        """A model turn is recorded: it has exported what it was given. `ends`: its reply may be the answer's last."""
        self._told = reply.traced or "off"
        self._over = []
        self._waits = []
        if ends and reply.ends_answer:
            self._answer = None

    def end_answer(self, status: str) -> None:
        """The answer at hand is over, and no reply said so."""
        if (answer := self._so_far()) and self._told == "sampled":
            ended = answer.model_copy(update={"until": workflow.time(), "status": status})
            self._over = [*self._over, ended][-MAX_OVER:]
        self._answer = None

    # ------------------------------------------------------------ what is handed on

    def of_turn(self) -> Trace | None:
        """For a model turn; None if the last one's worker does not trace."""
        if self._told == "off":
            return None
        if self._told == "dropped":
            return Trace(chain_id=self._chain_id, caller=self._caller)
        if self._answer and self._links:
            links = (*self._answer.links, *self._links)[-MAX_LINKS:]
            self._answer = self._answer.model_copy(update={"links": links})
            self._links = []
        return self._current_trace()

    def of_call(self) -> TraceContext | None:
        """The parent of a tool's span; None if nothing is exported."""
        if self._told != "sampled":
            return None
        return self._answer_context()

    def of_child(self) -> TraceContext | None:
        """The caller of another agent's conversation."""
        if self._told in ("unknown", "off"):
            return self._caller
        return self._answer_context()

    def carried(self) -> CarriedTrace | None:
        """None if there is nothing that the next run would not find by itself."""
        if self._told == "off" and not self._caller:
            return None
        return CarriedTrace(
            trace=self._current_trace(),
            told=self._told,
            links=tuple(self._links),
            usage_before=self._usage_before,
            cost_before=self._cost_before,
        )

    async def say_the_rest(self, status: str) -> None:
        """Exports what no model turn will, since the conversation ends here: in this workflow task, so that nothing can
        come in meanwhile."""
        self.end_answer(status)
        if self._told != "sampled" or not (self._over or self._waits):
            return
        rest = ExportSpans(agent=self._state.agent, model=self._state.asked_model, trace=self._current_trace())
        with suppress(FailureError):  # the worker is of another version, or its exporter hangs
            await workflow.execute_local_activity(
                names.EXPORT_SPANS,
                rest,
                schedule_to_close_timeout=EXPORT_TIMEOUT,
                retry_policy=RetryPolicy(maximum_attempts=1),
                summary="spans of the end",
            )

    def _current_trace(self) -> Trace:
        return Trace(
            chain_id=self._chain_id,
            caller=self._caller,
            answer=self._so_far(),
            over=tuple(self._over),
            waits=tuple(self._waits),
        )

    def _so_far(self) -> AnswerSpan | None:
        """The answer at hand, with what it has spent."""
        if self._answer is None:
            return None
        usage = self._state.totals.usage.since(self._usage_before)
        cost: float | None = None
        if self._state.totals.cost_usd is not None and self._cost_before is not None:
            cost = self._state.totals.cost_usd - self._cost_before
        return self._answer.model_copy(update={"usage": usage, "cost_usd": cost})

    def _answer_context(self) -> TraceContext | None:
        if self._answer is None:
            return None
        trace = Trace(chain_id=self._chain_id, caller=self._caller)
        return trace.answer_context(self._answer.turn, sampled=self._told == "sampled")


def _by_header() -> TraceContext | None:
    """The caller's, if another client than ours started this."""
    header = workflow.info().headers.get(HEADER)
    if header is None:
        return None
    try:
        context = or_none(workflow.payload_converter().from_payload(header))
    except Exception:  # noqa: BLE001 - converters raise all kinds
        return None
    if not isinstance(context, TraceContext):
        return None
    return context
