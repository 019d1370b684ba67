"""The agent that crash tests host in worker processes. Every run of a tool leaves a line in the effects file."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from everturn import Agent, ToolContext, tool

FOLDER = Path(os.environ.get("CRASH_TEST_FOLDER", "."))
EFFECTS = FOLDER / "effects"
MAY_END = FOLDER / "may-end"


def effect(tool_name: str, context: ToolContext) -> None:
    with EFFECTS.open("a") as effects:
        effects.write(f"{tool_name} {context.idempotency_key} {context.attempt} {os.getpid()}\n")


@tool(effect="idempotent")
def work(context: ToolContext) -> str:
    """Leaves its effect, and ends when it may."""
    effect("work", context)
    while not MAY_END.exists():
        time.sleep(0.02)
    return "worked"


@tool(effect="once")
def pay(context: ToolContext) -> str:
    """The same, with an effect that must not happen twice."""
    effect("pay", context)
    while not MAY_END.exists():
        time.sleep(0.02)
    return "paid"


@tool
async def block(seconds: float, context: ToolContext) -> str:
    """Blocks the worker's event loop, as careless async tools do."""
    effect("block", context)
    time.sleep(seconds)
    return "blocked"


@tool
async def nap(seconds: float, context: ToolContext) -> str:
    effect("nap", context)
    await asyncio.sleep(seconds)
    return "rested"


@tool
def survey(context: ToolContext) -> str:
    """A long result that says which process it is of, once that one may end."""
    effect("survey", context)
    while not (FOLDER / f"{os.getpid()}-may-end").exists():
        time.sleep(0.02)
    (FOLDER / f"{os.getpid()}-ended").touch()
    return f"Of process {os.getpid()}. " * 1_000


clerk = Agent("clerk", model="scripted:demo", tools=[work, pay, block, nap, survey])
