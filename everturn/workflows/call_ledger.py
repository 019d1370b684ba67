"""The calls of the current reply, and what has come of each."""

from __future__ import annotations

from everturn.carryover import OpenReply
from everturn.records import ToolCall, ToolResult
from everturn.workflows.chain import RunChain


class CallLedger:
    """`carried`: the reply that the run before left open."""

    def __init__(self, carried: OpenReply, chain: RunChain) -> None:
        self.chain = chain
        self.calls: tuple[ToolCall, ...] = carried.calls
        self.results: dict[str, ToolResult] = {result.call_id: result for result in carried.results}
        """By call_id."""
        self.running: set[str] = set()
        """The calls that were started, as long as it is not known how they ended. One that is cut short may have taken
        effect."""
        self.lost: set[str] = set()
        """Those of which a try was lost, before they were handed back."""
        self.recorded: set[str] = set(self.results)
        """Those whose result is in the event of its tool's activity, in the marker of a local one, in the event of its
        agent's conversation, or in the run's start."""
        self.from_outputs: set[str] = set()
        """Those whose results are made from the output of a user's own activity, in that activity's event."""
        self.chain_ids: dict[str, str] = {
            question.call_id: question.chain_id for question in carried.waits if question.chain_id
        }
        """Of the calls that ran: a call that a person lets run again is still the same."""

    def begin_reply(self, calls: tuple[ToolCall, ...]) -> None:
        """From here on, each of them will get a result."""
        self.calls = calls
        self.results = {}
        self.recorded = set()
        self.chain_ids = {}
        self.running.clear()
        self.lost.clear()
        self.from_outputs.clear()

    def await_hooks(self, call_id: str) -> None:
        """Its result is in an event, but hooks are to see it first, and may change it."""
        self.running.add(call_id)
        self.recorded.discard(call_id)
        self.from_outputs.discard(call_id)

    def close_reply(self, reason: str) -> tuple[ToolResult, ...]:
        """The results, in the order of the calls. A call without one gets a result that says that it was cut short, and
        why."""
        results = tuple(self.results.get(call.call_id) or self._cut_short(call, reason) for call in self.calls)
        self.calls = ()
        return results

    def _cut_short(self, call: ToolCall, reason: str) -> ToolResult:
        return ToolResult.cut_short(call, reason, running=call.call_id in self.running | self.lost)

    @property
    def all_settled(self) -> bool:
        return len(self.results) >= len(self.calls)

    @property
    def to_come(self) -> int:
        """How many of the calls have not started."""
        return len(self.calls) - len(self.running | self.results.keys())

    @property
    def in_events(self) -> tuple[str, ...]:
        """The calls whose results are in events, or made from what is in events."""
        return tuple(call_id for call_id in self.results if call_id in self.recorded | self.from_outputs)

    def may_wait_later(self, call_id: str) -> bool:
        """Whether a call may start to wait for a person later: a call of this reply that was not started, or one of a
        later reply."""
        known = any(call.call_id == call_id for call in self.calls)
        return not self.calls or (known and call_id not in self.results.keys() | self.running)
