"""The sub-agents that work for a conversation now, with what each of them does: asked one by one, at any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol

from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCError

from everturn import names
from everturn.errors import EverturnError, NotFound
from everturn.payloads import AskedAgent, Status, WaitingCall
from everturn.system.bounded_concurrency import in_order
from everturn.text.commands import command_about

ASKED_AT_ONCE: Final = 8
"""How many sub-agents are asked for their status at the same time."""

Path = tuple[AskedAgent, ...]


class AskedConversation(Protocol):
    """The part of a Conversation that is used here."""

    async def status(self, *, children: bool = True) -> Status: ...


@dataclass(frozen=True)
class AgentAtWork:
    """A sub-agent that works on a call."""

    path: Path
    """It is the last of these."""
    status: Status | None
    """Of its conversation, without its own sub-agents; None if it can't be asked."""
    problem: str = ""
    """Why it can't be asked."""

    @property
    def asked_agent(self) -> AskedAgent:
        return self.path[-1]

    @property
    def waiting_calls(self) -> tuple[WaitingCall, ...]:
        waiting = self.status.waiting if self.status else ()
        return tuple(call.model_copy(update={"path": self.path}) for call in waiting)


async def agents_at_work(
    conversation: Callable[[str], AskedConversation], agents: Sequence[AskedAgent]
) -> list[AgentAtWork]:
    """These sub-agents and those below them, level by level. `conversation` opens one by its id. Those that are about
    to start or have just ended are left out."""
    everyone: list[AgentAtWork] = []
    level: list[Path] = [(asked_agent,) for asked_agent in agents]
    while level:
        looked = await in_order(level, lambda path: _look_at_agent(conversation, path), max_running=ASKED_AT_ONCE)
        there = [agent for agent in looked if agent is not None]
        everyone += there
        level = [(*agent.path, asked_agent) for agent in there if agent.status for asked_agent in agent.status.agents]
    return everyone


def with_agents(status: Status, agents: Iterable[AgentAtWork]) -> Status:
    """The status with the waiting calls of these sub-agents. If it has no cause, also with why one of them does not go
    on."""
    agents = list(agents)
    waiting = (*status.waiting, *chain.from_iterable(agent.waiting_calls for agent in agents))
    more: dict[str, object] = {"waiting": waiting}
    held_up = next((agent for agent in agents if _is_held_up(agent)), None)
    if held_up and not status.cause:
        more |= {"cause": _held_up_cause(held_up), "cure": _held_up_cure(held_up)}
    return status.model_copy(update=more)


def may_have_agents(described: WorkflowExecutionDescription) -> bool:
    """Whether sub-agents worked for it when it was described. Asks no worker."""
    pending = described.raw_description.pending_children
    return any(child.workflow_type_name == names.CONVERSATION for child in pending)


async def _look_at_agent(conversation: Callable[[str], AskedConversation], path: Path) -> AgentAtWork | None:
    try:
        status = await conversation(path[-1].conversation_id).status(children=False)
    except NotFound:  # it is about to start
        return None
    except (EverturnError, RPCError) as error:
        return AgentAtWork(path, None, problem=getattr(error, "message", str(error)))
    if status.state == "done":
        return None
    return AgentAtWork(path, status)


def _is_held_up(agent: AgentAtWork) -> bool:
    return agent.status is None or agent.status.state in ("stalled", "paused") or bool(agent.status.cause)


def _held_up_cause(agent: AgentAtWork) -> str:
    asked_agent = agent.asked_agent
    if agent.status is None:
        return f"The agent {asked_agent.agent!r} can't be asked what it waits for: {agent.problem}"
    state = f"The agent {asked_agent.agent!r}, in conversation {asked_agent.conversation_id!r}, is {agent.status.state}"
    if agent.status.cause:
        return f"{state}: {agent.status.cause}"
    return f"{state}."


def _held_up_cure(agent: AgentAtWork) -> str:
    conversation_id = agent.asked_agent.conversation_id
    status = agent.status
    if status is None:
        return f"`{command_about('show', conversation_id)}` shows its state."
    if status.state not in ("stalled", "paused"):
        return (status.cure or "").strip()
    resume = f"`{command_about('resume', conversation_id)}`."
    if status.cure:
        return f"{status.cure} Then: {resume}".strip()
    return resume
