"""What people can do to a running conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow

from everturn import names
from everturn.calls.decision_problems import decision_problem, denied_edit_problem
from everturn.calls.decision_records import Answer, Approve, Deny, InheritPolicy, SetPolicy, verdict_of
from everturn.calls.pending_calls import LONGEST_SECONDS, PendingCall, rules_of
from everturn.logs import workflow_log
from everturn.payloads import Control, MessageIn
from everturn.policy import Policy, said_by, with_rules
from everturn.policy import problem as policy_problem
from everturn.records import Decision
from everturn.sizes import size_of
from everturn.state import State
from everturn.text.iso_times import iso_time
from everturn.truncation import shortened_reason
from everturn.workflows.applied_decisions import AppliedDecision
from everturn.workflows.approvals import PendingApprovals
from everturn.workflows.history_space import too_full_for
from everturn.workflows.message_dispatch import CommandType, Handlers, Later
from everturn.workflows.stalls_and_pauses import StallsAndPauses
from everturn.workflows.tracing import Tracing


class Commands:
    """Each command: why it is refused now, and what it does to the state."""

    def __init__(
        self,
        state: State,
        approvals: PendingApprovals,
        tracing: Tracing,
        *,
        listeners: Mapping[str, Callable[..., None]],
        on_change: Callable[[], None],
    ) -> None:
        """`listeners` take the signals, by name, that are no commands of a person's."""
        self.state = state
        self.approvals = approvals
        self.stream = state.start.stream
        """A client follows the text as it is written."""
        self._answering: asyncio.Task[str | None] | None = None
        """The task that gives the current answer, from a message to its final reply."""
        self._tracing = tracing
        self._on_change = on_change
        self.handlers = Handlers(self, listeners)
        self.stalls_and_pauses = StallsAndPauses(state, self.handlers, tracing, on_change=on_change)

    def find_type(self, name: str) -> CommandType | None:
        """What a signal or update of that name is; None if there is none."""
        return COMMANDS.get(name)

    @property
    def known_names(self) -> list[str]:
        return sorted([*COMMANDS, names.WITHDRAW])

    @property
    def may_move(self) -> bool:
        """Whether another run can continue from this state."""
        return not self.state.closing and not self.handlers.lost

    def begin_answering(self, answering: asyncio.Task[str | None]) -> None:
        """An answer begins. One that the run before began may have been cancelled before it could be taken up."""
        self._answering = answering
        if self.state.answering and self.state.cancelled:
            answering.cancel()
        else:
            self.state.begin_answer()

    async def wait_for_message_or_end(self) -> None:
        """Waits until there is a message to answer, the conversation closes, or has idled for its time."""
        state = self.state
        await self.stalls_and_pauses.stall_if_signals_were_lost()
        while state.is_idle and not state.closing:
            self._on_change()
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: not state.is_idle or state.closing or bool(self.handlers.lost),
                    timeout=timedelta(seconds=min(state.start.keep_open or 0.0, LONGEST_SECONDS)),
                )
            if not self.handlers.lost:
                return
            await self.stalls_and_pauses.stall_if_signals_were_lost()

    # ------------------------------------------------------------ messages

    def _message_objection(self, message: MessageIn) -> str | None:
        if self.state.closing:
            return "The conversation is closing and takes no more messages. Start another one."
        size = size_of(message)
        problem = self.state.message_problem(message, size)
        by_signal = workflow.current_update_info() is None
        if not by_signal and self.state.inbox.taken_ids.has_other(message.message_id, message.as_message()):
            problem = problem or _other_message_problem(message)
        return problem or too_full_for(size) or None

    def _receive_while_closing(self, message: MessageIn, _: Later) -> bool:
        """A message by signal that comes while the conversation closes: nobody can be told that it is refused."""
        if not self.state.closing or self.state.message_problem(message, size_of(message)):
            return False
        self.state.receive_message(message.as_message(), message.message_id)
        return True

    def _take_message(self, message: MessageIn) -> dict[str, Any]:
        if message.stream is not None:
            self.stream = message.stream
        if self.state.inbox.taken_ids.has_other(message.message_id, message.as_message()):
            workflow_log("message.not_taken", level="warning", why=_other_message_problem(message))
        is_new = self.state.receive_message(message.as_message(), message.message_id)
        if is_new:
            self._tracing.note_message(message.trace)
        return {"taken": is_new}

    # ------------------------------------------------------------ decisions

    def _decision_objection(self, decision: Approve | Deny | Answer) -> str | None:
        state = self.state
        addressed = self._addressed_calls(decision)
        problem = decision_problem(
            decision,
            addressed,
            policy=state.policy,
            agent=state.agent,
            time=workflow.time(),
            refused_edits=self.approvals.refused_edits,
        )
        denied = denied_edit_problem(decision, addressed, state.rules, agent=state.agent)
        return (
            problem
            or denied
            or _too_full_for(decision)
            or self.approvals.not_waiting_problem(decision.call_id, verdict_of(decision))
        )

    def _addressed_calls(self, decision: Approve | Deny | Answer) -> list[PendingCall]:
        verdict = verdict_of(decision)
        undecided = self.approvals.undecided.values()
        return [pending for pending in undecided if pending.is_addressed(decision.call_id, verdict)]

    def _take_approval(self, approval: Approve) -> dict[str, Any]:
        decision = Decision(
            verdict="approve", by=approval.by, at=current_time(), note=approval.note, arguments=approval.arguments
        )
        return self._apply_decision(approval.call_id, AppliedDecision(decision), self._rules_of(approval))

    def _take_denial(self, denial: Deny) -> dict[str, Any]:
        applied = AppliedDecision(Decision(verdict="deny", by=denial.by, at=current_time(), note=denial.reason))
        return self._apply_decision(denial.call_id, applied, self._rules_of(denial))

    def _rules_of(self, decision: Approve | Deny) -> Policy:
        return rules_of(decision, self._addressed_calls(decision), agent=self.state.agent)

    def _take_answer(self, answer: Answer) -> dict[str, Any]:
        decision = Decision(verdict="answer", by=answer.by, at=current_time())
        return self._apply_decision(answer.call_id, AppliedDecision(decision, answer.as_parts(), answer.is_error))

    def _keep_early_decision(self, decision: Approve | Deny | Answer, later: Later) -> bool:
        return not self.state.is_idle and self.approvals.keep_early(decision.call_id, later)

    def _apply_decision(self, call_id: str, applied: AppliedDecision, rules: Policy = ()) -> dict[str, Any]:
        """`rules`: what is decided so for always."""
        addressed = self.approvals.decide(call_id, applied)
        if rules:
            self.state.policy = with_rules(self.state.policy, rules)
            self.approvals.apply_changed_policy()
        return {"call_ids": addressed}

    def _policy_objection(self, change: SetPolicy) -> str | None:
        return policy_problem(said_by(change.by, change.rules, known=self.state.policy))

    def _set_policy(self, change: SetPolicy) -> dict[str, Any]:
        self.state.policy = said_by(change.by, change.rules, known=self.state.policy)
        self.approvals.apply_changed_policy()
        self._on_change()
        return {"rules": len(self.state.policy)}

    def _inheritance_objection(self, _: InheritPolicy) -> str | None:
        if self.state.start.caller:
            return None
        return "No other conversation asked for this one: use `set_policy`."

    def _inherit_policy(self, change: InheritPolicy) -> dict[str, Any]:
        self.state.inherited = change.rules
        self.approvals.apply_changed_policy()
        self._on_change()
        return {"rules": len(self.state.rules)}

    # ------------------------------------------------------------ switches

    def _pause_objection(self, _: Control) -> str | None:
        return self.state.pause_problem()

    def _resume_objection(self, control: Control) -> str | None:
        return self.state.resume_problem(control)

    def _cancel_objection(self, control: Control) -> str | None:
        return self.state.cancel_problem(control)

    def _close_objection(self, control: Control) -> str | None:
        return self.state.denial_problem(control)

    def _pause(self, _: Control) -> dict[str, Any]:
        self.state.pause()
        return self._show_change()

    def _keep_early_resume(self, control: Control, later: Later) -> bool:
        """Nothing was paused when it came: who has paused the conversation since has the last word."""
        for_stall = control.model_copy(update={"only_stalled": True})

        def resume_from_stall(problem: str) -> None:
            if problem := problem or self.state.resume_problem(for_stall) or "":
                later(problem)
            else:
                self._resume(for_stall)

        may_be_early = not (self.state.is_idle or self.state.pending)
        return may_be_early and self.stalls_and_pauses.keep_early(resume_from_stall)

    def _resume(self, control: Control) -> dict[str, Any]:
        self.stalls_and_pauses.ended_by = names.RESUME, control.by
        self.state.resume(control)
        return self._show_change()

    def _cancel_turn(self, control: Control) -> dict[str, Any]:
        self.stalls_and_pauses.ended_by = names.CANCEL_TURN, control.by
        self.state.cancel(control)
        self._show_if_it_runs_on()
        if self._answering:  # what people call a turn goes until the final reply
            self._answering.cancel()
        return {"state": self.state.name}

    def _close(self, control: Control) -> dict[str, Any]:
        self.stalls_and_pauses.ended_by = names.CLOSE, control.by
        self.state.close()
        self._show_if_it_runs_on()
        self.approvals.deny_all(
            Decision(
                verdict="deny", by=shortened_reason(control.by), at=current_time(), note="The conversation was closed."
            )
        )
        return {"state": self.state.name}

    def _show_if_it_runs_on(self) -> None:
        """A person may end the turn during which the conversation was paused: lists must not say `paused` until that
        turn is over. A pause or stall that waits already shows the new state by itself."""
        if not self.stalls_and_pauses.is_held:
            self._on_change()

    def _show_change(self) -> dict[str, Any]:
        self._on_change()
        return {"state": self.state.name}


