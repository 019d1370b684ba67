"""Users' own activities, hosted beside the tools of the agents that call them: everturn runs them as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from temporalio import activity

from everturn import names
from everturn.agent import Agent
from everturn.errors import InvalidAgent
from everturn.tools.user_code import Threads


def user_activities(agents: Mapping[str, Agent], *, tool_names: Collection[str]) -> list[Callable[..., Any]]:
    """The functions that are to be hosted with these agents. `tool_names`: those of their tools, which are
    activities too. Raises InvalidAgent."""
    hosted: dict[str, Callable[..., Any]] = {}
    for agent in agents.values():
        for tool in agent.tools:
            if tool.activity is None or (function := tool.activity.hosted) is None:
                continue
            name = tool.activity.name
            if name in tool_names or name in names.RESERVED_TOOL_NAMES:
                raise InvalidAgent(
                    f"Agent {agent.name!r} has the activity {name!r}, and a tool on the same worker has the same name.",
                    cure="Give one of them another: tool(name='...') or @activity.defn(name='...').",
                )
            if hosted.setdefault(name, function) != function:
                raise InvalidAgent(
                    f"Agent {agent.name!r} has an activity {name!r}, and another function has the same activity name.",
                    cure="Give one of them another name: @activity.defn(name='...').",
                )
    return list(hosted.values())


class ActivityThreads(Threads, ThreadPoolExecutor):
    """For users' sync activities. Temporal's worker asks for a ThreadPoolExecutor, but a process can't end before the
    threads of one do. So this one passes for a ThreadPoolExecutor, and uses everturn's own threads."""

    def __init__(self, most: int) -> None:
        Threads.__init__(self, most)
        self._max_workers = most


def is_users_own(info: activity.Info) -> bool:
    """Whether the activity is a user's: then everturn has no part in its heartbeats and its input."""
    return not is_ours(info.workflow_type, info.activity_id)


def is_users_call(info: activity.Info) -> bool:
    """Whether the activity is a user's that serves a call of a conversation."""
    return info.workflow_type == names.CONVERSATION and info.activity_id.startswith(names.ACTIVITY_OF_CALL)


def is_ours(workflow_type: str | None, activity_id: str) -> bool:
    """Whether an activity is everturn's own, by the workflow that asks for it."""
    if workflow_type == names.CONVERSATION:
        return not activity_id.startswith(names.ACTIVITY_OF_CALL)
    return workflow_type in names.BESIDE_CONVERSATIONS
