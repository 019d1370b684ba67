"""The agent that a rerun tries: the one that is given, with what replaces parts of it, made fit for a rerun."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from everturn.agent import Agent, Instructions, PrepareTools, ToolItem
from everturn.errors import InvalidAgent
from everturn.hooks import Hooks
from everturn.models import Model, ModelSettings
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
