"""Which tests are run by `make changed`: `python -m tests.changed COMMIT` prints the files, without a commit those of
what is not committed yet."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from tests.support.source import MODULES, WORKFLOWS, reached

ROOT = Path(__file__).parents[1]

MOST_OF_A_MODULE = 8
"""Test files of one changed module: those that import the least beside it say the most about it."""

OF_WORKFLOWS = ("tests/replay/test_histories.py", "tests/unit/test_determinism.py")
"""What is run if a workflow can reach what changed."""

ALWAYS = ("tests/unit/test_layers.py",)


def changed_since(commit: str) -> list[str]:
    """Paths of files that are there, new ones included."""
    commands = (["git", "diff", "--name-only", commit], ["git", "ls-files", "--others", "--exclude-standard"])
    done = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True) for command in commands]
    return [path for one in done for path in one.stdout.splitlines() if (ROOT / path).exists()]


def files_for(changed: Collection[str]) -> list[str]:
    """The test files of changed paths, from the repository's root; none if no Python of ours changed."""
    modules = {name for name, path in MODULES.items() if str(path.relative_to(ROOT)) in changed}
    imports = imports_of_tests()
    tests = {path for path in changed if path in imports}
    for module in modules:
        package, _, stem = module.rpartition(".")
        of_its_name = f"test_{stem}", f"test_{package.rpartition('.')[2]}_{stem}"
        tests |= {path for path in imports if Path(path).name.startswith(of_its_name)}
        importers = [path for path, names in imports.items() if module in names]
        importers = importers or [path for path, names in imports.items() if package in names]
        tests |= set(sorted(importers, key=lambda path: len(imports[path]))[:MOST_OF_A_MODULE])
    if modules & set(reached(WORKFLOWS)):
        tests |= set(OF_WORKFLOWS)
    return sorted(tests | set(ALWAYS)) if tests or modules else []


@cache
def imports_of_tests() -> dict[str, set[str]]:
    """Our modules that each test file imports itself."""
    return {
        str(file.relative_to(ROOT)): set(imported_modules(file.read_text()))
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
    }


def imported_modules(source: str) -> Iterator[str]:
    """Our modules that a file imports itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else str(node.module) for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


if __name__ == "__main__":
    files = files_for(changed_since(*sys.argv[1:] or ["HEAD"]))
    if not files:
        sys.exit("Nothing that has tests of its own has changed. Since another commit: make changed SINCE=main")
    print(" ".join(files))
