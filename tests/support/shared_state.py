"""What all conversations of a worker would have in common: what code changes of its modules and classes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from tests.support.source import FUNCTIONS, Source, Use

_CONSTANT = """
    ConfigDict ContextVar Field NewType ParamSpec RetryPolicy SearchAttributeKey.for_float SearchAttributeKey.for_int
    SearchAttributeKey.for_keyword SearchAttributeKey.for_keyword_list TypeAdapter TypeVar frozenset
    json.JSONEncoder re.compile
    str.maketrans timedelta tuple
"""
CONSTANT = _CONSTANT.split()
"""What makes values that nobody can change, or that no conversation sees another's of (ContextVar)."""

READS = {"copy", "count", "get", "index", "items", "keys", "values"}
READERS = {
    "all",
    "any",
    "bool",
    "dict",
    "enumerate",
    "filter",
    "frozenset",
    "isinstance",
    "iter",
    "join",
    "len",
    "list",
}
READERS |= {"map", "max", "min", "reversed", "set", "sorted", "sum", "tuple", "zip"}

DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)


def kept(source: Source) -> Iterator[tuple[str, ast.expr]]:
    """What a module and its classes keep that may be changed, whole: `everturn.names.SEARCHABLE`."""
    yield from _kept(source.module, source.tree.body)


def _kept(place: str, body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _kept(f"{place}.{statement.name}", statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if _may_change(statement.value):
                yield from ((f"{place}.{ast.unparse(target)}", statement.value) for target in targets)
        elif not isinstance(statement, FUNCTIONS):
            blocks = [
                statement,
                *(
                    iter_child_node
                    for iter_child_node in ast.iter_child_nodes(statement)
                    if not isinstance(iter_child_node, ast.stmt)
                ),
            ]
            inside = (iter_child_node for block in blocks for iter_child_node in ast.iter_child_nodes(block))
            yield from _kept(place, [one for one in inside if isinstance(one, ast.stmt)])


def _may_change(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=func):
            return ast.unparse(func) not in CONSTANT and not _is_constants_method(func)
        case ast.IfExp(body=one, orelse=other):
            return _may_change(one) or _may_change(other)
        case ast.BoolOp(values=values):
            return any(map(_may_change, values))
        case ast.Tuple(elts=values):
            return any(map(_may_change, values))
    return isinstance(value, DISPLAYS)


def _is_constants_method(func: ast.expr) -> bool:
    """`", ".join(names)`: of text, as written."""
    return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Constant)


def changes(source: Source, of_all: Collection[str]) -> Iterator[Use]:
    """Where functions change what is kept (`of_all`: by all modules), or may: they give it to others."""
    parents = {id(child): node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
    for use in source.uses:
        if not use.function:
            continue
        if _is_set(use.node, parents) or (_among(use.what, of_all) and not _is_read(use, of_all, parents)):
            yield use
    yield from _of_classes(source)


def _among(what: str, of_all: Collection[str]) -> bool:
    return any(what == one or what.startswith(f"{one}.") for one in of_all)


def _is_set(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    """`it = 1` in a function would be its own; `it.field = 1` and `it[0] = 1` are not."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            return True
        above = parents.get(id(node))
        inner = isinstance(above, ast.Attribute | ast.Subscript) and above.value is node
        if not inner:
            return False
        assert above is not None
        node = above
    return False


def _is_read(use: Use, of_all: Collection[str], parents: dict[int, ast.AST]) -> bool:
    rest = next(use.what.removeprefix(one) for one in of_all if _among(use.what, [one]))
    node, above = use.node, parents.get(id(use.node))
    if rest:
        return rest.removeprefix(".") in READS and isinstance(above, ast.Call) and above.func is node
    while isinstance(above, ast.Subscript) and above.value is node:
        node, above = above, parents.get(id(above))
        if isinstance(above, ast.Attribute):
            return above.attr in READS or not isinstance(parents.get(id(above)), ast.Call)
    if node is not use.node:
        return True
    match above:
        case (
            ast.Compare() | ast.For() | ast.comprehension() | ast.Starred() | ast.BoolOp() | ast.UnaryOp() | ast.BinOp()
        ):
            return True
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name in READERS
        case ast.Dict(keys=keys, values=values):
            return any(key is None and value is node for key, value in zip(keys, values, strict=True))
    return False


def _of_classes(source: Source) -> Iterator[Use]:
    """A list that all of a class have; `cls.count = 1`, `type(self).count = 1`; `global count`; a default that is kept
    from call to call."""
    for place, scope in _scopes(source.tree, ""):
        for node in _found_in(scope):
            yield Use(source.module, place, ast.unparse(node), node, node.lineno)


def _scopes(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            inner = f"{place}.{child.name}".removeprefix(".")
            yield inner, child
            yield from _scopes(child, inner)
        else:
            yield from _scopes(child, place)


def _found_in(scope: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(scope, ast.ClassDef):
        yield from (value for _, value in _kept("", scope.body) if isinstance(value, DISPLAYS))
    if not isinstance(scope, FUNCTIONS):
        return
    defaults = (*scope.args.defaults, *filter(None, scope.args.kw_defaults))
    yield from (default for default in defaults if isinstance(default, DISPLAYS))
    for node in ast.walk(scope):
        if isinstance(node, ast.Global):
            yield node
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            base = node.value
            while isinstance(base, ast.Attribute | ast.Subscript):
                base = base.value
            if ast.unparse(base) == "cls" or ast.unparse(base).startswith("type("):
                yield node
