"""Not one more event a turn for hooks, context, deps, rules or MCP tools: the measure of the benchmarks, as a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.measures.features import FEATURES, PLAIN, cost
from benchmarks.script import script
from everturn import Client
from everturn.testing import ScriptedModel

TURNS = 4


@pytest.mark.long_if(lambda name: name != "evaluators")
@pytest.mark.parametrize("name", [name for name in FEATURES if name != PLAIN])
async def test_a_feature_costs_no_event(client: Client, scripted: Callable[..., ScriptedModel], name: str) -> None:
    model = scripted(script)
    plain = await cost(client, model.base_url, PLAIN, turns=TURNS)
    with_it = await cost(client, model.base_url, name, turns=TURNS)
    assert with_it.beside_tasks == plain.beside_tasks
    assert plain.beside_tasks >= 2 * TURNS, "each turn has its activities"
