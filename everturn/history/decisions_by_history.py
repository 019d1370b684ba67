"""The decisions on the calls that wait, by the steps of a history: what people, the clock and the policy say, and what
the agent's own policy says to that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from everturn import names
from everturn.calls.decision_problems import decision_problem, denied_edit_problem
from everturn.calls.decision_records import DECISION_RECORDS, Answer, Approve, Deny
from everturn.calls.gate import for_answer
from everturn.calls.pending_calls import PendingCall, decision_of, rules_of
from everturn.carryover import OpenReply
from everturn.history import steps
from everturn.history.transcript import unwritten_result
from everturn.plans import AwaitAnswer, RunAgent, RunHandoff, UseResult
from everturn.policy import Policy, Rule, with_rules
from everturn.records import Decision, ToolCall, ToolResult
from everturn.state import State
from everturn.text.iso_times import iso_time_at

Ruled = tuple[str, Decision]
"""A call that the conversation's policy has decided on, and the rule that decided."""


@dataclass
class QueuedDenial:
    """A new rule denies a call that had passed the gate, if the agent's policy lets it."""

    call: ToolCall
    is_checked: bool = True
    """The policy has not said yet whether it does."""
    given: ToolResult | None = None
    """What counts if it does not: the result that a hook gave meanwhile,"""
    let_out: tuple[PendingCall, Decision] | None = None
    """or the approval of a call that no activity runs."""