def _decision_type(payload_type: type[Any], take: Callable[[Any, Any], dict[str, Any]]) -> CommandType:
    return CommandType(
        payload_type, objection=Commands._decision_objection, take=take, hold=Commands._keep_early_decision
    )


COMMANDS: Final[dict[str, CommandType]] = {
    names.MESSAGE: CommandType(
        MessageIn,
        objection=Commands._message_objection,
        take=Commands._take_message,
        hold=Commands._receive_while_closing,
    ),
    names.APPROVE: _decision_type(Approve, Commands._take_approval),
    names.DENY: _decision_type(Deny, Commands._take_denial),
    names.ANSWER: _decision_type(Answer, Commands._take_answer),
    names.PAUSE: CommandType(Control, objection=Commands._pause_objection, take=Commands._pause),
    names.RESUME: CommandType(
        Control, objection=Commands._resume_objection, take=Commands._resume, hold=Commands._keep_early_resume
    ),
    names.CANCEL_TURN: CommandType(Control, objection=Commands._cancel_objection, take=Commands._cancel_turn),
    names.SET_POLICY: CommandType(SetPolicy, objection=Commands._policy_objection, take=Commands._set_policy),
    names.INHERIT_POLICY: CommandType(
        InheritPolicy, objection=Commands._inheritance_objection, take=Commands._inherit_policy
    ),
    names.CLOSE: CommandType(Control, objection=Commands._close_objection, take=Commands._close),
}
"""By its name, each a signal and an update."""


def _other_message_problem(message: MessageIn) -> str:
    return (
        f"Another message had the message_id {message.message_id!r:.100} before, and this one says something else: "
        "it is not taken. Give each message an id of its own."
    )


def _too_full_for(decision: Approve | Deny | Answer) -> str:
    if not isinstance(decision, Approve):
        return too_full_for(size_of(decision))
    if decision.arguments is None:
        return ""
    return too_full_for(3 * size_of(decision))  # a tool's input has them twice


def current_time() -> str:
    return iso_time(workflow.now())
