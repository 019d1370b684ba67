"""The calls of the current reply, from a history's steps: which were begun, and which have a result."""

from __future__ import annotations

from collections.abc import Collection

from everturn.carryover import OpenReply, planned_calls
from everturn.history.transcript import unwritten_result
from everturn.payloads import ModelReply
from everturn.plans import PlannedCall, RefuseCall, RunAgent, RunElsewhere, RunTool
from everturn.records import ToolCall, ToolResult
from everturn.state import State


class CallsByHistory:
    """The same as in the conversation itself: see workflows/tool_calls.py."""

    def __init__(self, open_reply: OpenReply | None = None) -> None:
        """`open_reply`: the one that the previous run left open."""
        open_reply = open_reply or OpenReply()
        self.planned: dict[str, tuple[ToolCall, PlannedCall]] = {
            call.call_id: (call, RefuseCall(call_id=call.call_id, text="")) for call in open_reply.calls
        }
        self.planned |= open_reply.planned
        self._results = {result.call_id: result for result in open_reply.results}
        self.recorded = set(self._results)
        """Those whose results are in events of their own."""
        self.from_outputs: set[str] = set()
        """Those whose results are made from what users' own activities returned."""
        self.running: set[str] = set()
        """Those that were begun and have not failed."""
        self.checked: set[str] = set()
        """Those that a worker is looking at before they begin."""

    def begin_reply(self, reply: ModelReply) -> None:
        self.planned = planned_calls(reply.message.tool_calls, reply.plan)
        self._results = {}
        self.recorded = set()
        self.from_outputs = set()

    def forget(self) -> None:
        """The model is asked: no earlier call is open any more."""
        self.planned = {}
        self._results = {}

    def take_result(self, result: ToolResult) -> bool:
        """False if the result belongs to none of them, or comes a second time."""
        if result.call_id not in self.planned or result.call_id in self._results:
            return False
        self._results[result.call_id] = result
        return True

    def result_of(self, call_id: str) -> ToolResult | None:
        return self._results.get(call_id)

    def plan_of(self, call_id: str) -> PlannedCall | None:
        """None if it is none of these calls."""
        return self.planned[call_id][1] if call_id in self.planned else None

    def begins_late(self, call_id: str) -> bool:
        """Whether the history says when the call begins."""
        return _begins_late(self.planned[call_id][1])

    @property
    def unsettled(self) -> list[tuple[ToolCall, PlannedCall]]:
        """Those without a result, with their plans."""
        return [(call, plan) for call, plan in self.planned.values() if call.call_id not in self._results]

    def has_begun(self, call_id: object) -> bool:
        """Whether it is one of these calls and runs or has a result."""
        return call_id in self.planned and (call_id in self._results or call_id in self.running)

    def is_settled(self, *, closing: bool, waiting: Collection[str]) -> bool:
        """Whether no more results will come: all calls have one, except those that a closing conversation no longer
        begins. `waiting`: the calls that wait for a decision, or for the check of one."""
        if not closing:
            return len(self._results) == len(self.planned)  # asked with each result, of which there may be hundreds
        begun = {*self.running, *self.checked, *waiting}
        return all(_begins_late(plan) and call.call_id not in begun for call, plan in self.unsettled)

    def hand_in(self, state: State) -> None:
        """Puts the results into the state. A call without a result was cut short."""
        if self.planned:
            results = (
                self._results.get(call_id) or unwritten_result(call) for call_id, (call, _) in self.planned.items()
            )
            state.take_results(tuple(results), recorded=self.recorded, from_outputs=self.from_outputs)
        self.forget()


def _begins_late(plan: PlannedCall) -> bool:
    """Whether the history says when a call with this plan begins. Of other calls it has only the results."""
    return isinstance(plan, RunAgent | RunElsewhere) or (isinstance(plan, RunTool) and not plan.local)
