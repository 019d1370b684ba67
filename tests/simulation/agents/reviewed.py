"""A reviewer, a model that decides in people's place, in the place of providers' generate: its verdict follows from the
call, and now and then it fails, or says what is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from everturn import Reviewer, errors
from everturn.records import Message, Reply, Text, ToolCall, Usage

REVIEWED: Final = "reviewed"
"""The agent that has it."""
MOST_CENTS: Final = 8
REVIEWER: Final = Reviewer(
    model="scripted:second",
    instructions="Small things may be given.",
    tools=("peep", "gift", "refund"),
    where={"refund": {"cents": {"at_most": MOST_CENTS}}},
)
"""It may decide on payments, too: `refund` must not happen twice."""

_VERDICTS = ("approve", "approve", "deny", "ask_a_person", "fails", "nonsense", "approve")


def verdict_on(arguments: Mapping[str, Any]) -> str:
    number = arguments.get("cents", arguments.get("number", 0))
    return _VERDICTS[int(number) % len(_VERDICTS)]


def may_decide(tool: str, arguments: Mapping[str, Any]) -> bool:
    if tool == "refund":
        return "cents" in arguments and bool(arguments["cents"] <= MOST_CENTS)
    return tool in (REVIEWER.tools or ())


def approves(call: ToolCall) -> bool:
    return may_decide(call.name, call.arguments) and verdict_on(call.arguments) == "approve"


async def give_verdict(_: Any, question: str, **__: Any) -> Reply:
    """As `generate` gives it."""
    call = json.loads(question.partition("\n")[2])
    verdict = verdict_on(call["arguments"])
    await asyncio.sleep(0.2)
    if verdict == "fails":
        raise errors.Unavailable("503", status=503)
    text = verdict if verdict == "nonsense" else json.dumps({"verdict": verdict, "reason": "by its number"})
    message = Message(role="assistant", parts=(Text(text=text),))
    return Reply(message=message, stop="end", usage=Usage(), model="scripted:second")
