"""Rules of a policy that no call will ever meet: of tools that the conversation's agents don't have."""

from __future__ import annotations

from collections.abc import Iterable

from everturn.agent import Agent, with_sub_agents
from everturn.logs import get_logger
from everturn.policy import ANY_TOOL, Rule
from everturn.tools.read_result import READ_RESULT
from everturn.validation.spelling import nearest_name

_log = get_logger("everturn.conversation")


def warn_of_unknown_tools(rules: Iterable[Rule], agent: Agent | str | None) -> None:
    """Logs a warning for each name of a tool that none of the agents has. It is no error: the worker may host another
    version of them. Nothing is logged if their tools are not known here."""
    if not isinstance(agent, Agent):
        return
    known = _known_tools(agent)
    if known is None:
        return
    for name in dict.fromkeys(rule.tool for rule in rules):
        if name == ANY_TOOL or name in known:
            continue
        near = nearest_name(name, known)
        _log.warning(
            "policy.unknown_tool",
            agent=agent.name,
            tool=name,
            cause=f"The policy has a rule for {name!r:.200}, which is no tool of agent {agent.name!r}.",
            cure=f"Did you mean {near!r}?" if near else f"It has {', '.join(sorted(known)) or 'none'}.",
        )


def _known_tools(agent: Agent) -> frozenset[str] | None:
    """The tools of the agent, of those that are its tools, and of those that it hands over to; None if only a worker
    knows them all."""
    names = {READ_RESULT}
    for any_agent in with_sub_agents([agent]).values():
        elsewhere = any(handoff.agent is None for handoff in any_agent.handoffs)
        if any_agent.mcp_servers or any_agent.prepare_tools or any_agent.raw_tools or elsewhere:
            return None
        names.update(tool.name for tool in any_agent.tools)
    return frozenset(names)
