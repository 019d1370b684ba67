"""The tool calls that wait for a person. Only the first decision on each counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow

from everturn import names
from everturn.calls.decision_records import already_decided
from everturn.calls.gate import answer_awaited_after
from everturn.calls.pending_calls import PendingCall, decision_of
from everturn.carryover import OpenReply
from everturn.payloads import AskedAgent
from everturn.policy import Policy
from everturn.records import Decision
from everturn.state import State
from everturn.text.commands import command_about
from everturn.text.iso_times import iso_time
from everturn.workflows.applied_decisions import AppliedDecision
from everturn.workflows.call_ledger import CallLedger
from everturn.workflows.early_decisions import EarlyDecisions
from everturn.workflows.expiry import SHORTEST_SECONDS, decision_of_expiry, wait_until_expired
from everturn.workflows.message_dispatch import Later

MOST_DECISIONS_KEPT = 1024
"""How many decisions are kept, to say to a second person who decided first: more than a reply has calls."""


MOST_NAMED_AGENTS = 10
"""How many of the sub-agents at work a refusal names."""


class PendingApprovals:
    """The state holds the waiting calls. This holds the decisions that they wait for, and the latest decisions."""

    def __init__(
        self,
        state: State,
        carried: OpenReply,
        *,
        ledger: CallLedger,
        agents_at_work: Mapping[str, AskedAgent],
        on_change: Callable[[], None],
    ) -> None:
        """`agents_at_work`: the sub-agents, whose calls wait in their own conversations."""
        self._state = state
        self._ledger = ledger
        self._agents_at_work = agents_at_work
        # From the first moment on, because decisions may arrive before `wait_for_decision` is called again.
        self._awaited = {call_id: _new_future() for call_id in state.pending}
        """The decisions that are waited for, by call_id."""
        self._carried = {call_id: (pending, self._awaited[call_id]) for call_id, pending in state.pending.items()}
        """The calls that wait before `wait_for_decision` is called for them, until it is: they waited in the earlier
        run, or a command has changed what they wait for. Their decisions may have come by then."""
        self.refused_edits = carried.refused_edits
        """How many edited arguments did not fit in this turn."""
        self._latest_decisions = {result.call_id: result.decision for result in carried.results if result.decision}
        self._being_checked: set[str] = set()
        """Calls with a decision that the approvers' function is checking."""
        self._closing = Decision(verdict="deny")
        self._on_change = on_change
        self._early = EarlyDecisions()

    async def wait_for_decision(self, pending: PendingCall, *, rules: Policy | None = None) -> AppliedDecision:
        """Waits until somebody decides on this call, or until it expires; which is counted from when it was asked for
        first. If the plan asks the agent's policy, what a person decides counts only from `make_final` on: see
        `take_back`. `rules`: those when somebody let it wait for that."""
        call_id = pending.call.call_id
        waiting = self._state.pending
        _, decided = self._carried.pop(call_id, (None, None))
        if decided is None:
            if self._state.closing:
                return AppliedDecision(self._closing, by_rule=True)
            decided = _new_future()
            waiting[call_id] = pending
            self._awaited[call_id] = decided
            self._follow_policy(pending, again=rules is not None and rules != self._state.rules)
        self._on_change()
        self._early.release(call_id, until=decided.done)
        clock: asyncio.Task[None] | None = None
        if pending.expiry and not decided.done():
            clock = asyncio.create_task(self._decide_at_expiry(pending))
        try:
            return await decided
        except asyncio.CancelledError:
            if decided.done() and not decided.cancelled() and pending.hands_over(decided.result().decision):
                return decided.result()  # the decision came before the turn was cancelled, if only by a moment
            raise
        finally:
            if self._awaited.get(call_id) is decided:
                del self._awaited[call_id]
                waiting.pop(call_id, None)
            if clock:
                clock.cancel()

    def find_carried(self, call_id: str) -> PendingCall | None:
        """What the call waits for, or waited for until somebody decided, before `wait_for_decision` is called for it;
        None if it has to be called first."""
        pending, _ = self._carried.get(call_id, (None, None))
        return pending

    def apply_changed_policy(self) -> None:
        """The policy has changed: it may decide on waiting calls."""
        rules = self._state.rules
        agent = self._state.agent
        for pending in [*self.undecided.values()]:
            if rule := pending.releasing_rule(rules, agent=agent):
                released = AppliedDecision(decision_of(rule, decided_at=iso_time(workflow.now())), by_rule=True)
                self.decide(pending.call.call_id, released)
            elif at_the_gate := pending.back_at_the_gate(rules, agent=agent):
                self._ask_first(at_the_gate)
            else:
                self._follow_policy(pending, again=True)

    def _follow_policy(self, pending: PendingCall, *, again: bool = False) -> None:
        decision = pending.decided_in_advance(
            self._state.rules, agent=self._state.agent, decided_at=iso_time(workflow.now()), again=again
        )
        if decision:
            self.decide(pending.call.call_id, AppliedDecision(decision))

    def _ask_first(self, pending: PendingCall) -> None:
        """The call no longer waits for its answer, but for an approval first."""
        waited_for = self._awaited[pending.call.call_id]
        self._carry(pending)
        waited_for.set_result(AppliedDecision(Decision(verdict="deny"), asks_first=True))
        self._on_change()

    def _carry(self, pending: PendingCall) -> None:
        """The call counts as waiting from now on, though its task calls `wait_for_decision` only later: another command
        may come first, in the same workflow task."""
        call_id = pending.call.call_id
        self._state.pending[call_id] = pending
        self._awaited[call_id] = decided = _new_future()
        self._carried[call_id] = pending, decided

    async def _decide_at_expiry(self, pending: PendingCall) -> None:
        await wait_until_expired(pending)
        self.decide(pending.call.call_id, decision_of_expiry(pending))

    def keep_early(self, call_id: str, later: Later) -> bool:
        """Keeps an early decision until its call waits. False if the decision is not early, but wrong or late."""
        checked = call_id in self._being_checked
        is_named = call_id != names.EVERY_CALL
        is_new = is_named and call_id not in self._state.pending and call_id not in self._latest_decisions
        is_early = checked or (is_new and self._ledger.may_wait_later(call_id))
        return is_early and self._early.keep(call_id, later, waits=checked)

    @property
    def decision_is_due(self) -> bool:
        """Whether a decision is about to come: an early one that may still be accepted, or that of an expiry."""
        soon = workflow.now() + timedelta(seconds=SHORTEST_SECONDS)
        return self._early.any_to_take or any(
            pending.expires and pending.expires <= soon for pending in self.undecided.values()
        )

    def make_final(self, call_id: str) -> None:
        """The decision on this call counts."""
        if call_id in self._carried:
            return  # it waits for something else by now, and a decision on that may have come
        self._being_checked.discard(call_id)
        self._early.discard_late(call_id)

    def take_back(self, call_id: str) -> None:
        """Forgets a decision of a person who turned out not to be allowed to decide."""
        self._being_checked.discard(call_id)
        self._latest_decisions.pop(call_id, None)

    def end_waits(self) -> None:
        """The turn is over: no call waits any more."""
        self._being_checked.clear()
        self._early.discard_late()
        self.refused_edits = 0
        while self._carried:
            call_id, _ = self._carried.popitem()
            self._state.pending.pop(call_id, None)
            self._awaited.pop(call_id, None)

    def deny_all(self, closing: Decision) -> None:
        """Denies all calls that wait now, and all that would wait later."""
        self._closing = closing
        self.decide(names.EVERY_CALL, AppliedDecision(closing, by_rule=True))

    def not_waiting_problem(self, call_id: str, verdict: str) -> str | None:
        """That no call waits for such a decision, in words; None if one does."""
        if call_id == names.EVERY_CALL:
            if any(self._addressed_ids(call_id, verdict)):
                return None
            return f"{self._none_waits_text(verdict)}{self._sub_agents_text()}"
        pending = self.undecided.get(call_id)
        if pending is None:
            if earlier := self._latest_decisions.get(call_id):
                if call_id in self._being_checked:
                    decision = f"decision by {earlier.by}" if earlier.by else "decision"
                    return f"Call {call_id!r}: the {decision} is being checked. Decide again in a moment."
                return already_decided(call_id, earlier)
            return f"No call {call_id!r} waits{self._who_waits_text(verdict)}{self._sub_agents_text()}"
        if not pending.refuses(verdict):
            return None
        named = f"Call {call_id!r} ({pending.call.name})"
        if verdict == names.ANSWER:
            return f"{named} waits for an approval: approve or deny it. Once it is approved, it can be answered."
        return f"{named} {'asks a question' if pending.tool_asks else 'runs outside'}: answer or deny it."

    def decide(self, call_id: str, applied: AppliedDecision) -> tuple[str, ...]:
        """Passes the decision to every call that it names, and returns their ids."""
        addressed = tuple(self._addressed_ids(call_id, applied.decision.verdict))
        applied = replace(applied, rules=self._state.rules)
        let_out: list[PendingCall] = []
        for waiting_id in addressed:
            pending = self._state.pending.pop(waiting_id)
            self._awaited.pop(waiting_id).set_result(applied)
            self._latest_decisions[waiting_id] = applied.decision
            if pending.policy and not applied.by_rule:
                self._being_checked.add(waiting_id)
            elif awaits := answer_awaited_after(pending, applied.decision):
                let_out.append(awaits.asked_since(workflow.time()))
        while len(self._latest_decisions) > MOST_DECISIONS_KEPT:
            self._latest_decisions.pop(next(iter(self._latest_decisions)))
        self._on_change()
        for pending in let_out:
            self._carry(pending)
        return addressed

    def _addressed_ids(self, call_id: str, verdict: str) -> Iterator[str]:
        return (key for key, pending in self.undecided.items() if pending.is_addressed(call_id, verdict))

    @property
    def undecided(self) -> dict[str, PendingCall]:
        """The calls that a decision can still reach: not a call whose turn was cancelled in this very step."""
        if self._state.cancelled:
            return {}
        return {
            call_id: pending for call_id, pending in self._state.pending.items() if not self._awaited[call_id].done()
        }

    def _none_waits_text(self, verdict: str) -> str:
        if waiting := self.undecided:
            waiting_ids = ", ".join(map(repr, waiting))
            if verdict == names.ANSWER:
                return f"No call waits for an answer. These wait for an approval: {waiting_ids}."
            return f"No call waits for an approval. These wait for an answer: {waiting_ids}."
        show = f"`{command_about('show', workflow.info().workflow_id)}`"
        return f"No call waits for a decision now. {show} shows the state."

    def _who_waits_text(self, verdict: str) -> str:
        if waiting := self.undecided:
            return f"; these do: {', '.join(map(repr, waiting))}."
        return f". {self._none_waits_text(verdict)}"

    def _sub_agents_text(self) -> str:
        """Where somebody may have meant to send a decision. It is not passed on: another call there may have the same
        id, and nobody could be told whether it was taken."""
        ids = [agent.conversation_id for agent in self._agents_at_work.values()]
        if not ids:
            return ""
        named = ", ".join(map(repr, ids[:MOST_NAMED_AGENTS]))
        if len(ids) > MOST_NAMED_AGENTS:
            named += f" and {len(ids) - MOST_NAMED_AGENTS} more"
        return f" A call of a sub-agent waits in its own conversation; at work are {named}."


def _new_future() -> asyncio.Future[AppliedDecision]:
    return asyncio.get_running_loop().create_future()
