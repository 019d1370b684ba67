"""The gate that every call passes, whatever runs it: what is asked before it runs, or in its place.

The conversation and the readers of its history both follow this, so that they say the same.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from everturn.calls.pending_calls import PendingCall, asks_for_approval
from everturn.carryover import QuestionToPerson
from everturn.plans import AwaitAnswer, GatedPlan, PlannedCall
from everturn.policy import Policy, rule_for
from everturn.records import Decision, ToolCall

DENIED_SINCE: Final = "denied by a new rule: "
"""The patch of a run in which a rule denies a call that had passed the gate and had not begun; its id follows."""


def before_run(call: ToolCall, plan: PlannedCall, policy: Policy, *, agent: str) -> PendingCall | None:
    """The gate of every call: what is asked before it runs, or in its place; None if nobody is asked. What the policy
    decides by itself is asked too, and decided at once: see `PendingCall.ruling_of`. `agent`: the one that made the
    call."""
    if not isinstance(plan, GatedPlan):
        return None
    rule = rule_for(policy, call.name, call.arguments, agent=agent)
    if plan.approval or (rule and rule.then != "approve"):
        question = QuestionToPerson(
            call_id=plan.call_id,
            reason="needs_approval",
            why=plan.approval or asks_for_approval(rule, call, plan),
            only_person=plan.only_person,
            by_rule=not plan.approval,
            review=None if plan.only_person else plan.review,
        )
        return PendingCall.from_question(call, plan, question)
    if not isinstance(plan, AwaitAnswer):
        return None
    return for_answer(call, plan)


def for_answer(
    call: ToolCall,
    plan: AwaitAnswer,
    *,
    approval: Decision | None = None,
    arguments: dict[str, JsonValue] | None = None,
) -> PendingCall:
    """What is asked of whoever runs it. `approval`: a person's, if one was asked for; `arguments`: those that were
    approved, if they are not the model's."""
    question = QuestionToPerson(
        call_id=plan.call_id, reason=plan.reason, why=plan.why, decision=approval, arguments=arguments
    )
    return PendingCall.from_question(call, plan, question)


def answer_awaited_after(pending: PendingCall, decision: Decision) -> PendingCall | None:
    """What a call that runs outside waits for once this decision has let it out; None if the decision does not, or if a
    worker has to look at a person's arguments first."""
    decision = pending.with_arguments(decision)
    if not isinstance(pending.plan, AwaitAnswer) or pending.is_outside or decision.verdict != "approve":
        return None
    if decision.arguments is not None and not pending.is_as_hooks_saw(decision):
        return None
    return for_answer(pending.call, pending.plan, approval=decision, arguments=decision.arguments)


def not_asked(cause: str) -> str:
    """The refusal, if the agent's policy could not be asked."""
    return f"the policy could not be checked: {cause}"
