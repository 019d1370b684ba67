"""The arrows of docs/architecture.md: who imports whom, read from the source; the modules are what the folder holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.source import (
    HOUSES,
    MODULES,
    PACKAGE,
    Source,
    is_for_types,
    modules_of,
    read,
    room_of,
    source_of,
    tree_of,
)

ROOT = Path(__file__).parents[2]

BOTTOM_UP = """
    errors system names sizes text vendor_calls http validation
    logs settings temporal
    records corrections user_parts size_estimates packed_messages heartbeats vendors
    agent_settings models vendor_models limits plans prices tracing policy tenants budgets batching webhooks
    carryover prompts payloads truncation agent_in_charge calls subagents
    events evaluations storage state live history
    reviews tools hooks agent declared_tools loading
    providers guardrails formats client devserver
    workflow workflows testing lost_workers activities worker exporting web ui mcp_server evals cli
"""
ORDER = BOTTOM_UP.split()
"""The modules and folders of `everturn/`: each imports only what comes before it. What HOUSES says is part of another
folder stands there, and under its bans."""

FACES = ("__init__", "__main__")
"""They give everybody's names on, and nobody imports them."""


@dataclass(frozen=True)
class Ban:
    """What a module or folder leaves alone."""

    room: str
    never: str
    """Not imported in its files, inside functions included, nor by what they import at the top, and so on."""
    not_directly: str = ""
    """Not imported in its files; what they import may."""


BANS = [
    # The bottom: values and words.
    *(Ban(room, never="pydantic temporalio httpx") for room in ("errors", "names")),
    *(
        Ban(room, never="temporalio httpx")
        for room in ("records", "agent_settings", "models", "limits", "plans", "carryover", "payloads", "events")
    ),
    # What users write with: usable without Temporal and without a provider.
    *(Ban(room, never="temporalio httpx providers") for room in ("tools", "hooks", "agent", "loading")),
    Ban("formats", never="temporalio"),
    # HTTP to model APIs, and nothing else.
    Ban("providers", never="temporalio payloads carryover state history storage client"),
    # Deterministic: facts come in by records, work goes out by names.
    Ban(
        "workflows",
        never="activities providers tools agent loading worker client web cli devserver testing httpx",
        not_directly="os random time socket threading subprocess secrets uuid pathlib logging",
    ),
    # A client needs no worker's code.
    Ban("client", never="workflows activities providers worker"),
    Ban("activities", never="workflows worker client web cli"),
    # Beside the CLI, on top of the client.
    *(
        Ban(room, never="workflows activities providers worker cli devserver")
        for room in ("exporting", "web", "ui", "mcp_server")
    ),
]


@dataclass(frozen=True)
class Import:
    name: str
    """The module, whole (`everturn.tools.tool`); of everything else, the first name."""
    path: Path
    line: int
    at_top: bool
    """It runs as its module loads: it is not in a function."""

    @property
    def room(self) -> str:
        return room_of(self.name)

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.name}"


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    return tuple(_imports(tree_of(module), MODULES[module]))


