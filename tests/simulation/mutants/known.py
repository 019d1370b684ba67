"""Which seed found a bug of before the last time: tried first, so that `make mutants` takes minutes and not hours.

A seed that finds it no more, since the code, the worlds or the rules are others now, is looked for anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.simulation.mutants.patch import FOLDER

FILE = FOLDER / "seeds.json"


def known_seeds() -> dict[str, int]:
    seeds: dict[str, int] = json.loads(FILE.read_text())
    return seeds


def keep_seeds(found: Mapping[str, str]) -> None:
    """Notes what found each bug, by the bug's name: "seed 7", or something else."""
    seeds = known_seeds()
    for name, where in found.items():
        seeds.pop(name, None)
        if where.startswith("seed "):
            seeds[name] = int(where.removeprefix("seed "))
    FILE.write_text(json.dumps(seeds, indent=2, sort_keys=True) + "\n")
