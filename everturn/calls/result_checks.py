"""Which results the hooks of an agent see in an activity of their own. The conversation and the readers of its history
both follow this."""

from __future__ import annotations

from everturn.plans import AwaitAnswer, GatedPlan, PlannedCall, RunAgent, RunElsewhere
from everturn.records import Decision, Text, ToolCall, ToolResult


def check_of_answer(plan: PlannedCall | None) -> GatedPlan | None:
    """The plan, if hooks are to see what a client or a person gives as the call's result; None if there are none."""
    if not isinstance(plan, GatedPlan) or not plan.hooks_after:
        return None
    return plan


def check_of_event(plan: PlannedCall | None) -> GatedPlan | None:
    """The plan, if hooks are to see a result that has an event of its own: of an agent, a user's activity or a Nexus
    operation. None if there are none, or if they have seen it where the tool ran."""
    if not isinstance(plan, RunAgent | RunElsewhere):
        return None
    return check_of_answer(plan)


def is_answer(plan: PlannedCall, result: ToolResult) -> bool:
    """Whether a client or a person gave it, and no hook. The result of a call that was approved before it went to a
    client has that approval as its decision."""
    decision = result.decision
    if decision is None or result.by_hook:
        return False
    return decision.verdict == "answer" or (decision.verdict == "approve" and isinstance(plan, AwaitAnswer))


def withheld_result(call: ToolCall, cause: str, decision: Decision | None) -> ToolResult:
    """The result of a call whose result could not be shown to the agent's hooks."""
    text = f"{call.name} has a result. It is withheld because the agent's hooks could not check it: {cause}"
    content = (Text(text=text),)
    return ToolResult(call_id=call.call_id, name=call.name, content=content, is_error=True, decision=decision)
