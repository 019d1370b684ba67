"""What tools do in the world outside: each run of one leaves a line in the world's ledger."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity

from everturn import ToolContext


@dataclass(frozen=True)
class Effect:
    """A tool that ran, and took effect."""

    conversation_id: str
    tool: str
    call_id: str
    key: str
    attempt: int
    arguments: dict[str, Any]
    worker: str
    at: float
    run_id: str
    tenant: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What the conversation was started with, as the tool was told."""


@dataclass(frozen=True)
class Try:
    """Of a tool that says when it wants to be tried again."""

    conversation_id: str
    call_id: str
    attempt: int
    at: float
    after: float | None


@dataclass
class Ledger:
    """What happened in the world outside."""

    effects: list[Effect] = field(default_factory=list)
    tries: list[Try] = field(default_factory=list)
    begun: set[tuple[str, str]] = field(default_factory=set)
    """Conversations and calls whose tool was begun by a worker, whether or not that lived to see its effect."""

    def of(self, conversation_id: str) -> list[Effect]:
        return [effect for effect in self.effects if effect.conversation_id == conversation_id]


_worker: ContextVar[Any] = ContextVar("worker", default=None)
"""The simulated worker that a task is one of."""

set_worker = _worker.set
worker_of_this_task = _worker.get


def worker_at_hand() -> Any:
    """The simulated worker that the activity at hand runs on."""
    return activity.client().service_client._worker  # type: ignore[attr-defined]


def chance_at_hand() -> random.Random:
    """What is drawn in the activity at hand."""
    info, server = activity.info(), worker_at_hand().server
    chance: random.Random = server.chances.of(info.workflow_id, info.activity_id)
    return chance


def leave(name: str, context: ToolContext, **arguments: Any) -> str:
    """Takes effect, if its worker lives."""
    worker = worker_at_hand()
    begun(context)
    if worker.alive:
        made = (context.conversation_id, name, context.call_id, context.idempotency_key, context.attempt)
        run_id = activity.info().workflow_run_id or ""
        told = context.tenant, context.metadata
        where = worker.name, worker.server.loop.time(), run_id
        worker.server.ledger.effects.append(Effect(*made, arguments, *where, *told))
    return f"{name} {context.call_id} did its work"


def tried(context: ToolContext, after: float | None) -> None:
    """One more try, which wants to be followed by another one `after` so many seconds."""
    server = worker_at_hand().server
    at = server.loop.time()
    server.ledger.tries.append(Try(context.conversation_id, context.call_id, context.attempt, at, after))


def begun(context: ToolContext) -> None:
    worker_at_hand().server.ledger.begun.add((context.conversation_id, context.call_id))


async def take(context: ToolContext) -> None:
    """The time that work takes."""
    begun(context)
    chance = chance_at_hand()
    seconds = chance.choice((0.0, 0.0, 0.01, 0.3, 2.0, 9.0))
    if chance.random() < 0.2:
        context.heartbeat({"part": 1})
    if seconds:
        await asyncio.sleep(seconds)
