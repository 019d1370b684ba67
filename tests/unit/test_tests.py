"""The tests themselves: each stands alone, and none says how long something may take."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.order import FIRST, LAST, WAITING, in_pieces
from tests.support.timed import CLOCKS, asserted_times

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests").rglob("*.py"))

WAITS = {"support/waiting.py", "ui/tmux.py"}
"""They give up after a time: with an error that says what did not come about."""


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT / "tests"))


@cache
def all_trees() -> list[tuple[str, str, ast.Module]]:
    texts = [(name_of(file), file.read_text()) for file in FILES]
    return [(name, text, ast.parse(text)) for name, text in texts]


def trees(words: str = "") -> list[tuple[str, ast.Module]]:
    """Those of the files that have these words."""
    return [(name, tree) for name, text, tree in all_trees() if re.search(words, text)]


def test_every_test_is_run_once_in_whatever_pieces() -> None:
    files = [
        *("tests/workflows/test_a.py", "tests/ui/test_b.py"),
        *FIRST,
        *WAITING,
        *(f"{name}test_c.py" for name in LAST),
    ]
    items: list[Any] = [SimpleNamespace(nodeid=f"{file}::{number}") for file in files for number in range(7)]
    for processes in (1, 2, 3, 8, 100):
        assert sorted(in_piece.nodeid for in_piece in in_pieces(items, processes)) == sorted(
            item.nodeid for item in items
        )


def test_the_long_ones_are_there() -> None:
    assert [name for name in (*FIRST, *WAITING) if not (ROOT / name).exists()] == []


def test_no_test_takes_anything_from_another_one() -> None:
    """What several use is in tests/support, or in a module of its own beside them."""
    taken = [
        f"{name}:{one.lineno} imports from {one.module}"
        for name, tree in trees(r"tests\..*\b(test_\w+|conftest)\b")
        for one in ast.walk(tree)
        if isinstance(one, ast.ImportFrom) and re.search(r"^tests\..*\b(test_\w+|conftest)$", one.module or "")
    ]
    assert taken == []


def test_no_test_says_how_long_something_may_take() -> None:
    """A busy machine would make it a liar."""
    assert [
        f"{name}:{compared.lineno} {ast.unparse(compared)}"
        for name, tree in trees(rf"\b({'|'.join(CLOCKS)})\(")
        if name not in WAITS
        for compared in asserted_times(tree)
    ] == []


@pytest.mark.parametrize(
    ("lines", "noticed"),
    [
        ("assert time.monotonic() - began < 1", True),
        ("took = time.monotonic() - began\nassert took < 1", True),
        ("took = time.monotonic() - began\nassert 0 <= took <= 1", True),
        ("took = time.monotonic() - began\nassert 1 > took, 'slow'", True),
        ("took = round(monotonic() - began, 1)\nassert took < 1 and done", True),
        ("began = datetime.now(UTC)\ntook = found.at - began\nassert took < timedelta(seconds=1)", True),
        ("a, b = time.time(), 1\nassert a < 1", True),
        ("assert (took := time.time() - began) < 1", True),
        ("took = 0.0\ntook += time.perf_counter()\nassert took < 1", True),
        ("times.append(time.monotonic())\nassert max(times) < 1", True),
        ("self.took = time.monotonic()\nassert self.took < 1", True),
        ("def took():\n    return time.monotonic() - began\nassert took() < 1", True),
        ("took = time.monotonic() - began\nassert took >= 1", False),
        ("began = time.monotonic()\nassert calls < 1", False),
    ],
)
def test_how_long_something_may_take_is_noticed_in_many_spellings(lines: str, noticed: bool) -> None:
    tree = ast.parse(f"def test():\n{indent(lines, '    ')}")
    assert [compared.lineno > 0 for compared in asserted_times(tree)] == [True] * noticed


CONSTANT = r"_?[A-Z][A-Z0-9_]{3,}"

SETTERS = {"delattr", "object", "patch", "setattr"}
"""Functions that set a name: `setattr`, `monkeypatch.setattr`, `mock.patch`, `mock.patch.object`."""

PROGRAM_THAT_SETS_ONE = re.compile(rf"^.*\w\.{CONSTANT}\s*(,.*)?=(?!=).*$", re.M)

MAY_SET = {
    "support/planted.py": "names what no workflow may do, as text that never runs",
    "simulation/test_simulation.py": "sets the bounds of the simulation itself, and none of the product",
    "unit/test_tests.py": "names below what no test may do, as text that never runs",
}


def constants_set(tree: ast.AST) -> Iterator[str]:
    """Also in a program that a test writes and runs, and in what another module has by that name."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if re.fullmatch(CONSTANT, name):
                yield f"{node.lineno} sets {ast.unparse(node)}"
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=given) if called in SETTERS:
                names = [str(one.value) for one in given[:2] if isinstance(one, ast.Constant)]
                yield from (f"{node.lineno} sets {name}" for name in names if re.search(rf"(^|\.){CONSTANT}$", name))
            case ast.Subscript(value=holder, slice=ast.Constant(value=str(name)), ctx=ast.Store()):
                if re.fullmatch(CONSTANT, name) and re.match(r"vars\(|.*\.__dict__$", ast.unparse(holder)):
                    yield f"{node.lineno} sets {name}"
            case ast.Constant(value=str(text)):
                lines = [found[0] for found in PROGRAM_THAT_SETS_ONE.finditer(text)]
                yield from (f"{node.lineno} sets, in a program: {line}" for line in lines)


