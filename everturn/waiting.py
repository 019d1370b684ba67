"""What a call waits for a person for, and why a conversation is stalled: what the conversation and the readers of its
history both follow, so that they say the same."""

from __future__ import annotations

from everturn import names
from everturn.carryover import Asked
from everturn.plans import AwaitAnswer, PlannedCall, RunTool, WaitReason

READ_ELSEWHERE = (
    "If another version of the code wrote it, deploy that one; if it is in a storage, set EVERTURN_STORAGE alike on "
    "all workers."
)

READ_AGAIN = f"{READ_ELSEWHERE} Then resume: it is read again, and if it still can't be, asked for again."
"""The cure, if a conversation is stalled since a reply can't be read."""


def before_run(plan: PlannedCall) -> Asked | None:
    """What is asked before the call runs, or in its place; None if nobody is asked."""
    match plan:
        case RunTool(approval=str(why)) if why:
            return Asked(call_id=plan.call_id, reason="needs_approval", why=why)
        case AwaitAnswer():
            return for_answer(plan)
        case _:
            return None


def for_answer(plan: AwaitAnswer) -> Asked:
    return Asked(call_id=plan.call_id, reason=plan.reason, why=plan.why)


def after_run(plan: PlannedCall, before: Asked | None, *, kind: str, cause: str) -> Asked | None:
    """What is asked after a run that brought no result, by the type and the words of its error; None if nobody is
    asked, and the model is told. `before`: what was asked before that run."""
    doubtful = before is not None and before.doubtful
    once = isinstance(plan, RunTool) and plan.effect == "once"
    reason: WaitReason
    if kind == names.INVALID_EDIT:
        reason, why = "invalid_edit", cause
    elif kind == names.UNREADABLE_RESULT:
        reason, why = "outcome_unknown", f"outcome unknown: {cause}"
    elif once and kind in names.NEVER_BEGUN:
        reason, why = "has_not_run", f"it has not {'run again' if doubtful else 'run'}: {cause}"
    elif once:
        reason, why = "outcome_unknown", f"outcome unknown: {cause}"
    else:
        return None
    if before and doubtful and reason != "outcome_unknown":
        return before.model_copy(update={"refused": f" ({why})"})
    since = before.since if before and reason == "invalid_edit" else 0.0
    return Asked(call_id=plan.call_id, reason=reason, why=why, since=since)


def after_check(before: Asked, *, by: str, refusal: str) -> Asked:
    """What is asked once more, since the person who decided may not."""
    refused = f" ({by or 'somebody'} may not decide: {refusal})"
    return before.model_copy(update={"reason": before.reason if before.doubtful else "not_allowed", "refused": refused})


def not_asked(cause: str) -> str:
    """The refusal, if the agent's policy could not be asked."""
    return f"the policy could not be asked: {cause}"
