"""The package's source, as far as workflow code reaches: what each function names, and what it imports."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "everturn"

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@dataclass(frozen=True)
class Use:
    """Where a function names something that is not of its module."""

    module: str
    function: str
    """Its qualified name; empty at the module's top."""
    what: str
    """Whole: `datetime.datetime.now`, `builtins.open`, `everturn.records.Text`."""
    line: int

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


@cache
def source_of(module: str) -> Source:
    return read(module, MODULES[module].read_text())


def read(module: str, text: str) -> Source:
    source = Source(module, ast.parse(text))
    reader = _Reader(source, _imported_names(source.tree))
    reader.visit(source.tree)
    return source


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


def _imported_names(tree: ast.Module) -> dict[str, str]:
    return {
        name: what
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name, what in _names(node)
    }


class _Reader(ast.NodeVisitor):
    def __init__(self, source: Source, imported: dict[str, str]) -> None:
        self._source, self._imported = source, imported
        self._inside: list[str] = []
        self._bound = [_bound_in(source.tree)]

    def _use(self, what: str, node: ast.stmt | ast.expr) -> Use:
        return Use(self._source.module, ".".join(self._inside), what, node.lineno)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
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
        self._inside.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # Its defaults and decorators run where it is defined; its annotations never do.
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        self._inside.append(node.name)
        self._bound.append(_bound_in(node))
        for statement in node.body:
            self.visit(statement)
        self._bound.pop()
        self._inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path, base = [node.attr], node.value
        while isinstance(base, ast.Attribute):
            path, base = [base.attr, *path], base.value
        if isinstance(base, ast.Name) and (what := self._meaning(base.id)):
            self._source.uses.append(self._use(".".join([what, *path]), node))
        else:
            self.visit(base)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and (what := self._meaning(node.id)):
            self._source.uses.append(self._use(what, node))

    def _meaning(self, name: str) -> str | None:
        of_module, *of_functions = self._bound
        if any(name in bound for bound in of_functions):
            return None
        if name in of_module:
            return f"{self._source.module}.{name}"
        if name in self._imported:
            return self._imported[name]
        return f"builtins.{name}" if hasattr(builtins, name) else None


def _bound_in(scope: ast.AST) -> set[str]:
    """The names that a module or a function gives meaning to, other than by an import."""
    bound: set[str] = set()
    if isinstance(scope, FUNCTIONS):
        bound |= {one.arg for one in ast.walk(scope.args) if isinstance(one, ast.arg)}
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            bound.add(node.name)
        else:
            todo += ast.iter_child_nodes(node)
    return bound
