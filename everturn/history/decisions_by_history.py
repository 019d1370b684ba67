"""The decisions on the calls that wait, by the steps of a history: what people, the clock and the policy say, and what
the agent's own policy says to that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everturn import names
from everturn.calls.decision_problems import decision_problem
from everturn.calls.decisions import DECISION_RECORDS, Answer, Approve
from everturn.calls.pending_calls import PendingCall, rules_of
from everturn.carryover import OpenReply
from everturn.history import steps
from everturn.history.transcript import unwritten
from everturn.plans import RunHandoff
from everturn.policy import Policy, Rule, with_rules
from everturn.records import ToolCall, ToolResult
from everturn.state import State

Ruled = tuple[str, Rule]
"""A call that the conversation's policy has decided on, and the rule that decided."""


class DecisionsByHistory:
    """The same as in the conversation itself: see workflows/approvals.py. The waiting calls are in the state."""

    def __init__(
        self,
        state: State,
        left: OpenReply | None = None,
        *,
        settle: Callable[[ToolResult], None],
        hand_over: Callable[[ToolCall, RunHandoff], None],
        on_held: Callable[[steps.CommandSent], None],
    ) -> None:
        """`left`: the reply that the previous run left open. `settle` takes the result of a call that does not run.
        `hand_over` takes one that puts another agent in charge. `on_held` takes a decision that was held and counts
        now."""
        self._state = state
        self._settle = settle
        self._hand_over = hand_over
        self._on_held = on_held
        self.asked = dict(state.pending)
        """What people were last asked about the calls of the current reply."""
        self.checked: dict[str, tuple[PendingCall, str]] = {}
        """The calls with a decision that the agent's policy is checking, by verdict."""
        self.taken = {one.call_id for one in left.results if one.decision} if left else set[str]()
        """The calls that somebody has decided on, in this run or before it in the open reply."""
        self._held: list[steps.CommandSent] = []
        """Decisions that came by signal while another decision on the same call was checked. They count if that one is
        refused."""
        self.ruled: list[Ruled] = []
        """Since it was last asked for."""
        self.refused_edits = left.refused_edits if left else 0
        """How many edited arguments did not fit in this turn."""

    def begin_reply(self) -> None:
        self.asked.clear()
        self.checked.clear()
        self.refused_edits = 0

    def end_reply(self) -> None:
        self.checked.clear()
        self._held.clear()
        self._state.pending.clear()

    def take_ruled(self) -> list[Ruled]:
        """The calls that the policy has decided on since the last time this was asked, with the rules that decided."""
        ruled, self.ruled = self.ruled, []
        return ruled

    # ------------------------------------------------------------ calls

    def wait(self, pending: PendingCall, *, time: float) -> None:
        call_id = pending.call.call_id
        self._state.pending[call_id] = self.asked[call_id] = pending.at(time)
        self._follow_policy(pending)

    def is_known(self, call_id: object) -> bool:
        """Whether somebody has decided on the call."""
        return call_id == names.EVERY_CALL or call_id in self.taken

    # ------------------------------------------------------------ what people say

    def take(self, verdict: str, payload: dict[str, Any], *, time: float) -> bool:
        """False if the decision can't be taken now."""
        said = DECISION_RECORDS[verdict].model_validate(payload)
        approving, waiting = isinstance(said, Approve), self._state.pending.values()
        addressed = [one for one in waiting if one.addressed(said.call_id, approving=approving)]
        policy, refused_edits = self._state.policy, self.refused_edits
        if decision_problem(said, addressed, policy=policy, time=time, refused_edits=refused_edits):
            return False
        rules = () if isinstance(said, Answer) else rules_of(said, addressed)
        for pending in addressed:
            self._hear(pending, verdict)
        if rules and addressed:
            self.change_policy(with_rules(self._state.policy, rules))
        return bool(addressed)

    def hold(self, step: steps.Sent) -> bool:
        """Whether the decision came while another decision on its call is checked."""
        if not isinstance(step, steps.CommandSent) or step.payload.get("call_id") not in self.checked:
            return False
        self._held.append(step)
        return True

    def change_policy(self, policy: Policy | None) -> bool:
        """None if it can't be taken."""
        if policy is not None:
            self._state.policy = policy
            for pending in [*self._state.pending.values()]:
                self._follow_policy(pending, again=True)
        return policy is not None

    def decide(self, pending: PendingCall, verdict: str) -> None:
        """A decision that counts."""
        self._state.pending.pop(pending.call.call_id, None)
        if verdict == "approve" and isinstance(pending.plan, RunHandoff):
            self._hand_over(pending.call, pending.plan)
        elif self._state.closing or (verdict != "approve" and not pending.tool_asks):  # one that closes begins nothing
            self._settle(unwritten(pending.call))

    def close(self) -> None:
        """Denies all waiting calls."""
        for pending in [*self._state.pending.values()]:
            self.decide(pending, "deny")

    def _follow_policy(self, pending: PendingCall, *, again: bool = False) -> None:
        if rule := pending.ruled(self._state.policy, again=again):
            self.ruled.append((pending.call.call_id, rule))
            self._hear(pending, rule.then)

    def _hear(self, pending: PendingCall, verdict: str) -> None:
        """A decision, which may need a check first."""
        self.taken.add(pending.call.call_id)
        if pending.policy:
            self._state.pending.pop(pending.call.call_id)
            self.checked[pending.call.call_id] = (pending, verdict)
        else:
            self.decide(pending, verdict)

    # ------------------------------------------------------------ what the agent's policy says to it

    def take_check(self, call_id: str, *, by: str, refusal: str, time: float) -> None:
        """`refusal`: why this person may not decide; empty if they may."""
        if call_id not in self.checked:
            return
        pending, verdict = self.checked.pop(call_id)
        held = [step for step in self._held if step.payload.get("call_id") == call_id]
        self._held = [step for step in self._held if step not in held]
        if refusal and self._state.closing:  # which denies it
            self._settle(unwritten(pending.call))
        elif refusal:
            self.taken.discard(call_id)
            self.wait(pending.after_check(by=by, refusal=refusal), time=time)
            while held:
                first = held.pop(0)
                if self.take(first.name, first.payload, time=time):
                    self._on_held(first)
                    break
            self._held += held
        else:
            self.decide(pending, verdict)
