"""Tools and agents from Python files, for `--tool FILE.py` and EVERTURN_AGENTS."""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from everturn.agent import Agent
from everturn.errors import InvalidFile, InvalidTool
from everturn.system.user_modules import is_path, load_file, load_module
from everturn.tools.tool import Tool, tool


def load_tools(path: str | Path) -> list[Tool]:
    """Every public function defined in the file, and every tool made in it, in the order of their definition.

    What the file imports, classes, and names that start with _ are left out. A file is run once per process.
    Raises InvalidFile with one line that says where, and what to do.
    """
    module = load_file(Path(path))
    # By identity: a second name for the same function is not a second tool.
    values_by_id = {
        id(value): value for name, value in vars(module).items() if _is_tool(value, name=name, module=module)
    }
    if not values_by_id:
        raise InvalidFile(
            f"{path} has no public function.", cure="Define one with `def`, its name without a leading _."
        )
    return [value if isinstance(value, Tool) else _make_tool(value, path=path) for value in values_by_id.values()]


def load_agents(spec: str) -> list[Agent]:
    """The agents that `spec` names: `module:agent`, `path.py`, `path.py:agent`, or several with commas between.

    A file alone means every Agent in it. Modules are looked for in the working directory too. Raises InvalidFile.
    """
    specs = [single_spec.strip() for single_spec in spec.split(",") if single_spec.strip()]
    if not specs:
        raise InvalidFile("No agents are given.", cure="Write module:agent or the path of a Python file.")
    first_places: dict[str, tuple[Agent, str]] = {}
    agents = [(agent, single_spec) for single_spec in specs for agent in _load_agents(single_spec)]
    for agent, place in agents:
        first, elsewhere = first_places.setdefault(agent.full_name, (agent, place))
        if first is not agent:
            where = f"both in {place}" if place == elsewhere else f"in {elsewhere} and in {place}"
            raise InvalidFile(
                f"Two agents are called {agent.full_name!r}, {where}.",
                cure="Give one of them another name, or another version.",
            )
    return [agent for agent, _ in agents]


def _load_agents(spec: str) -> list[Agent]:
    place, colon, name = ("", "", "") if spec.endswith(".py") else spec.rpartition(":")
    if not colon and is_path(spec):
        agents = _agents_in(load_file(Path(spec)))
        if not agents:
            raise InvalidFile(f"{spec} has no Agent.", cure="Write one, such as clerk = Agent('clerk', model=...).")
        return list(agents.values())
    if not (place and name):
        raise InvalidFile(f"{spec!r} does not name an agent.", cure="Write module:agent, path.py or path.py:agent.")
    module = load_file(Path(place)) if is_path(place) else load_module(place)
    return [_named_agent(module, name, place=place)]


def _agents_in(module: ModuleType) -> dict[str, Agent]:
    """The agents by their variable; an Agent with two names is there once."""
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
    elif agents:
        cure = f"It has {', '.join(agents)}."
    else:
        cure = f"Write {name} = Agent({name!r}, model=...) there."
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
        cure = f"{error.cure} Or start its name with _ if it is not a tool."
        line = inspect.unwrap(function).__code__.co_firstlineno
        raise InvalidFile(f"{path}, line {line}: {error.message}", cure=cure) from error
