"""What is asked after a run that brought no result: a `once` call whose worker was lost may have taken effect, so a
person decides, and it is never run again by itself.

The conversation and the readers of its history both follow this, so that they say the same.
"""

from __future__ import annotations

from pydantic import JsonValue

from everturn import names
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import QuestionToPerson
from everturn.plans import PlannedCall, RunPlan, WaitReason
from everturn.records import Decision, ToolCall


def after_run(
    call: ToolCall,
    plan: PlannedCall,
    previous: PendingCall | None,
    *,
    kind: str,
    cause: str,
    state_left: dict[str, JsonValue] | None = None,
    proposed: dict[str, JsonValue] | None = None,
    decision: Decision | None = None,
) -> PendingCall | None:
    """What is asked after a run that brought no result, by the type and the words of its error; None if nobody is
    asked, and the model is told. `previous`: what was asked before that run; `state_left`: what it left, if its tool
    asks; `proposed`: what hooks made of a person's arguments; `decision`: the approval that it had."""
    ran_with = decision.arguments if decision else None
    if kind == names.ASKS and state_left is not None:
        question = QuestionToPerson(
            call_id=plan.call_id, reason="tool_asks", why=cause, left=state_left, decision=decision, arguments=ran_with
        )
        return PendingCall.from_question(call, plan, question)
    if kind == names.NEEDS_APPROVAL:
        # What was approved already and asks again is for a person: a rule would let it ask for ever.
        once_more = decision is not None
        return PendingCall.from_question(
            call,
            plan,
            QuestionToPerson(
                call_id=plan.call_id, reason="needs_approval", why=cause, only_person=once_more, arguments=ran_with
            ),
        )
    doubtful = previous is not None and previous.is_doubtful
    # A deploy may have made it `once` since it was planned: then only the worker knows.
    runs_once = isinstance(plan, RunPlan) and (plan.effect == "once" or kind == names.MAY_HAVE_RUN)
    reason: WaitReason
    if kind == names.INVALID_EDIT:
        reason = "invalid_edit"
        words = cause
    elif runs_once and kind in names.NEVER_BEGUN:
        reason = "has_not_run"
        words = f"it has not {'run again' if doubtful else 'run'}: {cause}"
    elif runs_once or kind == names.UNREADABLE_RESULT:
        reason = "outcome_unknown"
        words = f"outcome unknown: {cause}"
    else:
        return None
    if previous and doubtful and reason != "outcome_unknown":
        if proposed:
            return previous.with_question(refused=f" ({words})", arguments=proposed, seen_by_hooks=True)
        return previous.with_question(refused=f" ({words})")
    since = 0.0
    if previous and reason == "invalid_edit":
        since = previous.asked.since
    only_person = previous is not None and previous.asked.only_person
    arguments = proposed if reason == "invalid_edit" else ran_with
    had = previous.asked if previous and previous.asked.seen_by_hooks else None
    question = QuestionToPerson(
        call_id=plan.call_id,
        reason=reason,
        why=words,
        since=since,
        only_person=only_person,
        arguments=arguments,
        seen_by_hooks=proposed is not None or (had is not None and had.arguments == ran_with),
    )
    return PendingCall.from_question(call, plan, question)
