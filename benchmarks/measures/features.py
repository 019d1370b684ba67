"""What hooks, context, deps, rules, evaluators and MCP tools cost in history: events and bytes of the same
conversation, without and with each of them. They are to cost no event.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from temporalio.api.enums.v1 import EventType

from benchmarks import work
from benchmarks.contestants import everturn_client
from benchmarks.contestants.everturn import lookup
from benchmarks.histories import runs_of
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import ROOT, Rig
from everturn import Agent, Client, Limits, McpServer, Model, ToolContext, TurnContext, Worker, tool
from everturn.evals import JudgedAnswer
from everturn.hooks import Hooks

TURNS = 10

PLAIN = "plain"

LEFT_OUT = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    }
)
"""How many workflow tasks there are is a matter of timing, too; an update is how rules are set, once."""


class Looking(Hooks):
    """All four, and each lets everything be."""

    def before_model(self, given: object, context: object) -> None: ...
    def after_model(self, reply: object, context: object) -> None: ...
    def before_tool(self, call: object, context: object) -> None: ...
    def after_tool(self, call: object, result: object, context: object) -> None: ...


@tool(effect="read", name="lookup")
async def lookup_for(number: int, context: ToolContext) -> str:
    """Look up a number."""
    assert context.tenant
    assert context.metadata
    return work.looked_up(number)


@tool(effect="read", name="lookup")
async def lookup_with(number: int, context: ToolContext[str]) -> str:
    """Look up a number."""
    assert context.deps == "opened"
    return work.looked_up(number)


@asynccontextmanager
async def open_deps() -> AsyncIterator[str]:
    yield "opened"


def instructions(context: TurnContext) -> str:
    return f"You look numbers up for {context.tenant}."


def is_short(answer: JudgedAnswer) -> bool:
    return len(answer.text) < 1_000


@dataclass(frozen=True)
class Feature:
    agent: dict[str, Any]
    start: dict[str, Any] = field(default_factory=dict)
    worker: dict[str, Any] = field(default_factory=dict)
    rules: Sequence[dict[str, Any]] = ()


_WHOSE: dict[str, Any] = {"tenant": "acme", "metadata": {"user": "u-7", "plan": "pro"}}

FEATURES = {
    PLAIN: Feature({"tools": [lookup]}),
    "hooks": Feature({"tools": [lookup], "hooks": [Looking()]}),
    "tenant and metadata": Feature({"tools": [lookup_for]}, start=_WHOSE),
    "instructions decided": Feature({"tools": [lookup], "instructions": instructions}, start=_WHOSE),
    "deps": Feature({"tools": [lookup_with]}, worker={"deps": open_deps}),
    "rules": Feature({"tools": [lookup]}, rules=[{"tool": "lookup", "then": "approve"}]),
    "evaluators": Feature({"tools": [lookup]}, worker={"evaluators": [is_short]}),
    "MCP tools": Feature(
        {"tools": [McpServer(command=[sys.executable, "-m", "benchmarks.mcp_lookup"], cwd=str(ROOT))]}
    ),
}


@dataclass(frozen=True)
class Cost:
    events: int
    beside_tasks: int
    """Those that are neither workflow tasks nor updates."""
    size: int
    """In bytes."""


async def cost(client: Client, base_url: str, name: str, *, turns: int = TURNS) -> Cost:
    feature = FEATURES[name]
    limits = Limits(max_turns=turns + 1)
    agent = Agent("clerk", model=Model("scripted:demo", base_url=base_url), limits=limits, **feature.agent)
    async with Worker(client, agents=[agent], **feature.worker):
        conversation_id = f"feature-{uuid4().hex[:8]}"
        conversation = await client.start(agent, work.opening(turns), id=conversation_id, **feature.start)
        if feature.rules:
            await conversation.set_policy(feature.rules)
        await conversation.outcome()
    events = [event for run in await runs_of(client.temporal, conversation_id) for event in run.history.events]
    beside = [event for event in events if event.event_type not in LEFT_OUT]
    return Cost(len(events), len(beside), sum(event.ByteSize() for event in events))


async def measure(rig: Rig, plan: Plan) -> Measured:  # noqa: ARG001 - as all measures are called
    client: Client = everturn_client(rig.client, "features")
    costs = {name: await cost(client, rig.base_url, name) for name in FEATURES}
    rows = {
        name: {
            "beside": one.beside_tasks / TURNS,
            "events": one.events / TURNS,
            "kb": one.size / 1000 / TURNS,
        }
        for name, one in costs.items()
    }
    columns = [
        Column("beside", "events a turn, beside workflow tasks and updates", against=PLAIN),
        Column("events", "events a turn", against=PLAIN),
        Column("kb", "KB a turn", ".2f", against=PLAIN),
    ]
    title = f"What features cost in history ({TURNS} turns with one call each)"
    return Measured(
        title,
        columns,
        rows,
        ["In `rules`, one rule approves; it is set once, by an update, whose events are among the second number."],
    )
