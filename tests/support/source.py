"""The package's source, as far as workflow code reaches: what each function names, and what it imports."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "everturn"

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}

HOUSES: dict[str, dict[str, str]] = {
    "batching": dict.fromkeys(("collector", "waits"), "workflows")
    | dict.fromkeys(("keys", "sending", "turns"), "activities"),
    "budgets": {"by_history": "history", "client": "client", "workflow": "workflows"}
    | dict.fromkeys(("calls", "interceptor", "moves", "spending"), "activities"),
    "evaluations": {"client": "client", "left_off": "worker", "reports": "worker", "worker": "worker"}
    | dict.fromkeys(("collector", "workflow"), "workflows")
    | dict.fromkeys(("answer_search", "judge_activity"), "activities"),
    "heartbeats": {"profile_interceptor": "worker", "throttle": "worker"}
    | dict.fromkeys(("beats_outside_conversations", "beats_through_core", "blocked_loop"), "activities")
    | dict.fromkeys(("heartbeat", "task_intake", "worker_heartbeats"), "activities"),
    "live": {"live_activities": "client", "live_addresses": "worker"}
    | dict.fromkeys(("followers", "heartbeat_text", "lane_writer"), "activities"),
    "lost_workers": dict.fromkeys(("free_sticky_queue", "journal", "poison_calls"), "activities"),
    "providers": {"rate_limits.turn_waits": "activities"}
    | dict.fromkeys(("rate_limits.limit_watch", "rate_limits.worker_count"), "worker"),
    "reviews": {"reviewer": "tools", "verdicts": "activities"},
    "subagents": {"workflow": "workflows"} | dict.fromkeys(("at_work", "events", "followed"), "client"),
    "webhooks": {
        "conversation_events": "workflows",
        "delivery_attempts": "activities",
        "delivery_workflow": "workflows",
    },
}
"""The folders of features that reach through all layers, and which of their modules are part of which layer."""


def room_of(module: str) -> str:
    """The module or folder of `everturn/` that a module of ours is in, or is part of by HOUSES; of everything else, its
    name."""
    package, _, inside = module.partition(".")
    room, _, part = inside.partition(".")
    return HOUSES.get(room, {}).get(part, room) or package


def modules_of(room: str) -> list[str]:
    return [module for module in MODULES if room_of(module) == room]


WORKFLOWS = tuple(modules_of("workflows"))
"""The modules that are deterministic."""


@dataclass(frozen=True)
class Use:
    """Where a function names something that is not of its module."""

    module: str
    function: str
    """Its qualified name; empty at the module's top."""
    what: str
    """Whole: `datetime.datetime.now`, `builtins.open`, `everturn.records.Text`. Of what has no name itself, the
    last one: `*.now` of `type(at).now`."""
    node: ast.AST = field(compare=False, repr=False)
    line: int
    as_value: bool = False
    """It is neither called nor asked for what is in it, but given to others: `clock = datetime`."""

    @property
    def place(self) -> str:
        return f"{self.module}:{self.function}"

    def __str__(self) -> str:
        return f"{self.module}, line {self.line}, in {self.function or 'the module itself'}: {self.what}"


@dataclass
class Source:
    """One module's names: what it uses, what it imports, and in which function."""

    module: str
    tree: ast.Module
    uses: list[Use] = field(default_factory=list)
    imports: list[Use] = field(default_factory=list)
    """What is imported, whole; not for types only."""
    attributes: list[Use] = field(default_factory=list)
    """Those of whatever it may be: `*.now`."""


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@cache
def source_of(module: str) -> Source:
    return _read(module, tree_of(module))


def read(module: str, text: str) -> Source:
    return _read(module, ast.parse(text))


def _read(module: str, tree: ast.Module) -> Source:
    source = Source(module, tree)
    reader = _Reader(source)
    reader.visit(source.tree)
    return source


def imported_as(module: str, name: str) -> list[str]:
    """What one of our modules means by a name that it imports, whole."""
    return sorted(_scope_of(module).get(name, {OWN}) - {OWN})


