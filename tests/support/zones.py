"""Where code leaves the time zone to the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

ASKED = {"fromtimestamp": 1, "astimezone": 0}
"""Methods that take the machine's zone if they are given none: which argument it is."""

OF_A_TIME_WITH_A_ZONE = {"timestamp", "astimezone"}
"""Methods that take the machine's zone if their own time has none."""

HAVE_A_ZONE = {
    "workflow.info().workflow_start_time": "Temporal's SDK gives it in UTC",
    "workflow.now()": "Temporal's SDK gives it in UTC",
}
"""Times of others that have one, and from where."""

DATETIME = {"datetime", "datetime.datetime", "dt.datetime"}
TZINFO = 7
"""Which of its arguments."""


def without_a_zone(tree: ast.AST) -> Iterator[tuple[int, str]]:
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        call = called.get(id(node))
        match node:
            case ast.Attribute(value=of, attr=name) if name in {*ASKED, *OF_A_TIME_WITH_A_ZONE}:
                # Given to others, nobody knows what it is called with.
                if call is None or not _is_given_one(call, name) or not _has_one(of, name):
                    yield node.lineno, ast.unparse(call or node)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]) if name in {
                *ASKED,
                *OF_A_TIME_WITH_A_ZONE,
            }:
                yield node.lineno, ast.unparse(node)
            case ast.FormattedValue(format_spec=ast.JoinedStr() as form) if re.search(r"%\w", ast.unparse(form)):
                yield node.lineno, ast.unparse(node)  # f"{at:%s}" is strftime by another name
            case ast.expr() if call is not None and ast.unparse(node) in DATETIME:
                if not _given(call, TZINFO, ("tzinfo",)):
                    yield call.lineno, ast.unparse(call)


def _is_given_one(call: ast.Call, name: str) -> bool:
    return name not in ASKED or _given(call, ASKED[name], ("tz",))


def _has_one(time: ast.expr, asked: str) -> bool:
    """If it is made right here: then it is given a zone, or found out itself."""
    if asked not in OF_A_TIME_WITH_A_ZONE or ast.unparse(time) in HAVE_A_ZONE:
        return True
    if not isinstance(time, ast.Call):
        return False
    method = time.func.attr if isinstance(time.func, ast.Attribute) else ""
    return method in ASKED or ast.unparse(time.func) in DATETIME


def _given(call: ast.Call, place: int, names: tuple[str, ...]) -> bool:
    values = [keyword.value for keyword in call.keywords if keyword.arg in names] + call.args[place : place + 1]
    return any(not (isinstance(one, ast.Constant) and one.value is None) for one in values)
