"""Mutants that a tool draws: small changes of the workflow's code and of the state, made by cosmic-ray's operators.

Only its operators are used, on texts: its own runs would change the work tree, one mutant after the other.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.mutants.copies import ROOT
from tests.support.source import MODULES, PACKAGE, WORKFLOWS

MUTATED = (PACKAGE / "state.py", *(MODULES[name] for name in WORKFLOWS))

INSTALL = "Drawing mutants needs cosmic-ray: `make mutants DRAWN=60` installs it."


@dataclass(frozen=True)
class Drawn:
    file: str
    """From the project's root."""
    operator: str
    occurrence: int
    line: int
    code: str
    """The whole file's."""
    before: str
    after: str
    """The line that is changed."""

    @property
    def name(self) -> str:
        return f"{self.file.removeprefix('everturn/')}:{self.line} {self.operator.removeprefix('core/')}"

    def apply(self, root: Path) -> None:
        (root / self.file).write_text(self.code)


def drawn(number: int, seed: int) -> list[Drawn]:
    """So many of all that the operators can make, by chance, and of each line one; the same ones for the same seed and
    code."""
    places = [*_places()]
    random.Random(seed).shuffle(places)
    made: list[Drawn] = []
    for place in places:
        if len(made) == number:
            break
        mutant = _made(*place)
        if mutant and all((mutant.file, mutant.line) != (one.file, one.line) for one in made):
            made.append(mutant)
    return made


def _places() -> Iterator[tuple[Path, str, int]]:
    """Every place at which an operator can change something: file, operator, and the how manieth of its places."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    for file in MUTATED:
        nodes = [*ast_nodes(get_ast_from_path(file))]
        for name in sorted(operator_names()):
            kind = get_operator(name)
            if not kind.arguments():  # the others want to be told what to change
                count = sum(1 for node in nodes for _ in kind().mutation_positions(node))
                yield from ((file, name, occurrence) for occurrence in range(count))


def _made(file: Path, operator: str, occurrence: int) -> Drawn | None:
    """None for a change that means nothing, or nothing but to a type checker, or that its operator can't make."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    before = file.read_text()
    try:
        after = mutate_code(before, get_operator(operator)(), occurrence)
    except AttributeError:  # cosmic-ray's ExceptionReplacer knows no `module.Error` among several errors
        return None
    if after is None or _meaning(after) in (None, _meaning(before)):
        return None
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    line, (old, new) = next(((n, both) for n, both in enumerate(lines, 1) if both[0] != both[1]), (0, ("", "")))
    return Drawn(str(file.relative_to(ROOT)), operator, occurrence, line, after, old.strip(), new.strip())


def _meaning(code: str) -> str | None:
    """The code without annotations, docstrings and comments, and without what only keeps programmers from a mistake:
    how arguments have to be given, and that a record is frozen. Of what there is one of only, such as None and an
    enum's member, whatever is equal is the same. None if it is no code."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    return ast.dump(_Bare().visit(tree))


class _Bare(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [*node.defaults, *filter(None, node.kw_defaults)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        same: dict[type[ast.cmpop], ast.cmpop] = {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}
        pairs = zip(node.ops, node.comparators, strict=True)
        node.ops = [same.get(type(sign), sign) if _is_single(value) else sign for sign, value in pairs]
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg == "frozen" else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        """Of an alias such as `Schedule = Callable[...]`, nothing is left at run time but its name."""
        alias = isinstance(node.value, ast.Subscript) and isinstance(node.targets[0], ast.Name)
        return None if alias and node.targets[0].id[:1].isupper() else self.generic_visit(node)  # type: ignore[attr-defined]


def _is_single(value: ast.expr) -> bool:
    """Whether there is one of it only: None, or a member of an enum."""
    is_member = isinstance(value, ast.Attribute) and value.attr.isupper()
    return is_member or (isinstance(value, ast.Constant) and value.value is None)