def reached(roots: Collection[str], *, not_called: Collection[str] = ()) -> list[str]:
    """The modules that these import, and that those import in turn, inside functions too; but not what is imported by
    functions that are never called (`module:function`)."""
    found, todo = set(roots), list(roots)
    while todo:
        for one in source_of(todo.pop()).imports:
            if one.place in not_called:
                continue
            for module in _modules_run_by(one.what):
                if module not in found:
                    found.add(module)
                    todo.append(module)
    return sorted(found)


def _modules_run_by(imported: str) -> Iterator[str]:
    """A module, and the packages that it is in: importing it runs them, too."""
    parts = imported.split(".")
    yield from (name for count in range(1, len(parts) + 1) if (name := ".".join(parts[:count])) in MODULES)


def _names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """What an import binds, and what that is."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            assert alias.name != "*", f"line {node.lineno}: name what is imported"
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            first = alias.name.partition(".")[0]
            yield first, first


Scope = dict[str, set[str]]
"""What each of its names may mean: an imported name, whole, or OWN."""

OWN = ""


@cache
def _scope_of(module: str) -> Scope:
    """Of one of our modules: each use of what it imports is looked up there."""
    return _scope(tree_of(module))


def is_for_types(node: ast.If) -> bool:
    """`if TYPE_CHECKING:`"""
    match node.test:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(ast.Name("typing"), "TYPE_CHECKING"):
            return True
    return False


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class _Reader(ast.NodeVisitor):
    def __init__(self, source: Source) -> None:
        self._source = source
        self._inside: list[str] = []
        self._scopes = [_scope(source.tree)]
        self._not_values: set[int] = set()

    def _use(self, what: str, node: ast.AST) -> Use:
        as_value = id(node) not in self._not_values
        return Use(self._source.module, ".".join(self._inside), what, node, getattr(node, "lineno", 0), as_value)

    def visit(self, node: ast.AST) -> None:
        if type(node) not in _WITHOUT_PARTS:
            super().visit(node)

    def visit_If(self, node: ast.If) -> None:
        if is_for_types(node):
            for statement in node.orelse:  # the other part never runs
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self._source.imports += [self._use(alias.name, node) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._source.imports += [self._use(what, node) for _, what in _names(node)]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._inside.append(node.name)
        for statement in node.body:
            self.visit(statement)
            if isinstance(statement, ast.AnnAssign):
                self._read_by_pydantic(statement.annotation)
            if isinstance(statement, ast.Import | ast.ImportFrom):  # `self.time` is `time`
                self._source.uses += [self._use(what, statement) for _, what in _names(statement)]
        self._inside.pop()

    def _read_by_pydantic(self, annotation: ast.expr) -> None:
        """The annotations of a record's fields run: `PastDatetime` asks for the time, each time one is read."""
        parts = list(ast.walk(annotation))
        self._not_values |= set(map(id, parts))
        self.visit(annotation)
        texts = {id(text) for part in parts if _holds_texts(part) for text in ast.walk(part)}
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in texts:
                self._read_by_pydantic(_placed(ast.parse(part.value, mode="eval").body, part))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # Its defaults run where it is defined; its annotations never do.
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        self._inside.append(node.name)
        for part in node.decorator_list:
            self._not_values.add(id(part))
            self.visit(part)
        self._within(node, node.body)
        self._inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        self._within(node, [node.body])

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)  # runs outside of it
        rest = [part for loop in node.generators for part in (loop.target, *loop.ifs)]
        rest += [loop.iter for loop in node.generators[1:]]
        self._within(node, [*rest, *([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _within(self, scope: ast.AST, parts: Iterable[ast.AST]) -> None:
        self._scopes.append(_scope(scope))
        for part in parts:
            self.visit(part)
        self._scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self._not_values.add(id(node.func))
        if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
            self._not_values |= {id(part) for asked in node.args[1:] for part in ast.walk(asked)}
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
            self._asked_by_name(*node.args[:2])
        self.generic_visit(node)

    def _asked_by_name(self, value: ast.expr, name: ast.expr) -> None:
        """`getattr(value, name)` is `value.name`."""
        written = isinstance(name, ast.Constant) and isinstance(name.value, str)
        if written or self._whole(value):  # who knows what it gives of a module?
            self.visit(_placed(ast.Attribute(value, str(name.value) if written else "*", ast.Load()), value))  # type: ignore[attr-defined]

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._source.attributes.append(self._use(f"*.{node.attr}", node))
        if whole := self._whole(node):
            self._source.uses += [self._use(what, node) for what in whole]
            base = node.value
            while isinstance(base, ast.Attribute):
                self._source.attributes.append(self._use(f"*.{base.attr}", base))
                base = base.value
        else:
            self.visit(node.value)

    def _whole(self, node: ast.expr) -> list[str]:
        """All that a name, or a name's attribute, may mean."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path, node = [node.attr, *path], node.value
        if not isinstance(node, ast.Name):
            return []
        return [".".join([what, *path]) for what in self._meanings(node.id)]

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._source.uses += [self._use(what, node) for what in self._meanings(node.id)]

    def _meanings(self, name: str) -> list[str]:
        """None, if a function has it of its own."""
        of_module, *of_functions = self._scopes
        for scope in reversed(of_functions):
            if name in scope:
                return sorted(scope[name] - {OWN})
        if name in of_module:
            return sorted(what if what != OWN else f"{self._source.module}.{name}" for what in of_module[name])
        if name.startswith("__") and name.endswith("__"):
            return [f"builtins.{name}"]
        return [f"builtins.{name}"] if hasattr(builtins, name) else []


def _holds_texts(part: ast.AST) -> bool:
    """Texts that are no types: `Literal["a b"]`, `Field(pattern="a b")`."""
    literal = isinstance(part, ast.Subscript) and ast.unparse(part.value) in ("Literal", "typing.Literal")
    return literal or isinstance(part, ast.Call)


def _placed(made: ast.expr, like: ast.expr) -> ast.expr:
    return ast.copy_location(made, like)


_WITHOUT_PARTS = {ast.Constant, ast.Load, ast.Store, ast.Del, ast.Pass, *ast.operator.__subclasses__()}
_WITHOUT_PARTS |= {*ast.cmpop.__subclasses__(), *ast.unaryop.__subclasses__(), *ast.boolop.__subclasses__()}
"""Half of a tree: passed over, since a visitor would take most of its time for them."""


def _scope(of: ast.AST) -> Scope:
    """The names that a module, a function or a comprehension gives a meaning to. What it imports in one place and sets
    in another (`try: import time`, `except ImportError: time = None`) has both."""
    scope: Scope = {}
    todo = list(ast.iter_child_nodes(of))
    if isinstance(of, (*FUNCTIONS, ast.Lambda)):
        scope |= {one.arg: {OWN} for one in ast.walk(of.args) if isinstance(one, ast.arg)}
        todo = list(of.body) if isinstance(of, FUNCTIONS) else [of.body]
    elif isinstance(of, COMPREHENSIONS):
        targets = (name for loop in of.generators for name in ast.walk(loop.target) if isinstance(name, ast.Name))
        return {name.id: {OWN} for name in targets}
    while todo:
        node = todo.pop()
        if type(node) in _WITHOUT_PARTS:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, what in _names(node):
                scope.setdefault(name, set()).add(what)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            scope.setdefault(node.name, set()).add(OWN)
        elif isinstance(node, ast.If) and is_for_types(node):
            todo += node.orelse
            types = (name for one in node.body if isinstance(one, ast.Import | ast.ImportFrom) for name in _names(one))
            for name, what in types:
                scope.setdefault(name, set()).add(what)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            scope.setdefault(node.id, set()).add(OWN)
        elif isinstance(node, ast.NamedExpr):  # also in a comprehension: it is of the function
            todo += [node.target, node.value]
        elif isinstance(node, COMPREHENSIONS):
            todo += [one for one in ast.walk(node) if isinstance(one, ast.NamedExpr)]
        elif not isinstance(node, ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return scope