def _imports(tree: ast.Module, path: Path) -> Iterator[Import]:
    at_top = set(map(id, _run_as_it_loads(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name, as everywhere else"
            assert node.module is not None
            names = [whole if (whole := f"{node.module}.{it.name}") in MODULES else node.module for it in node.names]
        else:
            continue
        for name in names:
            for found in _with_packages(name):
                yield Import(found, path, node.lineno, at_top=id(node) in at_top)


def _run_as_it_loads(node: ast.AST) -> Iterator[ast.AST]:
    """All that is outside of functions, and not for types only: also what is tried, and what a condition lets run."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    parts = node.orelse if isinstance(node, ast.If) and is_for_types(node) else ast.iter_child_nodes(node)
    for part in parts:
        yield from _run_as_it_loads(part)


def _with_packages(name: str) -> Iterable[str]:
    """A module, and the packages that it is in: importing it runs them, too."""
    if name.split(".", maxsplit=1)[0] != "everturn":
        return [name.split(".", maxsplit=1)[0]]
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(2, len(parts) + 1)]


def reached_from(room: str) -> Iterator[tuple[Import, bool]]:
    """Each import of the room's files, and what those import at their tops in turn; and whether it is its own."""
    todo = modules_of(room)
    own, seen = set(todo), set(todo)
    while todo:
        module = todo.pop()
        for found in imports_of(module):
            if module in own or found.at_top:
                yield found, module in own
            if found.at_top and found.name in MODULES and found.name not in seen:
                seen.add(found.name)
                todo.append(found.name)


def test_every_module_has_its_place_in_the_order() -> None:
    rooms = {module.split(".")[1] for module in MODULES if "." in module} - set(FACES)
    assert sorted(ORDER) == sorted(rooms)


@pytest.mark.parametrize("room", ORDER)
def test_arrows_point_one_way(room: str) -> None:
    below = {room, *ORDER[: ORDER.index(room)]}
    wrong = [
        str(found)
        for module in modules_of(room)
        for found in imports_of(module)
        if found.name.startswith("everturn.") and found.room not in below
    ]
    assert not wrong, "\n".join(wrong)


def test_houses_are_as_they_are_listed() -> None:
    parts = {
        f"everturn.{house}.{module}": layer for house, modules in HOUSES.items() for module, layer in modules.items()
    }
    assert parts.keys() - MODULES.keys() == set()
    assert {*HOUSES, *parts.values()} <= {*ORDER}
    assert [house for house, modules in HOUSES.items() if house in modules.values()] == []


def test_the_map_has_the_folders_in_this_order() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.partition("## The folders")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \|", section, re.M)
    places = [
        ORDER.index(name.removesuffix("/").removesuffix(".py")) for row in rows for name in row.strip("`").split("` `")
    ]
    assert len(places) > 20
    assert places == sorted(places)


def test_nobody_imports_by_way_of_the_packages_face() -> None:
    """It would hide which module is needed, and in which folder that is."""
    assert [str(found) for module in MODULES for found in imports_of(module) if found.name == "everturn"] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not inside functions either, and not for types alone: what needs each other can't be understood alone."""
    arrows = {
        module: {found.name for found in imports_of(module) if found.name in MODULES}
        - {package for package in MODULES if f"{module}.".startswith(f"{package}.")}
        for module in MODULES
    }
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.room)
def test_what_a_module_leaves_alone(ban: Ban) -> None:
    never, not_directly = set(ban.never.split()) - {ban.room}, set(ban.not_directly.split())
    wrong = [
        str(found)
        for found, own in reached_from(ban.room)
        if found.room in never or (own and found.room in not_directly)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "at_top"),
    [
        ("import httpx", True),
        ("try:\n    import httpx\nexcept ImportError:\n    httpx = None", True),
        ("try:\n    import json\nexcept ImportError:\n    import httpx", True),
        ("if sys.platform == 'linux':\n    import httpx", True),
        ("with suppress(ImportError):\n    import httpx", True),
        ("class A:\n    import httpx", True),
        ("if TYPE_CHECKING:\n    import json\nelse:\n    import httpx", True),
        ("if TYPE_CHECKING or True:\n    import httpx", True),
        ("if TYPE_CHECKING:\n    import httpx", False),
        ("def f():\n    import httpx", False),
        ("class A:\n    async def f(self):\n        import httpx", False),
    ],
)
def test_what_is_imported_outside_of_functions_is_imported_at_the_top(text: str, at_top: bool, tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    assert [found.at_top for found in _imports(ast.parse(text), file) if found.name == "httpx"] == [at_top]


BY_TEXT = ("builtins.__import__", "builtins.eval", "builtins.exec", "importlib", "pkgutil", "runpy", "sys.modules")
"""What gives modules by their names as text: no arrow is seen."""

LOADERS = {
    "everturn": "loads the module of a public name once somebody asks for it",
    "everturn.client.interpreter_exit": "closes what of other libraries was loaded, and loads none",
    "everturn.client.trace_context": "takes OpenTelemetry's trace if the user's program has loaded OpenTelemetry",
    "everturn.evaluations.pydantic_evaluators": "knows evaluators of pydantic-evals, which the program has loaded",
    "everturn.evals.fingerprints": "asks where a module that the user's program has loaded is, and loads none",
    "everturn.logs": "keeps structlog from loading rich",
    "everturn.system.user_modules": "loads users' own modules and files, by the names that they give",
    "everturn.temporal.sandbox_imports": "gives Temporal's sandbox the modules that the process has",
    "everturn.tools.other_libraries": "reads tools of libraries that the user's program has loaded, and loads none",
}
"""The modules that may, and what for."""


def loads_by_text(source: Source) -> list[str]:
    """Where it does; what version is installed (importlib.metadata), everybody may ask."""
    asked = [use for use in (*source.uses, *source.imports) if not f"{use.what}.".startswith("importlib.metadata.")]
    found = [use for use in asked if f"{use.what}.".startswith(tuple(f"{name}." for name in BY_TEXT))]
    return [str(use) for use in (*found, *(use for use in source.attributes if use.what == "*.import_module"))]


def test_no_module_is_loaded_by_text() -> None:
    found = {module: loads for module in MODULES if (loads := loads_by_text(source_of(module)))}
    assert {module: loads for module, loads in found.items() if module not in LOADERS} == {}
    assert sorted(LOADERS) == sorted(found), "no longer needed"


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module('everturn.activities.planning')",
        "from importlib import import_module as load\nload('everturn.activities.planning')",
        "from everturn.system import user_modules\nuser_modules.importlib.import_module('everturn.worker')",
        "def f():\n    return __import__('everturn.activities.planning')",
        "import sys\nsys.modules['everturn.activities.planning']",
        "from sys import modules",
        "import pkgutil\npkgutil.resolve_name('everturn.activities.planning')",
        "exec('import everturn.activities.planning')",
    ],
)
def test_what_loads_modules_by_text_is_noticed(text: str) -> None:
    assert loads_by_text(read("everturn.planted", text)) != []


