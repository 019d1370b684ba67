"""Worlds whose agents have the tools of MCP servers: each holds, and a mistake in what they are about is found."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from everturn.tools.context import ToolContext
from tests.simulation.situations.mcp import MCP
from tests.simulation.world import run, seeds_of

SOME = 40


@pytest.mark.timeout(600)
def test_worlds_with_mcp_servers_hold() -> None:
    worlds = [run(seed) for seed in islice(seeds_of(MCP), 9)]
    assert [world.broken for world in worlds if world.broken] == []
    counts: Counter[str] = sum((Counter(world.counts) for world in worlds), Counter())
    for what in ("MCP calls", "MCP tasks", "MCP questions", "MCP lists changed", "MCP servers away", "kills"):
        assert counts[what], f"no world had {what}"


def _another_key_for_each_try(monkeypatch: pytest.MonkeyPatch) -> None:
    key = property(lambda self: f"{self.conversation_id}:{self.chain_id}:{self.attempt}:{self.call_id}")
    monkeypatch.setattr(ToolContext, "idempotency_key", key)


@pytest.mark.timeout(600)
def test_a_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _another_key_for_each_try(monkeypatch)
    assert any(run(seed).broken for seed in islice(seeds_of(["MCP tasks", "MCP servers"]), SOME))
