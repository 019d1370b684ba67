"""The agents that a worker is given, complete: with their sub-agents, and with what the worker adds to each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from everturn import names
from everturn.activities.agent_store import AgentStore, FindAgent
from everturn.activities.hosted_agents import HostedAgents
from everturn.activities.tool_contexts import MakeDeps, check_deps
from everturn.agent import Agent, with_sub_agents
from everturn.errors import InvalidAgent, InvalidSetting
from everturn.hooks import Hooks
from everturn.storage.artifacts import Artifacts
from everturn.tools.read_result import read_result_tool
from everturn.vendor_models.abilities import takes_functions

MAX_PREFIX_CHARS: Final = 32

Agents = Sequence[Agent] | AgentStore | FindAgent
"""What a worker hosts: agents, or where it finds them."""


def _with_reader(agent: Agent, artifacts: Artifacts | None) -> Agent:
    """The agent with the tool that reads what the store keeps, if there is one and its models call tools."""
    if artifacts is None or not all(map(takes_functions, [agent.model, *agent.fallback_models])):
        return agent
    return agent.with_tools(read_result_tool(artifacts, max_result_chars=agent.limits.max_result_chars))


def given_agents(
    agents: Agents, *, hooks: Sequence[Hooks], artifacts: Artifacts | None, deps: MakeDeps | None, prefix: str
) -> HostedAgents:
    """Those that are given and those of a store, with what the worker adds to each."""

    def complete_agent(agent: Agent) -> Agent:
        check_deps([agent], deps)
        completed = _with_reader(agent, artifacts).with_hooks(hooks)
        if not prefix:
            return completed
        return completed.with_activity_prefix(prefix)

    check_deps((), deps)
    if isinstance(agents, AgentStore) or callable(agents):
        store = agents if isinstance(agents, AgentStore) else AgentStore(agents)
        return HostedAgents({}, store, complete=complete_agent)
    given = {name: complete_agent(agent).named(agent.full_name) for name, agent in _checked_agents(agents).items()}
    return HostedAgents(given, None, complete=complete_agent)


def checked_prefix(prefix: str) -> str:
    """What a plugin puts before its tools' names. Raises InvalidSetting."""
    fits = isinstance(prefix, str) and re.fullmatch(r"[\w.-]*", prefix, re.ASCII) and len(prefix) <= MAX_PREFIX_CHARS
    if not fits:
        raise InvalidSetting(
            f"EverturnPlugin was given prefix={prefix!r:.100}.",
            cure=f"Write up to {MAX_PREFIX_CHARS} letters, digits, '_', '-' and '.', such as 'agent_'.",
        )
    if prefix and (own := sorted(name for name in names.RESERVED_TOOL_NAMES if name.startswith(prefix))):
        raise InvalidSetting(
            f"EverturnPlugin was given prefix={prefix!r}, but the name of one of everturn's "
            f"own activities begins with it: {own[0]}.",
            cure="Use another one, such as 'agent_'.",
        )
    return prefix


def _checked_agents(agents: Sequence[Agent]) -> dict[str, Agent]:
    """By name, with those that are tools of others."""
    if isinstance(agents, Agent | str) or not isinstance(agents, Iterable):
        raise InvalidAgent(f"A worker was given agents={agents!r}, which is not a list.", cure="Write agents=[...].")
    agents = list(agents)
    for index, agent in enumerate(agents):
        if not isinstance(agent, Agent):
            raise InvalidAgent(
                f"agents[{index}] of a worker is {agent!r}, of type {type(agent).__name__}.", cure="Give an Agent."
            )
    return with_sub_agents(agents)
