"""A model that plays a tool whose call was not recorded."""

from __future__ import annotations

import json

from everturn.evals.rerun_answers import StandIn
from everturn.models import Model
from everturn.providers.generate import generate
from everturn.records import ToolCall
from everturn.tools.context import ToolContext

PLAYS = (
    "You play a tool in a test. You are given a call: the tool's name and its arguments as JSON. Reply with what the "
    "tool would return, and with nothing else: no explanation, no Markdown."
)


def played_by(model: str | Model) -> StandIn:
    """A stand-in that asks a model what the tool would return."""

    async def play_tool(call: ToolCall, _: ToolContext) -> str:
        question = json.dumps({"tool": call.name, "arguments": call.arguments}, ensure_ascii=False)
        return (await generate(model, question, instructions=PLAYS)).text

    return play_tool
