"""Where a test asserts how long something took at most."""

from __future__ import annotations

import ast
from collections.abc import Iterator

CLOCKS = {"monotonic", "monotonic_ns", "now", "perf_counter", "perf_counter_ns", "process_time", "time", "time_ns"}


def asserted_times(tree: ast.Module) -> Iterator[ast.Compare]:
    """Comparisons in assertions whose lesser side has to do with a clock. `took >= 1` is no such one: however busy the
    machine is, it holds."""
    if not any(map(_reads_a_clock, ast.walk(tree))):
        return  # as in most files
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for part in tree.body:
        nodes = list(ast.walk(part))
        asserted = [node for node in nodes if isinstance(node, ast.Assert)]
        compared = [node for one in asserted for node in ast.walk(one.test) if isinstance(node, ast.Compare)]
        times = _times([*tree.body, *functions, *nodes]) if compared else set()
        yield from (one for one in compared if any(_is_a_time(side, times) for side in _lesser(one)))


def _lesser(compared: ast.Compare) -> Iterator[ast.expr]:
    sides = [compared.left, *compared.comparators]
    for left, sign, right in zip(sides, compared.ops, sides[1:], strict=False):
        if isinstance(sign, ast.Lt | ast.LtE):
            yield left
        elif isinstance(sign, ast.Gt | ast.GtE):
            yield right


def _times(nodes: list[ast.AST]) -> set[str]:
    """The names of what has to do with a clock: `took = time.monotonic() - began`; `took()`, of a function that returns
    such a thing."""
    found: set[str] = set()
    while new := {name for node in nodes for name in _given_a_time(node, found)} - found:
        found |= new
    return found


def _given_a_time(node: ast.AST, times: set[str]) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets, value=value) if _is_a_time(value, times):
            for target in targets:
                yield from map(ast.unparse, target.elts if isinstance(target, ast.Tuple) else [target])
        case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_a_time(value, times):
            yield ast.unparse(target)
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            if _is_a_time(value, times):
                yield ast.unparse(target)
        case ast.Call(func=ast.Attribute(value=kept, attr="append" | "add"), args=[value]) if _is_a_time(value, times):
            yield ast.unparse(kept)
        case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
            returned = (one.value for part in body for one in ast.walk(part) if isinstance(one, ast.Return))
            if any(value is not None and _is_a_time(value, times) for value in returned):
                yield name


def _is_a_time(value: ast.expr, times: set[str]) -> bool:
    return any(_reads_a_clock(node) or _is_one_of(node, times) for node in ast.walk(value))


def _is_one_of(node: ast.AST, times: set[str]) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in times


def _reads_a_clock(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name in CLOCKS
    return False
