"""Agents that are decided at run time, that are made to call, and whose provider has tools of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from everturn import ModelSettings, ToolContext, tool
from everturn.tools.context import TurnContext
from tests.simulation.agents.ledger import leave, take, worker_at_hand

TOLD = "told"
FORCED = "forced"
SHELL = "shell"


class Matter(BaseModel):
    """What an agent is asked with, and what another one takes over with."""

    message: str
    hurry: bool = False


def handed(agent: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    """What an agent that takes over may be told of the arguments. They lack their defaults if a person edited them, or
    if workers were lost with the reply."""
    if agent != "expert":
        return (str(given.get("message", "")),)
    return json.dumps({"hurry": False, **given}), json.dumps({**given, "hurry": False}), json.dumps(given)


def told(context: TurnContext) -> str:
    """Instructions that no other turn of any conversation has."""
    check_deps(context)
    return f"turn {context.turn} of {context.conversation_id}"


def offered(context: TurnContext, tools: Sequence[Any]) -> list[Any]:
    """One tool less in every third turn, and one more in all."""
    return [*(tool for tool in tools if context.turn % 3 or tool.name != "look"), extra]


@tool(effect="once")
async def extra(number: int, context: ToolContext) -> str:
    """Is there because a function says so."""
    await take(context)
    return leave("extra", context, number=number)


async def run_shell(context: ToolContext, commands: list[str]) -> dict[str, Any]:
    """A handler of the provider's own tool."""
    await take(context)
    return {"stdout": leave("shell", context, commands=commands), "exit_code": 0}


def check_deps(context: TurnContext | ToolContext) -> None:
    """They are those that the worker at hand has opened."""
    worker = worker_at_hand()
    if context.deps != worker.name:
        worker.server.wrong(f"{context.conversation_id}: code on {worker.name} has the deps of {context.deps!r}")


NEWER_AGENTS: dict[str, dict[str, Any]] = {
    TOLD: {"instructions": told, "prepare_tools": offered},
    FORCED: {"settings": ModelSettings(tool_choice="required")},
    SHELL: {
        "model": "openai:gpt-5.5",
        "handlers": {"shell": run_shell},
        "settings": ModelSettings(background=True),
    },
}
"""What these are made with, beside tools and patience."""

PROVIDERS_TOOLS = ({"type": "shell"}, {"type": "computer"})
