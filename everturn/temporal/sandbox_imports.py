"""everturn in a user's own workflow file, which Temporal's sandbox loads anew for each workflow.

Agents, tools, clients and workers are defined there, and run elsewhere. So the sandbox gets the modules that the
process has, and no copies: those would bring all that ours import, and some of that the sandbox refuses. Also where the
file passes `everturn` through, as Temporal advises, and then imports a module of it plainly.

Installed with the package, whoever imports it first: so this module imports nothing of Temporal's.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = f"{__name__.partition('.')[0]}."


class _EverturnFinder:
    """Finds everturn's modules for the sandbox; for everybody else it has none."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if not name.startswith(_PACKAGE) or (workflow := _workflow()) is None:
            return None
        sandboxed = workflow.unsafe.in_sandbox() and not workflow.unsafe.is_imports_passed_through()
        return ModuleSpec(name, _PassedThrough(name)) if sandboxed else None


class _PassedThrough(Loader):
    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, _: ModuleSpec) -> None:
        with _workflow().unsafe.imports_passed_through():
            __import__(self._name)
        self._module = sys.modules[self._name]

    def exec_module(self, _: ModuleType) -> None:
        sys.modules[self._name] = self._module  # in place of the empty one that was made for it


def _workflow() -> Any:
    """temporalio.workflow; None if nobody has imported it, and so nothing is sandboxed."""
    return sys.modules.get("temporalio.workflow")


def pass_through() -> None:
    """From now on, a sandbox that imports a module of everturn gets the process's."""
    if not any(isinstance(finder, _EverturnFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _EverturnFinder())
