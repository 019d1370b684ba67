"""The tests themselves: each stands alone, and none says how long something may take."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.order import FIRST, LAST, in_pieces

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests").rglob("*.py"))

CLOCKS = {"monotonic", "perf_counter", "time"}

WAITS = {"support/waiting.py", "ui/tmux.py"}
"""They give up after a time: with an error that says what did not come about."""


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT / "tests"))


@cache
def trees() -> list[tuple[str, ast.AST]]:
    return [(name_of(file), ast.parse(file.read_text())) for file in FILES]


def test_every_test_is_run_once_in_whatever_pieces() -> None:
    files = [*("tests/workflows/test_a.py", "tests/ui/test_b.py"), *FIRST[:2], *(f"{name}test_c.py" for name in LAST)]
    items: list[Any] = [SimpleNamespace(nodeid=f"{file}::{number}") for file in files for number in range(7)]
    for processes in (1, 2, 3, 8, 100):
        assert sorted(one.nodeid for one in in_pieces(items, processes)) == sorted(one.nodeid for one in items)


def test_the_long_ones_are_there() -> None:
    assert [name for name in FIRST if not (ROOT / name).exists()] == []


def test_no_test_takes_anything_from_another_one() -> None:
    """What several use is in tests/support, or in a module of its own beside them."""
    taken = [
        f"{name}:{one.lineno} imports from {one.module}"
        for name, tree in trees()
        for one in ast.walk(tree)
        if isinstance(one, ast.ImportFrom) and re.search(r"^tests\..*\b(test_\w+|conftest)$", one.module or "")
    ]
    assert taken == []


def test_no_test_says_how_long_something_may_take() -> None:
    """A busy machine would make it a liar."""
    timed = [
        f"{name}:{compared.lineno}"
        for name, tree in trees()
        if name not in WAITS
        for asserted in ast.walk(tree)
        if isinstance(asserted, ast.Assert)
        for compared in ast.walk(asserted.test)
        if isinstance(compared, ast.Compare)
        and any(isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for sign in compared.ops)
        and any(map(reads_a_clock, ast.walk(compared)))
    ]
    assert timed == []


def reads_a_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS


def test_no_test_sets_a_constant_of_the_product_by_itself() -> None:
    """A bound is passed in; one that can't be has a name in tests/support/bounds.py."""
    patched = [
        f"{name}:{called.lineno} sets {constant.value}"
        for name, tree in trees()
        for called in ast.walk(tree)
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and called.func.attr == "setattr"
        for constant in called.args[:2]
        if isinstance(constant, ast.Constant) and re.search(r"(^|\.)_?[A-Z][A-Z_]{3,}$", str(constant.value))
    ]
    assert patched == []


def test_what_is_skipped_says_why() -> None:
    silent = [
        f"{name}:{called.lineno}"
        for name, tree in trees()
        for called in ast.walk(tree)
        if isinstance(called, ast.Call)
        and isinstance(called.func, ast.Attribute)
        and called.func.attr in {"skipif", "importorskip", "xfail"}
        and not any(keyword.arg == "reason" for keyword in called.keywords)
    ]
    assert silent == []


def test_no_whole_module_is_skipped_while_it_is_imported() -> None:
    """With xdist, no report of it comes: nobody could say that CI skipped it (tests/support/skips.py)."""
    assert [name for name, tree in trees() for one in ast.walk(tree) if skips_its_module(one)] == []


def skips_its_module(node: ast.AST) -> bool:
    if isinstance(node, ast.Module):
        called = [one.value for one in node.body if isinstance(one, ast.Expr | ast.Assign)]
        return any(isinstance(one, ast.Call) and ast.unparse(one.func) == "pytest.importorskip" for one in called)
    return isinstance(node, ast.keyword) and node.arg == "allow_module_level"
