"""`make mutants`: how many of the bugs that everturn once had the simulation finds, and how many that a tool draws.

python -m tests.simulation.mutants                   # the bugs of before, by the simulation: known seeds first
python -m tests.simulation.mutants --anew            # without those
python -m tests.simulation.mutants --by tests        # the same, by the workflow test that each names
python -m tests.simulation.mutants --drawn 60        # drawn ones, by replays, the simulation and the workflow tests
python -m tests.simulation.mutants NAME NAME         # some of the bugs of before
python -m tests.simulation.mutants --minutes 30      # no hunt begins after that; begun again, it goes on from there
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.simulation.mutants import drawn
from tests.simulation.mutants.finders import REPLAYS, WORKFLOW_TESTS, Finder, Simulation, Sound, Tests, aimed_at, sound
from tests.simulation.mutants.hunt import Hunted, Mutant, hunted, score
from tests.simulation.mutants.known import keep_seeds, known_seeds
from tests.simulation.mutants.patch import Patch, all_patches
from tests.simulation.mutants.results import FILE, Results
from tests.simulation.world import ALL_SITUATIONS

WANTED, WANTED_OF_DRAWN = 0.95, 0.90

FEW_WORLDS = 500
"""They find most of what the simulation finds at all."""


def main() -> int:
    wish = _wish()
    with sound() as everturn:
        return _hunt_drawn(wish, everturn) if wish.drawn else _hunt_bugs(wish, everturn)


def _hunt_bugs(wish: argparse.Namespace, everturn: Sound) -> int:
    mutants = [patch for patch in all_patches() if not wish.names or patch.name in wish.names]
    if unknown := set(wish.names) - {mutant.name for mutant in mutants}:
        print(f"There is no mutant {', '.join(sorted(unknown))}: see tests/simulation/mutants/*.patch", file=sys.stderr)
        return 2

    known = {} if wish.anew else known_seeds()

    def finders(mutant: Mutant) -> Iterable[Finder]:
        assert isinstance(mutant, Patch)
        if wish.by == "simulation":
            situations = tuple(wish.situation) or mutant.situations
            return [Simulation(wish.count, everturn, known.get(mutant.name), situations)]
        return [Tests([test])] if (test := mutant.heads["Test"]) != "none" else []

    results = _results(wish, f"bugs by {wish.by}, {wish.count} worlds of {wish.situation or 'all'}, {wish.anew}")
    before = results.known(mutants)
    left = [mutant for mutant in mutants if mutant not in [known.mutant for known in before]]
    found = results.kept(hunted(left, finders, at_once=wish.at_once, minutes=wish.minutes))
    print(f"{len(mutants)} mutants, {len(before)} of them were run before", flush=True)
    done = [*_printed([*before]), *_printed(_kept(found) if wish.by == "simulation" else found)]
    told, enough = score(done, of=len(mutants), wanted=WANTED)
    missed = sorted(one.mutant.name for one in done if not one.found)
    lost = [name for name in missed if name in known]
    print(
        "\n".join(["", *(f"missed: {name}" for name in missed), *(f"LOST, had a seed: {name}" for name in lost), told])
    )
    return 0 if enough and not lost else 1


def _results(wish: argparse.Namespace, asked: str) -> Results:
    if wish.from_the_first:
        wish.results.unlink(missing_ok=True)
    return Results(wish.results, asked)


def _hunt_drawn(wish: argparse.Namespace, everturn: Sound) -> int:
    if importlib.util.find_spec("cosmic_ray") is None:
        print(drawn.INSTALL, file=sys.stderr)
        return 2
    mutants = drawn.drawn(wish.drawn, wish.seed)
    few = min(FEW_WORLDS, wish.count)

    def finders(mutant: Mutant) -> Iterable[Finder]:
        """The quick ones first."""
        assert isinstance(mutant, drawn.Drawn)
        by_name: dict[str, Finder | None] = {
            "replays": Tests(REPLAYS),
            "few": Simulation(few, everturn),
            "aimed": Tests(aimed) if (aimed := aimed_at(mutant.file)) else None,
            "tests": Tests(WORKFLOW_TESTS, seconds=2_400),
            "simulation": Simulation(wish.count, everturn, but_first=few if "few" in wish.finders else 0),
        }
        return [finder for name in wish.finders.split(",") if (finder := by_name[name])]

    results = _results(wish, f"drawn {wish.drawn} by {wish.seed}, {wish.finders}, {wish.count} worlds")
    before = results.known(mutants)
    left = [mutant for mutant in mutants if mutant not in [known.mutant for known in before]]
    found = results.kept(hunted(left, finders, at_once=wish.at_once, minutes=wish.minutes))
    done = [*_printed([*before]), *_printed(found)]
    for one in done:
        if not one.found and isinstance(one.mutant, drawn.Drawn):
            print(f"\nsurvived: {one.mutant.name}\n- {one.mutant.before}\n+ {one.mutant.after}")
    told, enough = score(done, of=len(mutants), wanted=WANTED_OF_DRAWN)
    print(f"\nseed {wish.seed}: {told}")
    return 0 if enough else 1


def _kept(all_hunted: Iterable[Hunted]) -> Iterable[Hunted]:
    for one in all_hunted:  # at once: a hunt may be broken off
        if one.found:  # else its seed stays: begun again, it is still known that one of its worlds was there
            keep_seeds({one.mutant.name: one.found.where})
        yield one


def _printed(all_hunted: Iterable[Hunted]) -> Iterable[Hunted]:
    for one in all_hunted:
        print(one, flush=True)
        yield one


def _wish() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description="Finds what is wrong.")
    parser.add_argument("names", nargs="*", help="of the bugs of before; all if none is given")
    parser.add_argument("--count", type=int, default=int(os.environ.get("COUNT") or 5_000), help="of conversations")
    choices = {"choices": ALL_SITUATIONS, "metavar": "NAME", "help": "in these worlds, not in those that a patch names"}
    parser.add_argument("--situation", nargs="*", default=(), **choices)
    parser.add_argument("--anew", action="store_true", help="without the seeds that found them the last time")
    parser.add_argument("--by", choices=("simulation", "tests"), default="simulation")
    parser.add_argument("--drawn", type=int, default=int(os.environ.get("DRAWN") or 0), help="so many, by a tool")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 0), help="of what is drawn")
    parser.add_argument("--finders", default="replays,few,aimed,tests,simulation", help="of drawn ones, in this order")
    minutes = float(os.environ.get("MINUTES") or 0) or None
    parser.add_argument("--minutes", type=float, default=minutes, help="after so many, no other hunt begins")
    parser.add_argument("--results", type=Path, default=FILE, help="what was found so far, to go on from there")
    parser.add_argument("--from-the-first", action="store_true", help="without what was found so far")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
