"""Code never decides by prose: what code tells apart has a value of its own, read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source import MODULES, tree_of

PACKAGE = Path(__file__).parents[2] / "everturn"

PROSE = {"why", "cause", "cure", "reason", "message", "refused", "problem", "note", "detail", "explanation", "text"}
"""What is written for people goes by these names."""

ONLY_SHOWN = {"summary", "in_words"}
"""And by these: nothing is cut off from them, nor are they compared, whatever with."""

CUTTING = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "find",
    "index",
    "count",
}
APART = {"partition", "rpartition", "split", "splitlines", "rsplit"}
MATCHING = {"match", "search", "fullmatch", "findall"}

WORDS = re.compile(r"[A-Za-z]{3}")

ONLY_IN_WORDS = {
    "providers/failures.py": "providers say some things in words alone; where they give codes, those go first",
    "temporal/temporal_errors.py": "so does Temporal's server: each sentence is held against the real one",
    "client/stuck.py": "so does its search attribute of problems: a list of `name=value`",
    "providers/json_values.py": "so does pydantic_core, of JSON that is nested too deeply",
    "providers/base.py": "so do tools: what begins with 'Error' needs no second one",
    "cli/demo/checks.py": "the demo asks whether the model's answer says the right sum",
}
"""Files that read sentences of others, who give nothing else."""


def is_prose(value: ast.expr) -> bool:
    """Whether an expression is one of PROSE, or what an error says, perhaps in lower case."""
    match value:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in PROSE
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in PROSE | {"error", "failure", "exception"}
        case ast.Call(func=ast.Attribute(value=inner)) | ast.BoolOp(values=[inner, *_]) | ast.Subscript(value=inner):
            return is_prose(inner)
        case _:
            return False


def is_words(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=str(text)):
            return bool(WORDS.search(text))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.Tuple(elts=several):
            return any(map(is_words, several))
        case _:
            return False


def is_only_shown(value: ast.expr) -> bool:
    return isinstance(value, ast.Name | ast.Attribute) and ast.unparse(value).rpartition(".")[2] in ONLY_SHOWN


def decisions_by_prose(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="message"), attr=attr)) if attr in APART:
                is_shown = True  # what an error says, taken apart
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[given, *_]) if attr in CUTTING:
                is_shown = is_only_shown(value) or (is_prose(value) and is_words(given))
            case ast.Call(func=ast.Attribute(attr=attr), args=arguments) if attr in MATCHING:
                is_shown = any(is_prose(argument) and not isinstance(argument, ast.Name) for argument in arguments)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
                is_shown = is_words(left) and is_prose(right)
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                sentence = isinstance(right, ast.Constant) and " " in str(right.value)
                is_shown = is_only_shown(left) or is_only_shown(right) or (sentence and is_prose(left))
            case _:
                is_shown = False
        if is_shown:
            yield node.lineno  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code",
    [
        'if waits.why.startswith("outcome unknown"): ...',
        "doubtful = waits.why.startswith(OUTCOME_UNKNOWN)",
        'if "completed" in error.message: ...',
        'if "recursion limit" in str(error).lower(): ...',
        'if cause == "its worker was lost": ...',
        'told = (why or "").removeprefix("it has not run")',
        "if LOST.search(failure.message): ...",
        'variable = error.message.partition(": ")[2]',
        'if text.lower().startswith(("error:", "error ")): ...',
        "if summary.startswith(kind): ...",
        "if told.get(one) != one.asked.in_words: ...",
    ],
)
def test_a_decision_by_prose_is_seen(code: str) -> None:
    assert list(decisions_by_prose(ast.parse(code))) == [1]


@pytest.mark.parametrize(
    "code",
    [
        'if waits.reason == "outcome_unknown": ...',
        'if name.startswith("EVERTURN_"): ...',
        "if not message.text.startswith(turn.text): ...",
        'if not text.endswith("."): ...',
        "if error.type == names.NOT_HOSTED: ...",
    ],
)
def test_a_decision_by_facts_is_none(code: str) -> None:
    assert list(decisions_by_prose(ast.parse(code))) == []


def test_nothing_is_decided_by_the_words_of_a_sentence() -> None:
    found = {
        f"{name}:{line}": name
        for module, path in MODULES.items()
        for name in [str(path.relative_to(PACKAGE))]
        for line in decisions_by_prose(tree_of(module))
    }
    assert [place for place, name in found.items() if name not in ONLY_IN_WORDS] == [], "give it a field of its own"
    assert sorted(ONLY_IN_WORDS) == sorted(set(found.values())), "those that no longer have to need no exception"


def test_no_script_decides_by_the_words_of_a_sentence() -> None:
    by_words = re.compile(
        rf"\b({'|'.join(PROSE)})\b[^;]*\.(startsWith|endsWith|includes|match|search)\(\W{{0,2}}[A-Za-z ]{{3}}"
    )
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.js"))
        for line in path.read_text().splitlines()
        if by_words.search(line)
    ]
    assert found == []
    assert by_words.search('this.doubtful = (why ?? "").startsWith("outcome unknown");')


def test_types_of_errors_are_constants_that_both_ends_share() -> None:
    """A type that is written out where it is raised, or where it is compared, can be misspelt in one of the places."""
    found = []
    for module, path in MODULES.items():
        for node in ast.walk(tree_of(module)):
            match node:
                case ast.Call(func=ast.Name(id="ApplicationError"), keywords=keywords):
                    written = [keyword.value for keyword in keywords if keyword.arg == "type"]
                case ast.Compare(
                    left=ast.Attribute(value=ast.Name(id="error") | ast.Attribute(attr="cause"), attr="type")
                ):
                    written = node.comparators
                case _:
                    written = []
            found += [f"{path.name}:{one.lineno}" for one in written if isinstance(one, ast.Constant)]
    assert found == []