def test_every_ban_is_about_something() -> None:
    assert [ban.room for ban in BANS if not modules_of(ban.room)] == []
    rooms = {room for ban in BANS for room in ban.never.split()}
    assert rooms - set(ORDER) == {"pydantic", "temporalio", "httpx"}


SHARED = ("text", "http", "validation", "system", "temporal", "vendors", "tenants", "calls")
"""Folders of what several others need, as the top itself."""


def test_what_is_shared_has_two_importers_or_more() -> None:
    """What only one module needs belongs beside it; and beside the package's own `__init__`, that is at the top."""
    for_users = {"everturn.guardrails", "everturn.temporal.sandbox_imports", "everturn.workflow"}
    apart = {
        "everturn.text.log_lines"
    }  # of logs.py, which workflow code imports, and which may not look at the environment
    files = (
        {
            name
            for name, path in MODULES.items()
            if path.stem not in FACES and (path.parent == PACKAGE or path.parent.name in SHARED)
        }
        - for_users
        - apart
    )
    importers: dict[str, set[str]] = {name: set() for name in files}
    for module in MODULES:
        for found in imports_of(module):
            if found.name in files - {module}:
                importers[found.name].add(module)
    assert {name: found for name, found in importers.items() if len(found) < 2} == {}


def test_the_top_can_be_taken_in_at_a_glance() -> None:
    """It had 67 modules once: what belongs together has a folder."""
    assert len([name for name in ORDER if (PACKAGE / f"{name}.py").exists()]) <= 32


def test_no_class_name_has_two_meanings() -> None:
    """Each protocol has its Assembler; Stalled is what waiters get as an error, and watchers as an event."""
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    twice = {name: found for name, found in homes.items() if len(found) > 1}
    assert sorted(twice) == ["Assembler", "Stalled"], twice


A_BOUND = re.compile(r"(MAX|MOST|MIN|LEAST)(_[A-Z0-9_]+)?|[A-Z][A-Z0-9_]*_(BYTES|CHARS|TOKENS|LINES)")
"""How much of something there may be, in public. How long something waits is no such bound: LOOK_SECONDS and
RETRY_SECONDS are a module's own rhythm, and nobody looks for them elsewhere."""


def test_no_bound_has_two_values() -> None:
    """MAX_NAME_CHARS was four numbers once. Name each by what it bounds: MAX_TOOL_NAME_CHARS."""
    values: dict[str, dict[str, object]] = {}
    for module in MODULES:
        for node in _run_as_it_loads(tree_of(module)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and A_BOUND.fullmatch(node.id):
                values.setdefault(node.id, {})[module] = getattr(import_module(module), node.id)
    assert len(values) > 100
    assert {name: found for name, found in values.items() if len(set(map(repr, found.values()))) > 1} == {}


LONG_FILES: dict[str, str] = {}
"""Files of more than 600 lines, each with its reason. A file is one noun; nothing is split to fit a number."""


def test_a_file_of_over_600_lines_has_its_reason() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES.values()}
    assert {path for path, lines in lengths.items() if lines > 600} == set(LONG_FILES), lengths
