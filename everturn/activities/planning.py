"""Turns a model's reply into a plan: for each call, as data, what the workflow has to know to settle it.

User code (schemas, predicates) runs here, in an activity, and never in the workflow.
"""

from __future__ import annotations

from collections.abc import Iterable

from everturn.agent import Agent
from everturn.payloads import AwaitAnswer, PlannedCall, RefuseCall, RunTool
from everturn.records import Message, Part, ToolCall
from everturn.schemas import InvalidArguments


def with_unique_ids(message: Message, earlier: Iterable[Message]) -> Message:
    """The message with call_ids that no call of the conversation has had.

    Some providers count from zero in each reply, or give none; decisions and idempotency keys need one id a call.
    """
    if not message.tool_calls:
        return message
    taken = {call.call_id for one in earlier if one.role == "assistant" for call in one.tool_calls}
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            part = _renamed(part, taken)  # noqa: PLW2901 - the same call, under its id
            taken.add(part.call_id)
        parts.append(part)
    return message.model_copy(update={"parts": tuple(parts)})


def _renamed(call: ToolCall, taken: set[str]) -> ToolCall:
    wanted = call.call_id or "call"
    if call.call_id and wanted not in taken:
        return call
    number = 2
    while (call_id := f"{wanted}-{number}") in taken:
        number += 1
    return call.model_copy(update={"call_id": call_id, "provider_id": call.provider_id or call.call_id})


async def plan_calls(agent: Agent, calls: Iterable[ToolCall], *, conclude: str | None) -> tuple[PlannedCall, ...]:
    if conclude:
        text = f"No more tool calls: the conversation has reached {conclude}."
        return tuple(RefuseCall(call_id=call.call_id, text=text) for call in calls)
    return tuple([await _plan(agent, call) for call in calls])


async def _plan(agent: Agent, call: ToolCall) -> PlannedCall:
    tool = agent.tool(call.name)
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
        return AwaitAnswer(call_id=call.call_id, why=f"{tool.name} runs outside: send its result as the answer")
    return RunTool(
        call_id=call.call_id,
        effect=tool.effect,
        timeout=tool.timeout.total_seconds(),
        patience=tool.patience.total_seconds(),
        approval=f"{tool.name} needs approval" if await tool.needs_decision(call.arguments) else None,
    )
