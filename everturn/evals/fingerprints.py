"""Whether a candidate is the one of an earlier rerun: a digest of all that it says and does, as far as that can be
known."""

from __future__ import annotations

import builtins
import dis
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from importlib import metadata
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel

from everturn.agent import Agent
from everturn.evals.candidates import may_read
from everturn.tools.tool import Tool

KNOWN_LIBRARIES: Final = frozenset(
    [
        "everturn",
        "pydantic",
        "typing",
        "typing_extensions",
        "collections",
        "dataclasses",
        "re",
        "json",
        "math",
        "string",
        "textwrap",
        "functools",
        "itertools",
        "operator",
        "enum",
        "abc",
        "types",
        "inspect",
        "builtins",
        "logging",
        "contextlib",
        "copy",
        "decimal",
        "fractions",
        "statistics",
        "base64",
        "hashlib",
        "html",
        "unicodedata",
    ]
)
"""Their functions read nothing from outside. Those of other libraries may."""

READING_BUILTINS: Final = frozenset(
    {"open", "input", "exec", "eval", "compile", "__import__", "globals", "locals", "vars", "hash", "id"}
)

LEFT_OUT_OF_AGENT: Final = frozenset(
    {"tools", "_by_name", "_output", "output_adapter", "input_arguments", "approvers", "webhook", "activity_prefix"}
)
"""What other fields say as well, and what no rerun uses."""

LEFT_OUT_OF_CLASS: Final = frozenset(
    [
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__annotations__",
        "__firstlineno__",
        "__static_attributes__",
        "__qualname__",
        "__abstractmethods__",
        "_abc_impl",
        "__parameters__",
        "__orig_bases__",
        "__match_args__",
        "__dataclass_params__",
        "__dataclass_fields__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__signature__",
        "__class_vars__",
        "__private_attributes__",
    ]
)

PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, timedelta, date, Decimal, UUID, type(...))


@dataclass(frozen=True)
class Fingerprint:
    """The same for the same candidate, also in another process."""

    digest: str
    is_certain: bool
    """False if a part of the candidate may read what is not in the digest: a file, the clock, a server."""


def fingerprint_of(agent: Agent, *more: object, run_reads: bool = False) -> Fingerprint:
    """Of its words, models, settings, limits and tools; of its functions for instructions and tools, with all that
    they use; and of its hooks, with their fields. `run_reads`: also of the functions of tools that may run."""
    facts = _Facts(run_reads=run_reads)
    written = json.dumps([facts.of_agent(agent), *map(facts.of, more), run_reads], sort_keys=True)
    return Fingerprint(hashlib.sha256(written.encode()).hexdigest()[:12], facts.are_certain)


