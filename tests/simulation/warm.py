"""Imported by the process that those of `make sim` are forked from: each of them has all modules, and what the first
worlds work out once."""

from __future__ import annotations

from tests.simulation.speed import alone
from tests.simulation.world import run

for _seed in (1, 2, 3):
    run(_seed)
alone()
