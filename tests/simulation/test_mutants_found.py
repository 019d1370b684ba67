"""Two of the bugs that everturn once had, put back: the simulation finds them. All of them: `make mutants`, which fails
if one is missed that has a known seed."""

from __future__ import annotations

import pytest

from tests.simulation.mutants.copies import copied, has_its_own
from tests.simulation.mutants.finders import Simulation, sound
from tests.simulation.mutants.known import known_seeds
from tests.simulation.mutants.patch import all_patches

SOME = (
    "one-cancelled-call-cuts-short-its-siblings-whose-results-are-there",
    "reply-hangs-after-a-cancelled-turn",
)
WORLDS = 300
"""The seed that is known finds it at once; if worlds have changed since, another one does."""


def test_the_seeds_that_are_known_are_of_bugs_that_there_are() -> None:
    assert known_seeds().keys() <= {patch.name for patch in all_patches()}


@pytest.mark.long  # what it tests is the simulation itself
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SOME)
def test_it_is_found_again(name: str) -> None:
    patch = next(patch for patch in all_patches() if patch.name == name)
    with copied() as folder, sound() as everturn:
        assert has_its_own(folder), "the copy's everturn is not the one that would be tried"
        patch.apply(folder)
        found = Simulation(WORLDS, everturn, known_seeds().get(name), patch.situations).find(folder)
    assert found
    assert found.where.startswith("seed "), found
