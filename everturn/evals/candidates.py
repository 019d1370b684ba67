"""The agent that a rerun tries: the one that is given, with what replaces parts of it, made fit for a rerun."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from types import CellType, CodeType
from typing import Any, get_args

from everturn.agent import Agent, Instructions, PrepareTools, ToolItem
from everturn.errors import InvalidAgent
from everturn.hooks import Hooks, has_point, name_of
from everturn.models import Model, ModelSettings
from everturn.records import HookPoint
from everturn.tools.agent_option_checks import is_raw
from everturn.tools.context import TurnContext
from everturn.tools.provider_defined import handler_keys
from everturn.tools.tool import Tool

PROVIDERS_KEYS = ("mcp_servers", "tools", "plugins", "connectors")
"""Keys of `ModelSettings.extra` that would have a provider run tools that no hook of ours sees."""

STARTED_BY_AN_ANSWER = ("mcp", "builtin_function")
"""Types of raw tools whose calls are only questions to us: with the answer, the provider runs the tool."""


def candidate_of(
    agent: Agent | None,
    *,
    recorded_agent: str,
    model: str | Model | None,
    instructions: str | Instructions | None,
    tools: Sequence[ToolItem] | None,
) -> Agent:
    """The agent to try. Raises InvalidAgent if it can't be made of what is given."""
    if agent is None:
        if model is None:
            raise InvalidAgent(
                "A rerun needs a candidate: an agent, or at least a model.",
                cure="Give agent=, with model=, instructions= and tools= for what differs from it.",
            )
        return Agent(recorded_agent, model=model, instructions=instructions or "", tools=tools or ())
    candidate = copy(agent)
    if model is not None:
        if not isinstance(model, Model):
            model = Model(model)
        vars(candidate).update(model=model, fallback_models=())
    if instructions is not None:
        vars(candidate).update(instructions=instructions)
    if tools is None:
        return candidate
    return candidate.for_turn(tools=tools)


def for_rerun(agent: Agent, hook: Hooks) -> Agent:
    """The same agent, and those that it knows, with the hook that answers calls behind their own hooks, and without
    what a provider would run by itself and that may have effects: hosted MCP servers and other raw tools that no
    handler and no answer of ours serves."""
    copied = copy(agent)
    vars(copied).update(
        hooks=(*agent.hooks, hook),
        agents=tuple(for_rerun(other, hook) for other in agent.agents),
        raw_tools=tuple(item for item in agent.raw_tools if _is_served_here(item)),
        prepare_tools=agent.prepare_tools and _harmless_prepare(agent.prepare_tools),
        settings=harmless_settings(agent.settings),
        webhook=None,
    )
    return copied


def harmless_settings(settings: ModelSettings) -> ModelSettings:
    """The settings without what would have the provider run tools by itself."""
    extra = {key: value for key, value in settings.extra.items() if key not in PROVIDERS_KEYS}
    if extra == settings.extra:
        return settings
    return settings.model_copy(update={"extra": extra})


def _is_served_here(item: Mapping[str, Any]) -> bool:
    """Whether each call of a raw tool comes to our hooks, and nothing runs without or after that."""
    return bool(handler_keys(item)) and item.get("type") not in STARTED_BY_AN_ANSWER


def _harmless_prepare(prepare: PrepareTools) -> PrepareTools:
    """The function for a turn's tools, without what the provider would run by itself."""

    async def harmless_tools(context: TurnContext, tools: list[Tool]) -> Iterable[ToolItem]:
        items: Any = prepare(context, tools)
        if inspect.isawaitable(items):
            items = await items
        return [item for item in items if not (isinstance(item, Mapping) and is_raw(item)) or _is_served_here(item)]

    return harmless_tools


def left_out_tools(agent: Agent) -> tuple[str, ...]:
    """What `for_rerun` takes away, by name, to be told."""
    raw = [str(item.get("type") or next(iter(item), "")) for item in agent.raw_tools if not _is_served_here(item)]
    extra = [f"settings.extra[{key!r}]" for key in agent.settings.extra if key in PROVIDERS_KEYS]
    return (*raw, *extra, *(name for other in agent.agents for name in left_out_tools(other)))


def may_read(tool: Tool | None) -> bool:
    """Whether a rerun may run it, if reads are allowed: it says that it only reads, and asks nobody first."""
    return tool is not None and tool.is_function and tool.effect == "read" and tool.needs_approval is False


def candidate_fingerprint(agent: Agent, *more: object) -> str:
    """The same for the same candidate, also in another process: its words, models, tools, settings, limits, and the
    code of its functions for instructions, tools and hooks. What those call in turn is not in it."""
    facts = json.dumps([_agent_facts(agent), *map(_facts_of, more)], sort_keys=True, default=str)
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def _agent_facts(agent: Agent) -> list[Any]:
    return [
        agent.full_name,
        [[model.name, model.base_url] for model in (agent.model, *agent.fallback_models)],
        _facts_of(agent.instructions),
        [[tool.name, tool.description, tool.parameters, tool.effect] for tool in agent.tools],
        [repr(tool) for tool in agent.server_tools],
        [dict(item) for item in agent.raw_tools],
        agent.settings.model_dump(mode="json"),
        str(agent.limits),
        agent.output_schema,
        _facts_of(agent.prepare_tools),
        [_hook_facts(hook) for hook in agent.hooks],
        [_agent_facts(other) for other in agent.agents],
    ]


def _hook_facts(hook: Hooks) -> list[Any]:
    points = [_facts_of(getattr(hook, point)) for point in get_args(HookPoint) if has_point(hook, point)]
    return [name_of(hook), *points]


def _facts_of(item: object) -> Any:
    """Of a function: its name, its code, and the texts that it uses from outside."""
    if not callable(item):
        return str(item)
    function = inspect.unwrap(item.func if isinstance(item, partial) else item)
    name = getattr(function, "__qualname__", type(function).__name__)
    if not hasattr(function, "__code__"):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return name
    return [name, _code_facts(code), _texts_used(function)]


def _code_facts(code: CodeType) -> list[Any]:
    return [code.co_code.hex(), code.co_names, [_constant_facts(constant) for constant in code.co_consts]]


def _constant_facts(constant: object) -> Any:
    if isinstance(constant, CodeType):
        return _code_facts(constant)
    if isinstance(constant, frozenset):  # its order is another one in each process
        return sorted(map(repr, constant))
    return repr(constant)


def _texts_used(function: Any) -> list[str]:
    """Of its module and of the functions around it, by its own names."""
    module_values = [function.__globals__.get(name) for name in function.__code__.co_names]
    cells = function.__closure__ or ()
    enclosed = [cell.cell_contents for cell in cells if cell != CellType()]
    return [value for value in (*module_values, *enclosed) if isinstance(value, str)]