def test_no_test_sets_a_constant_of_the_product_by_itself() -> None:
    """A bound is passed in; one that can't be has a name in tests/support/bounds.py, which sets it, also in a process
    of its own (`set_for_good`) and in a program that is written (`as_code`)."""
    naming = trees(rf"\.{CONSTANT}\b|['\"]{CONSTANT}['\"]")
    patched = [f"{name}:{said}" for name, tree in naming if name not in MAY_SET for said in constants_set(tree)]
    assert patched == []


@pytest.mark.parametrize(
    "lines",
    [
        "continue_as_new.MAX_EVENTS = 7",
        "continue_as_new.MAX_EVENTS, sent_messages.MAX_INBOX_BYTES = 7, 8",
        "continue_as_new.MAX_EVENTS += 7",
        "continue_as_new.MAX_EVENTS: int = 7",
        "with given() as continue_as_new.MAX_EVENTS: pass",
        "setattr(continue_as_new, 'MAX_EVENTS', 7)",
        "monkeypatch.setattr(continue_as_new, 'MAX_EVENTS', 7)",
        "monkeypatch.setattr('everturn.workflows.continue_as_new.MAX_EVENTS', 7)",
        "patch('everturn.workflows.continue_as_new.MAX_EVENTS', 7)",
        "mock.patch.object(storage, 'MAX_IN_UTF8', 7)",
        "vars(continue_as_new)['MAX_EVENTS'] = 7",
        "continue_as_new.__dict__['MAX_EVENTS'] = 7",
        "program = 'import a\\na.MAX_EVENTS = 7'",
        "program = f'from everturn import a; a.MAX_EVENTS, a.MAX_X = {7}, 8'",
    ],
)
def test_a_constant_that_is_set_is_noticed_in_many_spellings(lines: str) -> None:
    assert list(constants_set(ast.parse(lines))) != []


def test_what_is_skipped_says_why() -> None:
    silent = [
        f"{name}:{called.lineno}"
        for name, tree in trees(r"skipif|importorskip|xfail")
        for called in ast.walk(tree)
        if isinstance(called, ast.Call)
        and isinstance(called.func, ast.Attribute)
        and called.func.attr in {"skipif", "importorskip", "xfail"}
        and not any(keyword.arg == "reason" for keyword in called.keywords)
    ]
    assert silent == []


def test_no_whole_module_is_skipped_while_it_is_imported() -> None:
    """With xdist, no report of it comes: nobody could say that CI skipped it (tests/support/skips.py)."""
    skipping = trees(r"importorskip|allow_module_level")
    assert [name for name, tree in skipping for one in ast.walk(tree) if skips_its_module(one)] == []


def skips_its_module(node: ast.AST) -> bool:
    if isinstance(node, ast.Module):
        called = [one.value for one in node.body if isinstance(one, ast.Expr | ast.Assign)]
        return any(isinstance(one, ast.Call) and ast.unparse(one.func) == "pytest.importorskip" for one in called)
    return isinstance(node, ast.keyword) and node.arg == "allow_module_level"
