"""Tool calls as Gemini spells them: their names, and arguments that come in pieces."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Final

from everturn.providers.base import Request
from everturn.providers.json_values import MAX_JSON_DEPTH, a_str

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.:-]")

_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
"""One step of a JSON path (RFC 9535), as far as it leads to one place: .name, [0], ['name'] or ["name"]."""
_ESCAPE = re.compile(r"\\(.)")

_MAX_STEPS: Final = MAX_JSON_DEPTH // 2


def wire_name(name: str) -> str:
    """A tool's name in Gemini's alphabet: unchanged if possible, else a name that no other tool's name turns into."""
    if _NAME.fullmatch(name):
        return name
    marked = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"_{_NOT_IN_NAMES.sub('_', name)[:100]}_{marked}"


def tool_names(request: Request) -> dict[str, str]:
    """From names in the request to the tools' own names, for those that differ."""
    return {wire: tool.name for tool in request.tools if (wire := wire_name(tool.name)) != tool.name}


@dataclass(slots=True)
class PartialArguments:
    """Vertex's `partialArgs`: values by JSON path, texts in pieces."""

    _values: dict[str, Any] = field(default_factory=dict)
    """By path, in order: a list holds the pieces of a text."""

    def __bool__(self) -> bool:
        return bool(self._values)

    def add_argument(self, argument: dict[str, Any]) -> None:
        """Reads one item of `partialArgs`. Raises ValueError for one that can't be understood."""
        path = a_str(argument.get("jsonPath"))
        if isinstance(text := argument.get("stringValue"), str):
            pieces = self._values.setdefault(path, [])
            if not isinstance(pieces, list):
                raise ValueError(f"{path!r:.100} is both a text and something else")
            pieces.append(text)
        elif "nullValue" in argument:
            self._values[path] = None
        elif name := next((name for name in ("numberValue", "boolValue") if name in argument), None):
            self._values[path] = argument[name]
        elif argument.keys() - {"jsonPath", "willContinue"}:
            raise ValueError(f"{path!r:.100} has a value of an unknown kind")

    def put_onto(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`arguments` with the values put in at their paths. Raises ValueError if a path leads nowhere."""
        root: Any = dict(arguments)
        for path, value in self._values.items():
            whole = "".join(value) if isinstance(value, list) else value
            root = _put_at(root, _path_steps(path), whole)
        if not isinstance(root, dict):
            raise ValueError("they are not a JSON object")
        return root


def _path_steps(path: str) -> list[str | int]:
    place = 1
    steps: list[str | int] = []
    while place < len(path) and (match := _STEP.match(path, place)) and len(steps) < _MAX_STEPS:
        name, index, single, double = match.groups()
        if index:
            steps.append(int(index))
        else:
            steps.append(name or _ESCAPE.sub(r"\1", single or double or ""))
        place = match.end()
    if not path.startswith("$") or place < len(path):
        raise ValueError(f"{path!r:.100} is not a JSON path that everturn can read")
    return steps


def _put_at(target: Any, steps: list[str | int], value: Any) -> Any:
    """`target` with `value` at the place that `steps` lead to. Missing levels are created."""
    if not steps:
        return value
    step, *further_steps = steps
    if isinstance(step, int):
        items = [] if target is None else target
        if not isinstance(items, list) or step > len(items):
            raise ValueError(f"no item {step} there")
        if step == len(items):
            items.append(None)
        items[step] = _put_at(items[step], further_steps, value)
        return items
    members = {} if target is None else target
    if not isinstance(members, dict):
        raise ValueError(f"no member {step!r:.100} there")
    members[step] = _put_at(members.get(step), further_steps, value)
    return members
