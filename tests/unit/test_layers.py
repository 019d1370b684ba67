"""DESIGN.md's arrows: who imports whom, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "everturn"


@dataclass(frozen=True)
class Rule:
    """What the files of a room leave alone."""

    room: str
    """A module, or a package with all that is in it."""
    never: str
    """Not imported anywhere in its files, inside functions included, nor by what they import at the top."""
    not_directly: str = ""
    """Not imported anywhere in its files; what they import may."""


EVERYTHING = (
    "agent client cli conversation devserver hosting logs models names payloads records results schemas serving"
)
EVERYTHING += " settings testing toolfiles tools errors activities providers workflows formats outputs prices"


def everything_but(*kept: str) -> str:
    return " ".join(name for name in EVERYTHING.split() if name not in kept)


RULES = [
    # The bottom: values and words.
    Rule("names", never=f"{everything_but()} pydantic temporalio httpx"),
    Rule("errors", never=f"{everything_but()} pydantic temporalio httpx"),
    Rule("records", never=f"{everything_but()} temporalio httpx"),
    Rule("models", never=f"{everything_but('errors', 'records')} temporalio httpx"),
    # What users write with: usable without Temporal and without a provider.
    *(
        Rule(room, never="temporalio httpx providers workflows activities hosting client cli")
        for room in ("tools", "agent", "schemas", "results", "toolfiles")
    ),
    # HTTP to model APIs, and nothing else.
    Rule("providers", never="temporalio workflows activities hosting client cli"),
    # Deterministic: facts come in by records, work goes out by names.
    Rule(
        "workflows",
        never="activities providers tools agent toolfiles hosting client cli devserver httpx",
        not_directly="os random time socket threading subprocess secrets uuid pathlib logging",
    ),
    # A client needs no worker's code.
    Rule("client", never="workflows activities providers hosting"),
    Rule("activities", never="workflows hosting client cli"),
    Rule("hosting", never="cli"),
    # Beside the CLI, on top of the client.
    Rule("web", never="workflows activities providers hosting cli devserver"),
]


@dataclass(frozen=True)
class Import:
    name: str
    """`everturn.x` is just `x`; of everything else, the first name."""
    path: Path
    line: int
    at_top: bool


def imports_of(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    at_top = {id(statement) for statement in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name, as everywhere else"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            first, _, rest = module.partition(".")
            name = (rest.partition(".")[0] or "everturn") if first == "everturn" else first
            yield Import(name, path, node.lineno, at_top=id(node) in at_top)


def files_of(room: str) -> list[Path]:
    if (PACKAGE / room).is_dir():
        return sorted((PACKAGE / room).rglob("*.py"))
    return [path for path in [PACKAGE / f"{room}.py"] if path.exists()]


def reached_from(room: str) -> Iterator[tuple[Import, bool]]:
    """Each import of the room's files, and what those import at their tops in turn; and whether it is its own."""
    seen = {room}
    todo = [(path, True) for path in files_of(room)]
    while todo:
        path, own = todo.pop()
        for found in imports_of(path):
            if own or found.at_top:
                yield found, own
                if found.at_top and found.name not in seen:
                    seen.add(found.name)
                    todo += [(file, False) for file in files_of(found.name)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.room)
def test_arrows_point_one_way(rule: Rule) -> None:
    never, not_directly = set(rule.never.split()) - {rule.room}, set(rule.not_directly.split())
    wrong = [
        f"{found.path.relative_to(PACKAGE.parent)}:{found.line} imports {found.name}"
        for found, own in reached_from(rule.room)
        if found.name in never or (own and found.name in not_directly)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_rule_is_about_something() -> None:
    assert [rule.room for rule in RULES if not files_of(rule.room)] == []


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {str(path): lines for path, lines in lengths.items() if lines > 400} == {}
