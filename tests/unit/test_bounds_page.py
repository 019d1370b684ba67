"""docs/reference/bounds.md has the bounds of the workflows' code, as they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from tests.simulation.mutants.drawn import MUTATED
from tests.support.source import PACKAGE

PAGE = PACKAGE.parent / "docs" / "reference" / "bounds.md"

ROW = re.compile(r"^\| (?:.*) \| ([\d,]+) ?(\w*) \| .*\| `([\w/]+)\.(\w+)` \|$", re.M)

SECONDS = {"s": 1, "min": 60, "h": 3_600, "days": 86_400}

NO_BOUND_OF_THE_USERS = {
    "HEARTBEAT_TIMEOUT": "a profile's, which can be chosen",
    "SHORTEST_SECONDS": "a timer of 0 s, as Temporal takes it",
    "SETTLING_STEPS": "turns of the event loop",
    "LIKELY_TOO_LONG": "whether it is worth trying to pack",
    "MOST_BYTES_A_CHARACTER": "what JSON does",
}


def rows() -> list[tuple[str, str, float]]:
    """Module, name and value, in seconds if it is a time."""
    return [
        (module, name, float(number.replace(",", "")) * SECONDS.get(unit, 1))
        for number, unit, module, name in ROW.findall(PAGE.read_text())
    ]


@pytest.mark.parametrize(("module", "name", "value"), rows())
def test_the_page_says_what_a_bound_is(module: str, name: str, value: float) -> None:
    bound: Any = getattr(import_module(f"everturn.{module.replace('/', '.')}"), name)
    assert (bound.total_seconds() if isinstance(bound, timedelta) else bound) == value


def test_the_page_has_every_bound_of_the_workflows() -> None:
    named = {f"{module}.{name}" for module, name, _ in rows()}
    assert len(named) == PAGE.read_text().count("| `"), "every row can be read"
    missing = [path for path, name in _bounds() if path not in named and name not in NO_BOUND_OF_THE_USERS]
    assert missing == []


def _bounds() -> Iterator[tuple[str, str]]:
    """The numbers and times that modules of workflows give a name."""
    for file in MUTATED:
        path = str(file.relative_to(PACKAGE).with_suffix(""))
        module = import_module("everturn." + path.replace("/", "."))
        for line in ast.parse(file.read_text()).body:
            targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
            for target in targets:
                if isinstance(target, ast.Name) and re.fullmatch("[A-Z][A-Z_]+", target.id):
                    value = getattr(module, target.id)
                    if isinstance(value, int | float | timedelta):
                        yield f"{path}.{target.id}", target.id
