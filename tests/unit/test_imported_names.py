"""What is outside of the type checker's folders imports only what everturn has, in functions as well: a benchmark that
takes 20 minutes ended with an ImportError."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "examples", "docs", "tests")
INSTALLED = "site-packages", "node_modules"


@cache
def files_of(folder: str) -> list[Path]:
    """Looked for by a test, and not as each process that collects it imports this."""
    return sorted(path for path in (ROOT / folder).rglob("*.py") if not {*INSTALLED} & {*path.parts})


def _lacking(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "everturn":
            module = import_module(node.module)
            for name in (alias.name for alias in node.names):
                if not (hasattr(module, name) or (hasattr(module, "__path__") and find_spec(f"{node.module}.{name}"))):
                    yield f"line {node.lineno}: {node.module} has no {name}"


def test_there_are_benchmarks() -> None:
    assert any(path.parts[-2] == "measures" for path in files_of("benchmarks"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_imported_exists(folder: str) -> None:
    wrong = {str(path.relative_to(ROOT)): lacking for path in files_of(folder) if (lacking := [*_lacking(path)])}
    assert wrong == {}
