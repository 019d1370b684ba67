"""The agent of the crash test: a tool of each kind. Each takes effect somewhere between its begin and its end."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from everturn import Agent, ModelSettings, ToolContext, tool
from tests.crash import mutants
from tests.crash.ledger import Ledger
from tests.crash.short_runs import RUN_EVENTS, set_bounds

LEDGER = "ledger.sqlite"
VERSION = "CRASH_TEST_VERSION"
"""Of the agent: from the second on it has one tool more."""

# Only in the workers: the processes that test and check import this file as well.
if RUN_EVENTS in os.environ:
    set_bounds(int(os.environ[RUN_EVENTS]))
mutants.apply(os.environ.get(mutants.MUTANT, ""))

_ledger = Ledger(Path(os.environ.get("CRASH_TEST_FOLDER", ".")) / LEDGER)


def receipt(number: int, key: str, size: int) -> str:
    """What a tool returns of an effect."""
    return f"receipt {number} of {key}".ljust(size, ".")


def _note(name: str, context: ToolContext, before: float, after: float, size: int) -> int:
    arguments = {"before": before, "after": after, "size": size}
    return _ledger.write(name, context.idempotency_key, context.attempt, arguments)


def act(name: str, context: ToolContext, before: float, after: float, size: int) -> str:
    time.sleep(before)
    number = _note(name, context, before, after, size)
    time.sleep(after)
    return receipt(number, context.idempotency_key, size)


async def act_async(name: str, context: ToolContext, before: float, after: float, size: int) -> str:
    await asyncio.sleep(before)
    number = _note(name, context, before, after, size)
    await asyncio.sleep(after)
    return receipt(number, context.idempotency_key, size)


@tool(effect="read")
def look(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return act("look", context, before, after, size)


@tool(effect="read")
async def look_async(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return await act_async("look_async", context, before, after, size)


@tool(effect="idempotent")
def note(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return act("note", context, before, after, size)


@tool(effect="idempotent")
async def note_async(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return await act_async("note_async", context, before, after, size)


@tool(effect="once")
def pay(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return act("pay", context, before, after, size)


@tool(effect="once")
async def pay_async(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return await act_async("pay_async", context, before, after, size)


@tool(effect="idempotent", needs_approval=True)
async def sign(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return await act_async("sign", context, before, after, size)


@tool(effect="once", needs_approval=True)
def refund(context: ToolContext, before: float = 0, after: float = 0, size: int = 0) -> str:
    return act("refund", context, before, after, size)


screen: dict[str, Any] = {"name": "screen", "description": "Look at the screen.", "parameters": {"type": "object"}}


@tool(effect="read")
def look_again() -> str:
    """What is new in the second version, and the script never asks for."""
    return "nothing new"


new = [look_again] if os.environ.get(VERSION, "1") != "1" else []

tools = [look, look_async, note, note_async, pay, pay_async, sign, refund, screen, *new]
teller = Agent("teller", model="scripted:demo", tools=tools)

BATCHED_MODEL = "openai:gpt-5.5"
batch_teller = Agent("batch-teller", model=BATCHED_MODEL, tools=tools, settings=ModelSettings(batch=True))
"""The same, for stories whose turns wait for batches."""