class DecisionsByHistory:
    """The same as in the conversation itself: see workflows/approvals.py. The waiting calls are in the state."""

    def __init__(
        self,
        state: State,
        open_reply: OpenReply | None = None,
        *,
        settle: Callable[[ToolResult], None],
        answered: Callable[[ToolCall], None],
        hand_over: Callable[[ToolCall, RunHandoff], None],
        on_held: Callable[[steps.CommandSent], None],
        clock: Callable[[], float],
    ) -> None:
        """`open_reply`: the one that the previous run left open. `settle` takes the result of a call that does not run;
        `answered` takes a call of which somebody gave the result. `hand_over` takes one that puts another agent in
        charge. `on_held` takes a decision that was held and counts now. `clock`: the conversation's, in seconds since
        1970."""
        open_reply = open_reply or OpenReply()
        self._state = state
        self._settle = settle
        self._answered = answered
        self._hand_over = hand_over
        self._on_held = on_held
        self._clock = clock
        self.asked = dict(state.pending)
        """What people were last asked about the calls of the current reply."""
        self.checked: dict[str, tuple[PendingCall, Decision]] = {}
        """The calls with a decision that the agent's policy is checking."""
        self._rules_then: dict[str, Policy] = {}
        """The rules when the latest decision on a call was made."""
        self.edited: dict[str, tuple[PendingCall, Decision]] = {}
        """The calls that no worker runs, with an approval whose arguments a worker is looking at."""
        self.queued_denials: dict[str, QueuedDenial] = {}
        self.new_waits: set[str] = set()
        """The calls that began to wait in the last workflow task."""
        self.approvals: dict[str, Decision] = {}
        """Of the calls that were approved."""
        self.refusals: dict[str, Decision] = {}
        """Of the calls that were denied, or answered in the tool's place."""
        self.answers: dict[str, Answer] = {}
        """What people last said in the place of a call's tool."""
        self.taken = {result.call_id for result in open_reply.results if result.decision}
        """The calls that somebody has decided on, in this run or before it in the open reply."""
        self._held: list[steps.CommandSent] = []
        """Decisions that came by signal while another decision on the same call was checked. They count if that one is
        refused."""
        self.ruled: list[Ruled] = []
        """Since it was last asked for."""
        self.refused_edits = open_reply.refused_edits
        """How many edited arguments did not fit in this turn."""

    def begin_reply(self) -> None:
        self.asked.clear()
        self.checked.clear()
        self.edited.clear()
        self.queued_denials.clear()
        self.approvals.clear()
        self.refusals.clear()
        self.answers.clear()
        self.refused_edits = 0

    def end_reply(self) -> None:
        self.checked.clear()
        self.edited.clear()
        self.queued_denials.clear()
        self._held.clear()
        self._state.pending.clear()

    def take_ruled(self) -> list[Ruled]:
        """The calls that the policy or the reviewer has decided on since the last time this was asked, with the
        decisions."""
        ruled = self.ruled
        self.ruled = []
        return ruled

    # ------------------------------------------------------------ calls

    def begin_waiting(self, pending: PendingCall, *, time: float, again: bool = False) -> None:
        """`again`: the rules have changed since it was decided that it may wait for that."""
        call_id = pending.call.call_id
        pending = pending.asked_since(time)
        self._state.pending[call_id] = self.asked[call_id] = pending
        self.new_waits.add(call_id)
        self._follow_policy(pending, again=again)

    def expire(self, call_id: str) -> None:
        """A timer is over. One that ends as a decision comes was for what the call waited for before that."""
        pending = self._state.pending.get(call_id)
        if pending and call_id not in self.new_waits:
            self.decide(pending, pending.decision_on_expiry(self._current_time))

    def is_known(self, call_id: object) -> bool:
        """Whether somebody has decided on the call."""
        return call_id == names.EVERY_CALL or call_id in self.taken

    # ------------------------------------------------------------ what people say

    def take_decision(self, verdict: str, payload: dict[str, Any], *, time: float) -> bool:
        """False if the decision can't be taken now."""
        command = DECISION_RECORDS[verdict].model_validate(payload)
        state = self._state
        addressed = [pending for pending in state.pending.values() if pending.is_addressed(command.call_id, verdict)]
        problem = decision_problem(
            command, addressed, policy=state.policy, agent=state.agent, time=time, refused_edits=self.refused_edits
        )
        if problem or denied_edit_problem(command, addressed, state.rules, agent=state.agent):
            return False
        rules: Policy = ()
        if not isinstance(command, Answer):
            rules = rules_of(command, addressed, agent=state.agent)
        decision = Decision.model_validate({"verdict": verdict, "by": command.by, "at": self._current_time})
        if isinstance(command, Approve):
            decision = decision.model_copy(update={"note": command.note, "arguments": command.arguments})
        elif isinstance(command, Deny):
            decision = decision.model_copy(update={"note": command.reason})
        else:
            self.answers |= {pending.call.call_id: command for pending in addressed}
        for pending in addressed:
            self._decide_or_check(pending, decision)
        if rules and addressed:
            self.change_policy(with_rules(self._state.policy, rules))
        return bool(addressed)

    def hold_decision(self, step: steps.Sent) -> bool:
        """Whether the decision came while another decision on its call is checked."""
        if not isinstance(step, steps.CommandSent) or step.payload.get("call_id") not in self.checked:
            return False
        self._held.append(step)
        return True

    def change_policy(self, policy: Policy | None) -> bool:
        """False if there is none, since it can't be taken."""
        if policy is not None:
            self._state.policy = policy
            self._look_again()
        return policy is not None

    def inherit_policy(self, policy: Policy) -> bool:
        if self._state.start.caller is None:
            return False
        self._state.inherited = policy
        self._look_again()
        return True

    def _look_again(self) -> None:
        rules = self._state.rules
        agent = self._state.agent
        for call_id, pending in [*self._state.pending.items()]:
            if rule := pending.releasing_rule(rules, agent=agent):
                decision = self._by_rule(rule)
                self.ruled.append((call_id, decision))
                self.taken.add(call_id)
                self.decide(pending, decision)
            elif at_the_gate := pending.back_at_the_gate(rules, agent=agent):
                self._state.pending[call_id] = self.asked[call_id] = at_the_gate
            else:
                self._follow_policy(pending, again=True)

    def decide(self, pending: PendingCall, decision: Decision) -> None:
        """A decision that counts."""
        call = pending.call
        plan = pending.plan
        decision = pending.with_arguments(decision)
        self._state.pending.pop(call.call_id, None)
        approved = decision.verdict == "approve"
        (self.approvals if approved else self.refusals)[call.call_id] = decision
        edits = decision.arguments is not None and not pending.is_as_hooks_saw(decision)
        if approved and edits and isinstance(plan, RunHandoff | RunAgent | AwaitAnswer | UseResult):
            self.edited[call.call_id] = (pending, decision)  # a worker looks at the arguments
        elif approved:
            self._let_out(pending, decision)
        elif pending.tool_asks and not self._state.closing:
            pass  # it runs again, with the answer
        elif decision.verdict == "answer":
            self._answered(call)
        else:
            self._settle(unwritten_result(call))

    def _let_out(self, pending: PendingCall, approval: Decision) -> None:
        call = pending.call
        plan = pending.plan
        if denial := self.queued_denials.get(call.call_id):
            denial.let_out = pending, approval
        elif isinstance(plan, UseResult) or self._state.closing:  # one that closes begins nothing
            self._settle(unwritten_result(call))
        elif isinstance(plan, RunHandoff):
            self._hand_over(call, plan)
        elif isinstance(plan, AwaitAnswer):
            self.begin_waiting(
                for_answer(call, plan, approval=approval, arguments=approval.arguments),
                time=self._clock(),
                again=self._rules_then.get(call.call_id, self._state.rules) != self._state.rules,
            )

    def take_edit(self, call_id: str, arguments: dict[str, Any]) -> None:
        """A worker has looked at the arguments that a person put in: they fit."""
        if call_id in self.edited:
            pending, decision = self.edited.pop(call_id)
            self._let_out(pending, decision.model_copy(update={"arguments": arguments}))

    @property
    def _current_time(self) -> str:
        return iso_time_at(self._clock())

    def _by_rule(self, rule: Rule) -> Decision:
        return decision_of(rule, decided_at=self._current_time)

    def deny_all(self) -> None:
        """Denies all waiting calls."""
        for pending in [*self._state.pending.values()]:
            self.decide(pending, Decision(verdict="deny"))

    def _follow_policy(self, pending: PendingCall, *, again: bool = False) -> None:
        decision = pending.decided_in_advance(
            self._state.rules, agent=self._state.agent, decided_at=self._current_time, again=again
        )
        if decision:
            self.ruled.append((pending.call.call_id, decision))
            self._decide_or_check(pending, decision)

    def _decide_or_check(self, pending: PendingCall, decision: Decision) -> None:
        """A decision, which may need a check first."""
        self.taken.add(pending.call.call_id)
        self._rules_then[pending.call.call_id] = self._state.rules
        if pending.policy:
            self._state.pending.pop(pending.call.call_id)
            self.checked[pending.call.call_id] = (pending, decision)
        else:
            self.decide(pending, decision)

    def deny_queued_call(self, call: ToolCall) -> None:
        """A new rule denies it, if the agent's policy lets it."""
        self.queued_denials[call.call_id] = QueuedDenial(call)

    def take_given(self, result: ToolResult) -> None:
        """A hook gave it as the call was checked."""
        if denial := self.queued_denials.get(result.call_id):
            denial.given = result
        else:
            self._settle(result)

    # ------------------------------------------------------------ what the agent's policy says to it

    @property
    def checked_ids(self) -> set[str]:
        """The calls with a decision, a person's or a rule's, that the agent's policy is checking."""
        return {*self.checked, *(call_id for call_id, denial in self.queued_denials.items() if denial.is_checked)}

    def _end_denial(self, denial: QueuedDenial, *, is_allowed: bool) -> None:
        denial.is_checked = False
        if not (is_allowed or denial.given or denial.let_out):
            return  # another rule may come before the call begins
        del self.queued_denials[denial.call.call_id]
        if is_allowed:
            self._settle(unwritten_result(denial.call))
        elif denial.let_out:
            self._let_out(*denial.let_out)
        elif denial.given:
            self._settle(denial.given)

    def take_check(self, call_id: str, *, decided_by: str, refusal: str, time: float) -> None:
        """`refusal`: why this person may not decide; empty if they may."""
        if call_id not in self.checked:
            if denial := self.queued_denials.get(call_id):
                self._end_denial(denial, is_allowed=not refusal)
            return
        pending, decision = self.checked.pop(call_id)
        held_steps = [step for step in self._held if step.payload.get("call_id") == call_id]
        self._held = [step for step in self._held if step not in held_steps]
        if refusal and self._state.closing:  # which denies it
            self._settle(unwritten_result(pending.call))
        elif refusal:
            self.taken.discard(call_id)
            self.begin_waiting(pending.after_check(decided_by=decided_by, refusal=refusal), time=time)
            while held_steps:
                first_step = held_steps.pop(0)
                if self.take_decision(first_step.name, first_step.payload, time=time):
                    self._on_held(first_step)
                    break
            self._held += held_steps
        else:
            self.decide(pending, decision)
