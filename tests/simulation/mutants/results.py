"""What `make mutants` has come to so far, in a file: begun again, it goes on from there, while the code is the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.simulation.mutants.copies import PRODUCT, ROOT
from tests.simulation.mutants.finders import Found
from tests.simulation.mutants.hunt import Hunted, Mutant

FILE = ROOT / "build" / "mutants.json"


class Results:
    """`asked`: who looks for the mutants, and in how many worlds. Of another question nothing is known."""

    def __init__(self, file: Path, asked: str) -> None:
        self._file, self._of = file, f"{asked} {_code()}"
        kept = json.loads(file.read_text()) if file.exists() else {}
        self._kept: dict[str, dict[str, object]] = kept.get(self._of, {})

    def known(self, mutants: Sequence[Mutant]) -> list[Hunted]:
        return [self._hunted(mutant, self._kept[mutant.name]) for mutant in mutants if mutant.name in self._kept]

    def kept(self, all_hunted: Iterable[Hunted]) -> Iterator[Hunted]:
        """The same, each written down as it comes."""
        for one in all_hunted:
            self._kept[one.mutant.name] = {"seconds": one.seconds, "found": one.found and asdict(one.found)}
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({self._of: self._kept}, indent=2) + "\n")
            yield one

    def _hunted(self, mutant: Mutant, kept: dict[str, object]) -> Hunted:
        found, seconds = kept["found"], kept["seconds"]
        assert isinstance(seconds, float)
        return Hunted(mutant, Found(**found) if isinstance(found, dict) else None, seconds)


def _code() -> str:
    """Of everturn and of the simulation: with others, what was found says nothing."""
    digest = hashlib.sha256()
    for folder in (ROOT / PRODUCT, ROOT / "tests" / "simulation"):
        for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.patch")]):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