class _Facts:
    """What is known of values, as JSON."""

    def __init__(self, *, run_reads: bool) -> None:
        self.are_certain = True
        self._run_reads = run_reads
        self._places: dict[int, int] = {}
        self._kept_alive: list[object] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return [_name_of(type(value)), value.name, repr(value.value)]
        if isinstance(value, PLAIN) and type(value).__module__ in ("builtins", "datetime", "decimal", "uuid"):
            return [type(value).__name__, repr(value)]
        if isinstance(value, re.Pattern):
            return ["pattern", repr(value.pattern), value.flags]
        if id(value) in self._places:
            return ["seen", self._places[id(value)]]
        self._places[id(value)] = len(self._places)
        self._kept_alive.append(value)  # or another one might get its id
        return self._of_object(value)

    def of_agent(self, agent: Agent) -> Any:
        if agent.mcp_servers:
            self.are_certain = False  # their tools are what they say now
        return [
            agent.full_name,
            [self._of_tool(tool) for tool in agent.tools],
            *([key, self.of(value)] for key, value in sorted(vars(agent).items()) if key not in LEFT_OUT_OF_AGENT),
        ]

    def _of_object(self, value: Any) -> Any:
        match value:
            case Agent():
                return self.of_agent(value)
            case Tool():
                return self._of_tool(value)
            case Mapping():
                pairs = [[self.of(key), self.of(item)] for key, item in value.items()]
                return [_name_of(type(value)), sorted(pairs, key=json.dumps)]
            case list() | tuple():
                return [_name_of(type(value)), *map(self.of, value)]
            case Set():
                return [_name_of(type(value)), *sorted(map(self.of, value), key=json.dumps)]
            case PurePath():
                return self._uncertain(str(value))  # whoever has it may read the file
            case partial():
                return ["partial", self.of(value.func), self.of(value.args), self.of(value.keywords)]
            case MethodType():
                return ["method", self.of(value.__func__), self.of(value.__self__)]
            case BuiltinFunctionType():
                return self._of_builtin(value)
            case FunctionType():
                return self._of_function(value)
            case type():
                return self._of_class(value)
            case ModuleType():
                return self._of_library(value.__name__, value.__name__)
            case classmethod() | staticmethod():
                return self.of(value.__func__)
            case property():
                return ["property", self.of(value.fget), self.of(value.fset)]
            case CellType():
                return self.of(value.cell_contents) if value != CellType() else "empty"
            case _:
                return self._of_instance(value)

    def _of_tool(self, tool: Tool) -> Any:
        facts = [tool.name, tool.description, self.of(tool.parameters), tool.effect, tool.runs_on, tool.agent]
        facts += [self.of(tool.options), tool.needs_approval is False]
        if self._run_reads and may_read(tool):
            # What it reads is another thing each time, also in a rerun that begins anew: the report says how old it is.
            own = _Facts(run_reads=False)
            facts.append(own.of(tool.function))
        return facts

    def _of_builtin(self, function: Any) -> Any:
        owner = function.__self__
        if owner is None or isinstance(owner, ModuleType):
            if function.__name__ in READING_BUILTINS:
                return self._uncertain(function.__name__)
            return self._of_library(function.__module__ or "", function.__qualname__)
        return [function.__qualname__, self.of(owner)]

    def _of_function(self, function: Any) -> Any:
        if _is_library(function.__module__):
            # Made by a library, around what it was given.
            return [
                self._of_library(function.__module__, function.__qualname__),
                *map(self.of, function.__closure__ or ()),
            ]
        global_names = _names_used(function.__code__, "LOAD_GLOBAL", "LOAD_NAME")
        values = {name: self._of_global(function, name) for name in sorted(global_names)}
        if _names_used(function.__code__, "IMPORT_NAME"):
            self.are_certain = False
        return [
            function.__qualname__,
            _code_facts(function.__code__),
            values,
            *map(self.of, function.__closure__ or ()),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
        ]

    def _of_global(self, function: Any, name: str) -> Any:
        if name in function.__globals__:
            return self.of(function.__globals__[name])
        if hasattr(builtins, name):
            return self.of(getattr(builtins, name))
        return self._uncertain("missing")

    def _of_class(self, kind: type) -> Any:
        if _is_library(kind.__module__):
            return self._of_library(kind.__module__, _name_of(kind))
        members = {
            name: self.of(value)
            for name, value in sorted(vars(kind).items())
            if name not in LEFT_OUT_OF_CLASS
            and not name.startswith(("__pydantic_", "model_"))
            and not isinstance(value, GetSetDescriptorType | MemberDescriptorType)
            and not _is_generated(value)
        }
        facts = [_name_of(kind), [self.of(base) for base in kind.__bases__], members]
        if issubclass(kind, BaseModel):
            facts.append(self.of({name: repr(field) for name, field in kind.model_fields.items()}))
            decorators = kind.__pydantic_decorators__
            for group in (decorators.field_validators, decorators.model_validators, decorators.field_serializers):
                facts.append(
                    {name: self.of(getattr(entry.func, "__func__", entry.func)) for name, entry in group.items()}
                )
        return facts

    def _of_instance(self, value: Any) -> Any:
        kind = type(value)
        if _is_library(kind.__module__) and _root(kind.__module__) not in KNOWN_LIBRARIES:
            return self._uncertain(_name_of(kind))
        if kind.__module__ == "logging":
            return _name_of(kind)
        names = {name for base in kind.__mro__ for name in _slots_of(base) if hasattr(value, name)}
        if not names and not hasattr(value, "__dict__"):
            return self._uncertain(_name_of(kind))
        own = {name: getattr(value, name) for name in names} | dict(getattr(value, "__dict__", {}))
        if isinstance(value, BaseModel):
            own |= {"__extra__": value.__pydantic_extra__, "__private__": value.__pydantic_private__}
        return [self.of(kind), [[name, self.of(item)] for name, item in sorted(own.items())]]

    def _of_library(self, module: str, name: str) -> Any:
        root = _root(module)
        if root not in KNOWN_LIBRARIES:
            return self._uncertain(f"{module}.{name}")
        return [module, name, _version_of(root)]

    def _uncertain(self, facts: str) -> str:
        self.are_certain = False
        return facts


def _is_generated(member: object) -> bool:
    """Whether `dataclass` wrote it, from the fields."""
    code = getattr(inspect.unwrap(member), "__code__", None) if isinstance(member, FunctionType) else None
    return isinstance(code, CodeType) and code.co_filename == "<string>"


def _root(module: str) -> str:
    return module.partition(".")[0]


def _is_library(module: str | None) -> bool:
    """Whether its code is somebody else's, and not followed."""
    root = _root(module or "")
    if root in KNOWN_LIBRARIES or root in sys.stdlib_module_names or root in sys.builtin_module_names:
        return root != "__main__"
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _version_of(root: str) -> str:
    if root in sys.stdlib_module_names:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        return metadata.version(root)
    except metadata.PackageNotFoundError:
        return ""


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if not name.startswith("__"))


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    """The code, and that of the functions that are made in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in(constant)


def _names_used(code: CodeType, *operations: str) -> set[str]:
    """The names that these operations of the interpreter have."""
    return {
        instruction.argval
        for part in _codes_in(code)
        for instruction in dis.get_instructions(part)
        if instruction.opname in operations
    }


def _code_facts(code: CodeType) -> list[Any]:
    return [code.co_code.hex(), code.co_names, [_constant_facts(constant) for constant in code.co_consts]]


def _constant_facts(constant: object) -> Any:
    if isinstance(constant, CodeType):
        return _code_facts(constant)
    if isinstance(constant, frozenset):  # its order is another one in each process
        return sorted(map(repr, constant))
    return repr(constant)
