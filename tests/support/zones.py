"""Where code leaves the time zone to the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

ASKED = {"fromtimestamp": 1, "astimezone": 0}
"""Methods that take the machine's zone if they are given none: which argument it is."""

DATETIME = {"datetime", "datetime.datetime", "dt.datetime"}
TZINFO = 7
"""Which of its arguments."""


def without_a_zone(tree: ast.AST) -> Iterator[tuple[int, str]]:
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        call = called.get(id(node))
        if isinstance(node, ast.Attribute) and node.attr in ASKED:
            # Given to others, nobody knows what it is called with.
            if call is None or not _given(call, ASKED[node.attr], ("tz",)):
                yield node.lineno, ast.unparse(call or node)
        elif call is not None and ast.unparse(node) in DATETIME and not _given(call, TZINFO, ("tzinfo",)):
            yield call.lineno, ast.unparse(call)


def _given(call: ast.Call, place: int, names: tuple[str, ...]) -> bool:
    found = [one.value for one in call.keywords if one.arg in names] + call.args[place : place + 1]
    return any(not (isinstance(one, ast.Constant) and one.value is None) for one in found)
