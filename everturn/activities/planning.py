"""Turns a model's reply into a plan: for each call, as data, what the workflow has to know to settle it.

User code (schemas, predicates) runs here, in an activity, and never in the workflow.
"""

from __future__ import annotations

from collections.abc import Iterable

from everturn.agent import Agent
from everturn.asking import question_of
from everturn.payloads import AwaitAnswer, Expiry, PlannedCall, RefuseCall, RunTool
from everturn.records import ToolCall
from everturn.schemas import InvalidArguments
from everturn.tools import Tool


async def plan_calls(agent: Agent, calls: Iterable[ToolCall], *, conclude: str | None) -> tuple[PlannedCall, ...]:
    if conclude:
        text = f"No more tool calls: the conversation has reached {conclude}."
        return tuple(RefuseCall(call_id=call.call_id, text=text) for call in calls)
    return tuple([await _plan(agent, call) for call in calls])


async def _plan(agent: Agent, call: ToolCall) -> PlannedCall:
    tool = agent.tool(call.name)
    if agent.loop == "manual":
        why = f"the loop is manual: send {call.name}'s result as the answer"
        return AwaitAnswer(call_id=call.call_id, why=why, expiry=_answer_expiry(agent, tool))
    if tool is None:
        known = ", ".join(tool.name for tool in agent.tools) or "none"
        return RefuseCall(call_id=call.call_id, text=f"There is no tool {call.name!r}. The tools are: {known}.")
    if call.unparsed is not None:
        text = f"The arguments are not a JSON object: {call.unparsed[:200]!r}. Call {call.name} again with valid JSON."
        return RefuseCall(call_id=call.call_id, text=text)
    try:
        tool.check(call.arguments)
    except InvalidArguments as error:
        return RefuseCall(call_id=call.call_id, text=f"The arguments of {call.name} do not fit its schema:\n{error}")
    if tool.runs_on == "client":
        why = question_of(tool, call.arguments) or f"{tool.name} runs outside: send its result as the answer"
        return AwaitAnswer(call_id=call.call_id, why=why, expiry=_answer_expiry(agent, tool))
    asked = await tool.needs_decision(call.arguments)
    # A once tool may have to ask a person later, when its worker is lost.
    may_wait = asked or tool.effect == "once"
    return RunTool(
        call_id=call.call_id,
        effect=tool.effect,
        timeout=tool.timeout.total_seconds(),
        patience=tool.patience.total_seconds(),
        approval=f"{tool.name} needs approval" if asked else None,
        expiry=_expiry(agent) if asked else None,
        local=tool.local,
        policy=may_wait and agent.approvers is not None,
    )


def _answer_expiry(agent: Agent, tool: Tool | None) -> Expiry | None:
    """How long an answer is waited for: as long as the tool says, or else the agent."""
    if tool and tool.runs_on == "client" and tool.bounded:
        return Expiry(after=tool.timeout.total_seconds())
    return _expiry(agent)


def _expiry(agent: Agent) -> Expiry | None:
    approvals = agent.approvals
    if approvals.expire_after is None:
        return None
    remind = approvals.remind_before
    return Expiry(
        after=approvals.expire_after.total_seconds(),
        verdict=approvals.on_expiry,
        remind_before=remind.total_seconds() if remind else None,
    )
