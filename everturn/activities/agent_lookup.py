"""What this worker hosts. An activity for anything else is handed back, so that another worker of the queue takes it.

So a queue may have workers that host different agents, and versions of them side by side in the middle of a deploy.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everturn import names
from everturn.activities import patience, retry_delays
from everturn.activities.agent_store import AgentStore, StoreFailed
from everturn.activities.hosted_agents import HostedAgents
from everturn.activities.mcp_memory import left_so_far
from everturn.activities.user_activities import is_users_own
from everturn.agent import Agent
from everturn.errors import ConfigError
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.logs import get_logger
from everturn.lost_workers import poison_calls
from everturn.payloads import ToolRequest
from everturn.tools.tool import Tool

QUIETLY = timedelta(seconds=5)
"""How long an activity is handed back before its conversation is told. About ten tries, which cost no history event."""

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 2.0

UNBOUNDED_SECONDS = 365 * 86_400.0

CURE = "Start a worker that has it on this task queue: everturn worker --agents FILE.py."

_log = get_logger("everturn.worker")


class _Request(Protocol):
    @property
    def agent(self) -> str: ...
    @property
    def hand_back_for(self) -> float | None: ...


class NoLongerAvailable(Exception):
    """None of the agent's workers has the tool any more."""


async def agent_of(agents: Mapping[str, Agent], request: _Request, *, heartbeats: Heartbeats) -> Agent:
    """The agent that a request is for. Raises the error that hands the activity back if this worker does not host it.
    If the agent store fails, raises the error that makes Temporal try again while the store's patience lasts."""
    if not isinstance(agents, HostedAgents):
        agent = agents.get(request.agent)
    elif (agent := agents.at_hand(request.agent)) is None and agents.store is not None:
        with heartbeats.beating(begins=False):
            agent = await _looked_up(agents, agents.store, request.agent)
    if agent is not None:
        return agent
    raise _handed_back(f"the agent {request.agent!r}", agents, request.hand_back_for)


async def _looked_up(agents: HostedAgents, store: AgentStore, name: str) -> Agent | None:
    try:
        return await agents.look_up(name)
    except StoreFailed as error:
        delay = retry_delays.retry_delay(None, attempt=activity.info().attempt, longest=store.patience)
        is_retried = patience.spend(delay, store.patience)
        raise ApplicationError(
            str(error),
            {"cure": "Check the agent store. Then `resume`."},
            type=names.NOT_PREPARED,
            non_retryable=not is_retried,
            next_retry_delay=delay if is_retried else None,
            category=ApplicationErrorCategory.BENIGN,
        ) from None
    except ConfigError as error:
        raise ApplicationError(
            error.message, {"cure": f"{error.cure} Then `resume`."}, type=names.NOT_PREPARED, non_retryable=True
        ) from None


def tool_of(agent: Agent, name: str, request: ToolRequest) -> Tool:
    """The agent's tool. If this worker lacks it, raises the error that hands the call back: another worker may have it.
    After patience, raises NoLongerAvailable; a call that a person approved stalls instead."""
    tool = agent.tool(name)
    if tool and tool.is_function:
        return tool
    error = _handed_back(f"the tool {name!r} of agent {request.agent!r}", [agent.name], request.hand_back_for)
    if error.non_retryable and request.hand_back_for is not None and request.decision is None:
        raise NoLongerAvailable
    raise error


def request_of(arguments: Sequence[RawValue]) -> ToolRequest:
    """The input of an activity that this worker has no function for. If it is not a tool's, raises the error that hands
    it back: a newer version of everturn may know it."""
    try:
        [value] = arguments
        request: ToolRequest = activity.payload_converter().from_payload(value.payload, ToolRequest)
    except Exception:  # noqa: BLE001 - whatever a converter raises for input that is not ours
        name = activity.info().activity_type
        raise _handed_back(f"the activity {name!r}", (), UNBOUNDED_SECONDS) from None
    return request


def not_registered(info: activity.Info) -> ApplicationError:
    """The error of an activity that another workflow asks for and nobody has. It is the one that the SDK raises on a
    worker without conversations."""
    return ApplicationError(
        f"Activity function {info.activity_type} for workflow {info.workflow_id} is not registered on this worker",
        type=names.NO_ACTIVITY,
    )


def _handed_back(lack: str, agents: Iterable[str], seconds: float | None) -> ApplicationError:
    hosts = ", ".join(sorted(agents)) or "no agent"
    cause = (
        f"No worker on task queue {activity.info().task_queue!r} has {lack}; the "
        f"worker that was asked last hosts {hosts}."
    )
    return handed_back(cause, CURE, seconds, lacks=lack, hosts=sorted(agents))


def handed_back(
    cause: str, cure: str, seconds: float | None, *, longest_delay: float = LONGEST_DELAY_SECONDS, **facts: Any
) -> ApplicationError:
    """The error that hands the activity back; not retryable once it was handed back for `seconds` (None: QUIETLY).
    `facts`: for the log."""
    info = activity.info()
    delay = min(FIRST_DELAY_SECONDS * 2 ** min(info.attempt - 1, 16), longest_delay)
    longest = QUIETLY if seconds is None else timedelta(seconds=seconds)
    # A local activity never leaves its worker: the conversation has to send it to the queue.
    is_retried = not info.is_local and patience.spend(timedelta(seconds=delay), longest)
    if info.attempt == 1 or not is_retried:
        say = _log.info if is_retried else _log.warning
        say("activity.handed_back", activity=info.activity_type, **facts)
    return ApplicationError(
        cause,
        {"cure": cure, "left": left_so_far() or None, "lost": not is_users_own(info) and poison_calls.may_have_run()},
        type=names.NOT_HOSTED,
        non_retryable=not is_retried,
        next_retry_delay=timedelta(seconds=delay * (0.5 + random.random() / 2)),
        # Otherwise Temporal would log a traceback; the line above is enough.
        category=ApplicationErrorCategory.BENIGN,
    )
