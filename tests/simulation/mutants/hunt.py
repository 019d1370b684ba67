"""Each mutant in a copy of its own, several at a time: who finds it, and how many are found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.simulation.mutants.copies import copied
from tests.simulation.mutants.finders import Finder, Found

WIDTH = 78


class Mutant(Protocol):
    @property
    def name(self) -> str: ...
    def apply(self, root: Path) -> None: ...


@dataclass(frozen=True)
class Hunted:
    mutant: Mutant
    found: Found | None
    """None if nobody did."""
    seconds: float

    def __str__(self) -> str:
        found = f"{self.found.where}: {self.found.what}" if self.found else "MISSED"
        return f"{self.mutant.name[:WIDTH]:{WIDTH}} {self.seconds:5.0f} s  {found[:200]}"


def hunted(
    mutants: Sequence[Mutant],
    finders_of: Callable[[Mutant], Iterable[Finder]],
    *,
    at_once: int,
    minutes: float | None = None,
) -> Iterator[Hunted]:
    """As they come. The finders of a mutant are asked one after the other, until one finds it. After so many minutes no
    other hunt begins."""
    until = time.monotonic() + minutes * 60 if minutes else math.inf
    with ThreadPoolExecutor(at_once) as pool:
        for done in as_completed([pool.submit(_hunt, mutant, finders_of(mutant), until) for mutant in mutants]):
            if one := done.result():
                yield one


def _hunt(mutant: Mutant, finders: Iterable[Finder], until: float) -> Hunted | None:
    began = time.monotonic()
    if began > until:
        return None
    with copied() as folder:
        mutant.apply(folder)
        found = next((found for finder in finders if (found := finder.find(folder))), None)
        return Hunted(mutant, found, time.monotonic() - began)


def score(all_hunted: Sequence[Hunted], *, of: int, wanted: float) -> tuple[str, bool]:
    """In words, and whether as many were found as are wanted. `of`: so many mutants there are."""
    found = sum(one.found is not None for one in all_hunted)
    share = found / len(all_hunted) if all_hunted else 0.0
    left = f"; {of - len(all_hunted)} of {of} were not run" if len(all_hunted) < of else ""
    told = f"{found} of {len(all_hunted)} found, {share:.0%}{left}; {wanted:.0%} are wanted"
    return told, share >= wanted and not left
