"""Tools that ask in the middle of their calls, and hooks that see what other tools are called with."""

from __future__ import annotations

from everturn import NeedsApproval, ToolContext, tool
from everturn.hooks import (
    AskApproval,
    DenyCall,
    ModelInput,
    StallWith,
    StopWith,
    after_model,
    after_tool,
    before_model,
    before_tool,
)
from everturn.records import Reply, Text, ToolCall, ToolResult
from everturn.tools.context import TurnContext
from everturn.tools.context_ask import AsksPerson, current_answer
from tests.simulation.agents.ledger import chance_at_hand, leave, take

MUCH_CENTS = 10


@tool(effect="once")
async def borrow(cents: int, context: ToolContext) -> str:
    """Finds out in the middle that a person has to approve."""
    if cents > MUCH_CENTS and not context.approved:
        raise NeedsApproval(f"{cents} cents is much")
    said = leave("borrow", context, cents=cents)
    await take(context)
    return said


@tool(effect="once")
async def inquire(number: int, context: ToolContext) -> str:
    """Has a question, and goes on with what a person said to it."""
    answer = current_answer()
    if answer is None:
        raise AsksPerson(f"which of {number}?", carried={"number": number})
    if answer.left != {"number": number}:
        raise RuntimeError(f"it left {number}, and got back {answer.left}")
    answer_text = f" ({answer.text})" if answer.action == "accept" else ""
    return leave("inquire", context, number=number) + answer_text


# ------------------------------------------------------------ hooks


def is_denied(cents: int) -> bool:
    return cents % 4 == 0


def is_asked(cents: int) -> bool:
    return cents % 4 == 1


def stops(number: int) -> bool:
    return number % 6 == 0


def breaks(number: int) -> bool:
    return number % 6 == 3


@before_tool(tools=("pay", "note", "look"))
def guard(call: ToolCall, context: ToolContext) -> ToolCall | DenyCall | AskApproval | StopWith | None:
    """Denies, asks, stops, breaks, or changes: whatever the arguments say."""
    match call.name, call.arguments:
        case "pay", {"cents": int(cents)}:
            return (
                DenyCall("such sums are not paid") if is_denied(cents) else AskApproval() if is_asked(cents) else None
            )
        case "note", {"text": str(text)}:
            return call.model_copy(update={"arguments": {"text": f"{text}!"}})
        case "look", {"number": int(number)} if stops(number):
            return StopWith(f"stopped before {call.call_id}")
        case "look", {"number": int(number)} if breaks(number):
            raise RuntimeError("the hook broke")
        case _:
            return None


@after_tool(tools=("long", "gift"))
def short(call: ToolCall, result: ToolResult, context: ToolContext) -> str | StopWith | None:
    """Cuts what is long, and ends the answer after every other gift."""
    if call.name == "long":
        return f"short {call.call_id}"
    return StopWith(f"stopped after {call.call_id}") if int(call.call_id[1:].partition("-")[0]) % 2 else None


@before_model
async def moody(given: ModelInput, context: TurnContext) -> StallWith | None:
    """Stalls a turn now and then."""
    return StallWith("it is not in the mood") if chance_at_hand().random() < 0.08 else None


SEEN = " (seen)"


@after_model
def seen(reply: Reply, context: TurnContext) -> Reply | None:
    """Leaves a mark in what the model says at its end."""
    parts = reply.message.parts
    if reply.message.tool_calls or not parts or not isinstance(parts[-1], Text):
        return None
    last = parts[-1].model_copy(update={"text": parts[-1].text + SEEN})
    return reply.model_copy(update={"message": reply.message.model_copy(update={"parts": (*parts[:-1], last)})})


HOOKS = (guard, short, moody, seen)
