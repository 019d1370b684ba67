"""Tools and agents from Python files, for `--tool FILE.py` and EVERTURN_AGENTS."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from everturn.agent import Agent
from everturn.errors import ConfigError, InvalidFile, InvalidTool
from everturn.tools.tool import Tool, tool


def load_tools(path: str | Path) -> list[Tool]:
    """Every public function defined in the file, and every tool made in it, in the order of their definition.

    What the file imports, classes, and names that start with _ are left out. A file is run once per process.
    Raises InvalidFile with one line that says where, and what to do.
    """
    module = _load_file(Path(path))
    # By identity: a second name for the same function is not a second tool.
    found = {id(value): value for name, value in vars(module).items() if _is_tool(value, name=name, module=module)}
    if not found:
        raise InvalidFile(
            f"{path} has no public function.", cure="Define one with `def`, its name without a leading _."
        )
    return [value if isinstance(value, Tool) else _make_tool(value, path=path) for value in found.values()]


def load_agents(spec: str) -> list[Agent]:
    """The agents that `spec` names: `module:agent`, `path.py`, `path.py:agent`, or several with commas between.

    A file alone means every Agent in it. Modules are looked for in the working directory too. Raises InvalidFile.
    """
    specs = [one.strip() for one in spec.split(",") if one.strip()]
    if not specs:
        raise InvalidFile("No agents are named.", cure="Write module:agent or the path of a Python file.")
    return [agent for one in specs for agent in _load_agents(one)]


def _load_agents(spec: str) -> list[Agent]:
    place, colon, name = ("", "", "") if spec.endswith(".py") else spec.rpartition(":")
    if not colon and _looks_like_a_path(spec):
        agents = _agents_in(_load_file(Path(spec)))
        if not agents:
            raise InvalidFile(f"{spec} has no Agent.", cure="Write one, such as clerk = Agent('clerk', model=...).")
        return list(agents.values())
    if not (place and name):
        raise InvalidFile(f"{spec!r} names no agent.", cure="Write module:agent, path.py or path.py:agent.")
    module = _load_file(Path(place)) if _looks_like_a_path(place) else _load_module(place)
    return [_named_agent(module, name, place=place)]


def load_object(spec: str) -> Any:
    """What `module:name` or `path.py:name` names. Raises InvalidFile."""
    place, colon, name = spec.rpartition(":")
    if not (colon and place and name):
        raise InvalidFile(f"{spec!r} names nothing in a module.", cure="Write module:name or path.py:name.")
    module = _load_file(Path(place)) if _looks_like_a_path(place) else _load_module(place)
    try:
        return getattr(module, name)
    except AttributeError:
        raise InvalidFile(f"There is no {name!r} in {place}.", cure="Check the name.") from None


def _looks_like_a_path(text: str) -> bool:
    return text.endswith(".py") or "/" in text or "\\" in text


def _agents_in(module: ModuleType) -> dict[str, Agent]:
    """By variable; an Agent with two names is there once."""
    agents: dict[str, Agent] = {}
    for name, value in vars(module).items():
        if isinstance(value, Agent) and value not in agents.values():
            agents[name] = value
    return agents


def _named_agent(module: ModuleType, name: str, *, place: str) -> Agent:
    value = getattr(module, name, None)
    if isinstance(value, Agent):
        return value
    agents = list(_agents_in(module))
    close = difflib.get_close_matches(name, agents, n=1)
    if close:
        cure = f"Did you mean {close[0]!r}?"
    else:
        cure = f"It has {', '.join(agents)}." if agents else f"Write {name} = Agent({name!r}, model=...) there."
    if hasattr(module, name):
        raise InvalidFile(f"{name!r} in {place} is of type {type(value).__name__}, not an Agent.", cure=cure)
    raise InvalidFile(f"{place} has no {name!r}.", cure=cure)


def _is_tool(value: object, *, name: str, module: ModuleType) -> bool:
    if name.startswith("_"):
        return False
    if isinstance(value, Tool):
        return value.module == module.__name__
    return inspect.isfunction(value) and value.__module__ == module.__name__ and value.__name__ != "<lambda>"


def _make_tool(function: Any, *, path: str | Path) -> Tool:
    try:
        return tool(function)
    except InvalidTool as error:
        cure = f"{error.cure} Or start its name with _, if it is no tool."
        line = inspect.unwrap(function).__code__.co_firstlineno
        raise InvalidFile(f"{path}, line {line}: {error.message}", cure=cure) from error


def _load_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            cure = f"Run from the folder that holds it ({Path.cwd()} does not), or write the path of the file."
            raise InvalidFile(f"There is no module {name!r}.", cure=cure) from error
        _explain(error, place=name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an import raises
        _explain(error, place=name)


def _load_file(path: Path) -> ModuleType:
    file = path.expanduser().resolve()
    if path.suffix != ".py":
        raise InvalidFile(f"{path} is not a Python file.", cure="Give the path of a file that ends in .py.")
    if not file.is_file():
        raise InvalidFile(f"There is no file {path}.", cure=f"Check the path: {file} was looked for.")
    # Unique, so that tools.py of two folders don't meet; in sys.modules, so that its classes can resolve their hints.
    name = f"everturn_file_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidFile(f"{path} can't be loaded as Python.", cure="Give the path of a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    _make_importable(file.parent)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):
            _explain(error, place=str(path))
        raise
    return module


def _make_importable(folder: Path) -> None:
    # First, as for a script; for good, since functions may import when they run.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _explain(error: BaseException, *, place: str) -> NoReturn:
    """Raise InvalidFile for what went wrong at import: file, line, what, and what to do."""
    where = _where(error, place=place)
    if isinstance(error, ConfigError):
        raise InvalidFile(f"{where}: {error.message}", cure=error.cure) from error
    message = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split()).rstrip(".")
    cure = "Correct what runs when the file is imported."
    if isinstance(error, SyntaxError):
        cure = "Correct the line."
    elif isinstance(error, ModuleNotFoundError) and error.name:
        cure = f"Install what provides {error.name!r} in the environment of {sys.executable}."
    elif isinstance(error, SystemExit):
        cure = "Put what runs a program under `if __name__ == '__main__':`."
    raise InvalidFile(f"{where}: {type(error).__name__}: {message}.", cure=cure) from error


def _where(error: BaseException, *, place: str) -> str:
    """File and line: of a syntax error its own, of others those where the outermost file went wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((frame.filename for frame in frames if frame.name == "<module>"), None)
    imported_by = f", imported by {_shown(first)}" if first else ""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_shown(error.filename)}, line {error.lineno}{imported_by}"
    if first is None:
        return place
    line = [frame.lineno for frame in frames if frame.filename == first][-1]
    return f"{_shown(first)}, line {line}"


def _shown(file: str) -> str:
    return str(Path(file).relative_to(Path.cwd())) if Path(file).is_relative_to(Path.cwd()) else file
