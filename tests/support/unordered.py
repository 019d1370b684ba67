"""Where code takes an order from a set: it has none, and another in each process."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

SETS = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
GIVE_SETS = {"union", "intersection", "difference", "symmetric_difference"}
COMBINE = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)

TAKE_NO_ORDER = {"all", "any", "bool", "frozenset", "isinstance", "len", "max", "min", "set", "sorted"}
"""Built-in functions that say the same of a set, in whatever order they read it. Not sum(): numbers are rounded."""

TAKE_AN_ORDER = {"dict", "enumerate", "filter", "iter", "list", "map", "next", "reversed", "tuple", "zip", "deque"}
TAKE_AN_ORDER |= {"ascii", "format", "repr", "str", "sum"}
TAKE_AN_ORDER |= {"chain", "islice", "join", "extend", "extendleft", "fromkeys", "dumps", "to_json"}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def sets_by_name(trees: Iterable[ast.Module]) -> set[str]:
    """Fields (`.recorded`), functions (`handed()`) and variables of modules that are sets, by their annotation or by
    what they are given. By the name alone: what has the same name elsewhere is taken for a set as well."""
    todo = list(trees)
    return _until_no_more(set(), lambda known: (one for tree in todo for one in _shared(tree, known)))


def _until_no_more(known: set[str], more: Callable[[set[str]], Iterable[str]]) -> set[str]:
    while new := set(more(known)) - known:
        known = known | new
    return known


def _shared(tree: ast.Module, known: set[str]) -> Iterator[str]:
    for statement in tree.body:
        yield from _named(statement, known)
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            if node.returns and _is_annotated(node.returns):
                yield f"{node.name}()"
            own = _own_sets(node, known)
            yield from (name for one in ast.walk(node) for name in _named(one, own) if name.startswith("."))
        if isinstance(node, ast.ClassDef):
            yield from (f".{name}" for statement in node.body for name in _named(statement, known))


def _own_sets(function: ast.AST, known: set[str]) -> set[str]:
    """What is a set inside of a function: its own names go before those of the module."""
    nodes = list(ast.walk(function))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return _until_no_more(known - own, lambda sets: (name for node in nodes for name in _named(node, sets)))


def _named(node: ast.AST, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.AnnAssign) and _is_annotated(node.annotation):
        yield from _name(node.target)
    elif isinstance(node, ast.AnnAssign) and _holds_sets(node.annotation):
        yield from (f"{name}[]" for name in _name(node.target))
    elif isinstance(node, ast.arg) and node.annotation is not None and _holds_sets(node.annotation):
        yield f"{node.arg}[]"
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from _taken_out(node.target, node.iter, known)
    elif isinstance(node, ast.arg) and node.annotation is not None and _is_annotated(node.annotation):
        yield node.arg
    elif isinstance(node, ast.NamedExpr) and _is_set(node.value, known):
        yield from _name(node.target)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _given(target, node.value, known)


def _given(target: ast.expr, value: ast.expr, known: set[str]) -> Iterator[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _given(one, its, known)
    elif _is_set(value, known):
        yield from _name(target)


def _name(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield f".{target.attr}"


def _is_annotated(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.BinOp):
        return _is_annotated(annotation.left) or _is_annotated(annotation.right)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return _is_annotated(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:
            return False
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else None
    if isinstance(outer, ast.Name) and outer.id in {"Final", "ClassVar", "Optional"} and inner is not None:
        return _is_annotated(inner)
    return (isinstance(outer, ast.Name) and outer.id in SETS) or (
        isinstance(outer, ast.Attribute) and outer.attr in SETS
    )


def _holds_sets(annotation: ast.expr) -> bool:
    """`dict[str, set[str]]`."""
    if isinstance(annotation, ast.BinOp):
        return _holds_sets(annotation.left) or _holds_sets(annotation.right)
    if not isinstance(annotation, ast.Subscript) or _is_annotated(annotation):
        return False
    if ast.unparse(annotation.value) == "Literal":
        return False
    inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    return any(_is_annotated(one) or _holds_sets(one) for one in inner)


def _is_holder(node: ast.expr, known: set[str]) -> bool:
    return any(f"{name}[]" in known for name in _name(node))


def _taken_out(target: ast.expr, holder: ast.expr, known: set[str]) -> Iterator[str]:
    """`for name, names in by_name.items()`: the names are a set, if `by_name` holds sets."""
    if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute):
        if holder.func.attr == "items" and isinstance(target, ast.Tuple):
            target = target.elts[-1]
        elif holder.func.attr != "values":
            return
        holder = holder.func.value
    if _is_holder(holder, known):
        yield from _name(target)


def _is_set(node: ast.expr, known: set[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in {"set", "frozenset"} or f"{name}()" in known
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            if attr in {"get", "pop", "setdefault"} and _is_holder(value, known):
                return True
            return f"{attr}()" in known or (attr in {*GIVE_SETS, "copy"} and _is_set(value, known))
        case ast.Subscript(value=value):
            return _is_holder(value, known)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, COMBINE):
            return any(_is_set(side, known) or _is_view(side) for side in (left, right))
        case ast.IfExp(body=body, orelse=orelse):
            return _is_set(body, known) or _is_set(orelse, known)
        case ast.BoolOp(values=values):
            return any(_is_set(value, known) for value in values)
        case ast.NamedExpr(value=value):
            return _is_set(value, known)
        case ast.Name(id=name):
            return name in known
        case ast.Attribute(attr=attr):
            return f".{attr}" in known
    return False


def _is_view(node: ast.expr) -> bool:
    """A dictionary's keys or items: in its order, until they are combined."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"keys", "items"}


