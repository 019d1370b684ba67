"""Agents whose code says how far it has come, and gets no further in a worker that a test is about to kill.

That worker has HELD_FOLDER: a conversation with the metadata `{"held": PLACE}` stays at that place, and there is a file
by the name of the conversation. Any other worker passes by.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from everturn import Agent, Model, ModelSettings, NeedsApproval, Reply, ToolContext, TurnContext, tool
from everturn.hooks import ModelInput, StopWith, after_model, before_model

PATIENT = timedelta(minutes=5)
"""Longer than a full machine takes to bring all the conversations to where they stay."""


async def here(place: str, context: ToolContext | TurnContext) -> None:
    folder = os.environ.get("HELD_FOLDER")
    if folder and context.metadata.get("held") == place:
        (Path(folder) / context.conversation_id).touch()
        await asyncio.Event().wait()


# ------------------------------------------------------------ code that decides what a turn is asked with


@before_model(timeout=PATIENT)
async def polite(given: ModelInput, context: TurnContext) -> ModelInput:
    await here(f"before_model {context.turn}", context)
    return replace(given, instructions=f"{given.instructions} Be polite.".strip())


@after_model(timeout=PATIENT)
async def checked(reply: Reply, context: TurnContext) -> StopWith | None:
    await here("after_model", context)
    return StopWith("Let us stop here.") if reply.text == "secret" else None


async def instructions(context: TurnContext) -> str:
    await here("instructions", context)
    return f"Turn {context.turn}."


async def prepare(context: TurnContext, tools: Sequence[Any]) -> list[Any]:
    await here("prepare_tools", context)
    return [*tools, echo]


# ------------------------------------------------------------ tools


@tool(effect="read")
async def echo(text: str, context: ToolContext) -> str:
    """Says it again."""
    await here(f"echo {text}", context)
    return f"{text}, {text}"


@tool
async def pay(cents: int, context: ToolContext) -> str:
    """Finds out in the middle that a person has to approve."""
    if not context.approved:
        raise NeedsApproval(f"{cents} cents")
    await here("approved", context)
    return f"paid {cents}"


@tool
async def book(context: ToolContext) -> str:
    """Asks twice."""
    day = await context.ask("Which day?")
    await here("answered", context)
    return f"{day}, for {await context.ask('How many?')}"


@tool(needs_approval=True)
async def refund(cents: int, context: ToolContext) -> str:
    """Gives money back."""
    await here(f"refund {cents}", context)
    return f"{cents} back"


class Wish(BaseModel):
    """What the helper is asked with."""

    wants: str
    politely: bool = True


async def run_bash(context: ToolContext, command: str = "", restart: bool = False) -> str:
    await here("bash", context)
    return f"{command} ran"


def agents() -> list[Agent]:
    """On the models of HELD_MODEL and HELD_CLAUDE."""
    model = Model("scripted:demo", base_url=os.environ["HELD_MODEL"])
    claude = Model("anthropic:claude-sonnet-5", base_url=os.environ["HELD_CLAUDE"])
    helper = Agent("helper", model=model, tools=[refund], description="Helps.", input=Wish)
    forced = ModelSettings(tool_choice="required")
    return [
        Agent("hooked", model=model, tools=[echo], hooks=[polite, checked]),
        Agent("forced", model=model, tools=[echo], hooks=[polite], settings=forced),
        Agent("prepared", model=model, prepare_tools=prepare, instructions=instructions),
        Agent("careful", model=model, tools=[pay, book, refund, echo]),
        Agent("boss", model=model, tools=[helper]),
        Agent(
            "shell",
            model=claude,
            tools=[{"type": "bash_20250124", "name": "bash"}],
            handlers={"bash": run_bash},
            settings=ModelSettings(stream=False),
        ),
    ]
