"""Agents on a scripted model, and the workers that host them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from everturn import Agent, Client, Model, Worker
from everturn.testing import ScriptedModel


def agent_on(model: ScriptedModel, *, tools: Sequence[Any] = (), name: str = "clerk", **options: Any) -> Agent:
    return Agent(name, model=Model("scripted:demo", base_url=model.base_url), tools=tools, **options)


def hosting(client: Client, *agents: Agent, **options: Any) -> Worker:
    """A worker that does not wait for long, if a test leaves it with something that never ends."""
    return Worker(client, agents=agents, **{"drain_timeout": timedelta(seconds=20), **options})