def orders_taken_from_sets(tree: ast.Module, shared: set[str]) -> Iterator[tuple[int, str]]:
    """Line and code of each loop, list and call that reads a set from one end to the other, and of each pop()."""
    yield from _in_scope(tree, shared)


def _in_scope(scope: ast.AST, known: set[str]) -> Iterator[tuple[int, str]]:
    nodes = list(_without_functions(scope))
    harmless = {
        id(argument)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TAKE_NO_ORDER
        # Of two that have the same key, the first is taken.
        if not any(keyword.arg == "key" for keyword in node.keywords)
        for argument in node.args
    }
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            yield from _in_scope(node, _own_sets(node, known))
        for read in _read_in_order(node, harmless):
            if _is_set(read, known):
                yield read.lineno, ast.unparse(read)


def _without_functions(scope: ast.AST) -> Iterator[ast.AST]:
    """All in it, and the functions in it, but not what is in those."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            todo += ast.iter_child_nodes(node)


def _read_in_order(node: ast.AST, harmless: set[int]) -> Iterator[ast.expr]:
    match node:
        case ast.For(iter=read) | ast.AsyncFor(iter=read):
            yield read
        case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops) | ast.DictComp(generators=loops):
            # In any(...), sorted(...) and their like, the order does not matter.
            if id(node) not in harmless:
                yield from (loop.iter for loop in loops)
        case ast.Starred(value=read) | ast.YieldFrom(value=read):
            if id(node) not in harmless:
                yield read
        case ast.Call(func=ast.Name(id="sorted" | "min" | "max"), args=[read, *_], keywords=[_, *_] as options):
            if any(option.arg == "key" for option in options):
                yield read
        case ast.FormattedValue(value=read) | ast.BinOp(left=ast.Constant(), op=ast.Mod(), right=read):
            yield read
        case ast.Call(func=ast.Name(id=name), args=given) if name in TAKE_AN_ORDER:
            if id(node) not in harmless:
                yield from given
        case ast.Call(func=ast.Attribute(attr=name), args=given) if name in TAKE_AN_ORDER:
            yield from given
        case ast.Call(func=ast.Attribute(value=read, attr="pop"), args=[], keywords=[]):
            yield read
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=read):
            yield read
