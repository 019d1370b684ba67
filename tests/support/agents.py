"""Agents on a scripted model, and the workers that host them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from everturn import Agent, Client, Model, Worker
from everturn.storage.data_converter import data_converter
from everturn.temporal.any_status import AnyStatus
from everturn.testing import ScriptedModel


def agent_on(model: ScriptedModel, *, tools: Sequence[Any] = (), name: str = "clerk", **options: Any) -> Agent:
    return Agent(name, model=Model("scripted:demo", base_url=model.base_url), tools=tools, **options)


def nowhere() -> Client:
    """A client that no server is asked by: what is wrong is seen before."""
    return Client(
        cast("Any", SimpleNamespace(data_converter=data_converter, config=lambda **_: {"interceptors": [AnyStatus()]}))
    )


def hosting(client: Client, *agents: Agent, **options: Any) -> Worker:
    """A worker that does not wait for long, if a test leaves it with something that never ends."""
    return Worker(client, agents=agents, **{"drain_timeout": timedelta(seconds=20), **options})
