"""`make mutants` may be broken off, or end after some minutes: begun again, it goes on from there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.simulation.mutants.finders import Found
from tests.simulation.mutants.hunt import Hunted, hunted, score
from tests.simulation.mutants.results import Results


@dataclass(frozen=True)
class _Bug:
    name: str

    def apply(self, root: Path) -> None:
        raise AssertionError("a hunt began")


FIRST, SECOND, THIRD = _Bug("first"), _Bug("second"), _Bug("third")


def test_what_was_run_is_known_and_what_was_not_is_left(tmp_path: Path) -> None:
    file, found = tmp_path / "results.json", Found("seed 7", "a message is lost")
    kept = Results(file, "all").kept([Hunted(FIRST, found, 2.0), Hunted(SECOND, None, 3.0)])
    assert next(kept).mutant == FIRST  # and then it is broken off
    assert Results(file, "all").known([FIRST, SECOND, THIRD]) == [Hunted(FIRST, found, 2.0)]
    assert Results(file, "other worlds").known([FIRST, SECOND, THIRD]) == []


def test_after_its_minutes_no_hunt_begins() -> None:
    assert [*hunted([FIRST, SECOND], lambda _: [], at_once=1, minutes=1e-9)] == []


def test_a_score_says_what_was_not_run() -> None:
    told, enough = score([Hunted(FIRST, Found("seed 7", "lost"), 2.0)], of=3, wanted=0.9)
    assert "1 of 1 found, 100%; 2 of 3 were not run" in told
    assert not enough
