"""The code speaks everyone's words: what the syntax tree of `everturn/` can count of that may only fall.

The words are in the glossary of docs/architecture.md. If you come below a bound by enough, lower it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.source import MODULES, tree_of

RIDDLES = frozenset(
    ["one", "said", "told", "why", "found", "made", "asked", "taken", "shown", "left", "whose", "at", "of", "by"]
)
"""What a value with such a name is has to be decoded from its type."""

VAGUE = frozenset(("item", "value", "data", "info", "x"))

LONE = frozenset(
    [
        "above",
        "after",
        "again",
        "alike",
        "alone",
        "anew",
        "another",
        "apart",
        "around",
        "away",
        "bare",
        "before",
        "below",
        "beside",
        "besides",
        "beyond",
        "both",
        "dead",
        "deep",
        "due",
        "earlier",
        "early",
        "elsewhere",
        "everywhere",
        "exact",
        "first",
        "fresh",
        "full",
        "further",
        "gone",
        "held",
        "here",
        "idle",
        "inside",
        "instead",
        "lacking",
        "large",
        "last",
        "late",
        "later",
        "latest",
        "least",
        "left",
        "lone",
        "long",
        "longest",
        "lost",
        "meanwhile",
        "mine",
        "more",
        "most",
        "near",
        "new",
        "odd",
        "old",
        "oldest",
        "once",
        "other",
        "others",
        "otherwise",
        "ours",
        "outside",
        "own",
        "plain",
        "rest",
        "right",
        "same",
        "second",
        "short",
        "shorter",
        "silent",
        "small",
        "soon",
        "strange",
        "stuck",
        "theirs",
        "there",
        "together",
        "twice",
        "unseen",
        "untold",
        "whole",
        "wrong",
    ]
)
"""Adjectives and adverbs: what is before, own or whole has to be looked up where it is bound. Give them a noun."""

BOUNDS = {"riddles": 0.95, "vague": 8.1, "lone adjectives": 9.7, "pairs": 0.1, "conditional expressions": 10.2}
"""Per 1,000 lines."""

MOST_FUNCTIONS_OF_ONE_WORD = 0.15

NO_NOUN = re.compile(r"^_?[A-Z][a-z]*(?:ed|ing|en|own|ent|ept|old|aid|ound|ade|egun)$")
"""A class that a participle names alone."""

NOUNS = frozenset(
    [
        "Agent",
        "Beginning",
        "Belonging",
        "Client",
        "_Client",
        "Document",
        "Event",
        "_Event",
        "Finding",
        "Judgement",
        "Pairing",
        "Setting",
        "Spending",
        "Thinking",
        "Deployment",
        "_Environment",
        "Hosting",
        "Tracing",
        "Screen",
        "Inbound",
        "Outbound",
        "_Outbound",
    ]
)
"""What looks like one, and is a noun."""

CALLED_SO_BY_USERS = frozenset(
    [
        "Collected",
        "Compacted",
        "Decided",
        "Diverged",
        "Ended",
        "Erased",
        "Evaluated",
        "Expected",
        "Exported",
        "Recorded",
        "Refused",
        "Replayed",
        "Replied",
        "Shown",
        "Stalled",
        "Steered",
        "Switched",
    ]
)
"""Errors, events, and what functions of the public API return."""


def names_bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg


def count(tree: ast.AST) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        for name in names_bound(node):
            counts["riddles"] += name in RIDDLES
            counts["vague"] += name in VAGUE
            counts["lone adjectives"] += name in LONE
        match node:
            case ast.Assign(targets=targets, value=ast.Tuple()):
                counts["pairs"] += any(isinstance(target, ast.Tuple) for target in targets)
            case ast.IfExp():
                counts["conditional expressions"] += 1
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("__"):
                counts["functions"] += 1
                counts["functions of one word"] += "_" not in name.strip("_")
            case _:
                pass
    return counts


@cache
def counted() -> Counter[str]:
    total: Counter[str] = Counter()
    for module, path in MODULES.items():
        total += count(tree_of(module))
        total["lines"] += len(path.read_text().splitlines())
    return total


@pytest.mark.parametrize("kind", BOUNDS)
def test_there_are_no_more_of_it_than_there_were(kind: str) -> None:
    rate = counted()[kind] / counted()["lines"] * 1000
    assert rate <= BOUNDS[kind], f"{rate:.2f} {kind} per 1,000 lines: {BOUNDS[kind]} are allowed"


def test_functions_say_what_they_do_to_what() -> None:
    share = counted()["functions of one word"] / counted()["functions"]
    assert share <= MOST_FUNCTIONS_OF_ONE_WORD, f"{share:.1%} of the functions have one word"


def test_classes_are_called_after_what_they_are() -> None:
    classes = {node.name for module in MODULES for node in ast.walk(tree_of(module)) if isinstance(node, ast.ClassDef)}
    assert {name for name in classes if NO_NOUN.match(name)} - NOUNS - CALLED_SO_BY_USERS == set()
    assert classes >= CALLED_SO_BY_USERS


def test_each_kind_is_counted() -> None:
    counts = count(
        ast.parse(
            "def take(one, *, value):\n    found, other = 1, 2\n    for said in []: pass\n    return 1 if one else 2\n"
            "async def read_all(): a, b = two()\n"
            "class A:\n    def __init__(self): pass\n"
        )
    )
    assert counts == Counter(
        {
            "riddles": 3,
            "vague": 1,
            "lone adjectives": 1,
            "pairs": 1,
            "conditional expressions": 1,
            "functions": 2,
            "functions of one word": 1,
        }
    )
