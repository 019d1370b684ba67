"""Workflow code does the same each time: all that a workflow can reach names nothing that could differ on a replay.

Read from the source. What can't be read there is watched as recorded conversations replay: tests/support/watch.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.excused import HARMLESS, NOT_CALLED
from tests.support.planted import PLANTED, Planted
from tests.support.source import MODULES, Source, Use, reached, read, source_of
from tests.support.unordered import orders_taken_from_sets, sets_by_name

ROOTS = tuple(module for module in MODULES if module.startswith("everturn.workflows"))

_PURE = """
    __future__ base64 binascii collections contextlib copy dataclasses decimal difflib enum fractions functools hashlib
    html inspect itertools json math operator pathlib.PurePosixPath re shlex string textwrap types typing unicodedata
    urllib.parse.unquote urllib.parse.urlsplit zlib
    pydantic pydantic_core typing_extensions nexusrpc.HandlerError nexusrpc.OperationError
    asyncio.CancelledError asyncio.Event asyncio.Future asyncio.Semaphore asyncio.Task asyncio.TimeoutError
    asyncio.create_task asyncio.current_task asyncio.gather asyncio.get_running_loop asyncio.shield
    contextvars.ContextVar
    datetime.UTC datetime.date datetime.datetime datetime.timedelta datetime.timezone
    temporalio.api.common temporalio.api.sdk temporalio.common temporalio.contrib.pydantic temporalio.converter
    temporalio.exceptions temporalio.worker.Interceptor temporalio.worker.WorkflowInboundInterceptor
    temporalio.worker.WorkflowOutboundInterceptor
    temporalio.workflow
    builtins
"""
PURE = _PURE.split()
"""What workflow code may name that is not ours: with all that is in it, but for what follows. No other module's."""

_BUT_NOT = """
    datetime.date.today datetime.date.fromtimestamp
    datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow
    temporalio.workflow.logger temporalio.workflow.unsafe
    builtins.__import__ builtins.breakpoint builtins.compile builtins.eval builtins.exec builtins.globals builtins.hash
    builtins.id builtins.input builtins.open builtins.print builtins.vars
"""
BUT_NOT = _BUT_NOT.split()

MODULES_IN_MODULES = {"io", "os", "random", "socket", "subprocess", "sys", "threading", "time"}
"""Also by way of a harmless one: `inspect.os.environ`."""

EXCUSED = {*NOT_CALLED, *HARMLESS}


def _within(what: str, of: list[str]) -> bool:
    return any(what == one or what.startswith(f"{one}.") for one in of)


def is_allowed(use: Use) -> bool:
    if _within(use.what, ["everturn"]):
        return use.what not in {place.replace(":", ".") for place in NOT_CALLED}
    first, *rest = use.what.split(".")
    hidden = first not in ("datetime", "temporalio") and not MODULES_IN_MODULES.isdisjoint(rest)
    return _within(use.what, PURE) and not _within(use.what, BUT_NOT) and not hidden


def strange(source: Source) -> Iterator[str]:
    """What may differ from one replay to the next, or from one worker to another."""
    yield from (str(use) for use in source.uses if not is_allowed(use))
    yield from (f"{source.module}, {what}" for what in _state_of_the_module(source.tree))


def _state_of_the_module(tree: ast.Module) -> Iterator[str]:
    """What functions change of their module: all conversations of a worker have it in common."""
    kept = {
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield f"line {node.lineno}: global {', '.join(node.names)}"
            changed = _changed(node)
            if changed in kept and changed not in _own_names(function):
                yield f"line {function.lineno}: {function.name} changes {changed}, which all conversations share"


CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft", "popitem", "remove"}
CHANGES |= {"setdefault", "update"}


def _changed(node: ast.AST) -> str | None:
    """The name of what a statement or a call changes in place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        changed: ast.expr = node.func.value
    elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        changed = node.value
    else:
        return None
    return changed.id if isinstance(changed, ast.Name) else None


def _own_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)} | {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def problems(excused: set[str]) -> set[str]:
    return {
        str(use)
        for module in reached(ROOTS, not_called=excused)
        for use in source_of(module).uses
        if use.place not in excused and not is_allowed(use)
    }


def test_workflows_name_nothing_that_may_differ_on_a_replay() -> None:
    assert problems(EXCUSED) == set()


def test_conversations_of_one_worker_share_nothing_that_changes() -> None:
    shared = {
        f"{module}, {what}"
        for module in reached(ROOTS, not_called=EXCUSED)
        for what in _state_of_the_module(source_of(module).tree)
    }
    assert shared == set()


@pytest.mark.parametrize("place", sorted(EXCUSED))
def test_every_excuse_is_still_needed(place: str) -> None:
    assert problems(EXCUSED - {place}) != set()


def test_what_workflows_reach_is_more_than_their_own_folder() -> None:
    found = set(reached(ROOTS, not_called=EXCUSED))
    assert {"everturn", "everturn.records", "everturn.sizes", "everturn.storage.data_converter"} < found
    assert not {module for module in found if module.startswith(("everturn.activities", "everturn.providers"))}


def test_no_order_is_taken_from_a_set() -> None:
    """It differs from process to process."""
    modules = [source_of(module) for module in reached(ROOTS, not_called=EXCUSED)]
    known = sets_by_name(source.tree for source in modules)
    assert [
        f"{source.module}, line {line}: {code}"
        for source in modules
        for line, code in orders_taken_from_sets(source.tree, known)
    ] == []


@pytest.mark.parametrize("planted", [one for one in PLANTED if one.in_source], ids=lambda one: one.name)
def test_a_planted_line_is_noticed(planted: Planted) -> None:
    source = read("everturn.planted", planted.source)
    found = [*strange(source), *orders_taken_from_sets(source.tree, sets_by_name([source.tree]))]
    assert found != []


BY_WAY_OF_OTHERS = {
    "a module of a module": "import inspect\n\ndef f() -> str:\n    return inspect.os.environ['A']\n",
    "for those who run it": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import json as os\nelse:\n    import os\n\n"
        "def f() -> str:\n    return os.environ['A']\n"
    ),
    "under another condition": (
        "from typing import TYPE_CHECKING\nimport time\n\ndef f() -> float:\n    if TYPE_CHECKING or True:\n"
        "        return time.time()\n"
    ),
}


@pytest.mark.parametrize("source", BY_WAY_OF_OTHERS.values(), ids=BY_WAY_OF_OTHERS)
def test_what_is_named_by_way_of_others_is_noticed(source: str) -> None:
    assert list(strange(read("everturn.planted", source))) != []


HARMLESS_LINES = """
import asyncio
from datetime import UTC, datetime
from temporalio import workflow

BY_NAME = {"a": 1}
SEEN: frozenset[str] = frozenset({"a", "b"})

async def harmless(names: set[str], texts: list[str], open: list[str]) -> list[str]:
    at = datetime.fromtimestamp(workflow.time(), UTC)
    await asyncio.gather(*[workflow.sleep(1) for _ in texts])
    open.append(str(at))
    found = [text for text in texts if text in names and text in SEEN and BY_NAME.get(text)]
    return found + sorted(names - SEEN) + sorted(name.upper() for name in names) + [str(len(names | SEEN))] + open
"""


def test_what_is_deterministic_is_left_alone() -> None:
    source = read("everturn.planted", HARMLESS_LINES)
    assert list(strange(source)) == []
    assert list(orders_taken_from_sets(source.tree, sets_by_name([source.tree]))) == []
