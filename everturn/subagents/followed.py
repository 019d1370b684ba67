"""Follows the sub-agents that work for a conversation: which of their calls wait for a person, as their histories say.

A watcher of the conversation gives each step of it to `take_step`. While no sub-agent works, nothing is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCError

from everturn.errors import EverturnError, NotFound
from everturn.events import AnswerRequested, ApprovalRequested, Decided, Event, ToolFinished
from everturn.history import steps
from everturn.history.event_reader import EventReader
from everturn.history.state_by_history import StateByHistory
from everturn.payloads import AskedAgent, WaitingCall, address_of
from everturn.temporal.any_status import is_over

FIRST_LOOK_SECONDS: Final = 0.05
LONGEST_LOOK_SECONDS: Final = 2.0
"""The longest pause before a sub-agent's conversation is looked for again: one that is about to start, whose end its
parent has not heard of, or that can't be read now."""

Rest = Literal["working", "waiting", "stalled"]
"""`working`: more comes by itself. `waiting`: people have to decide. `stalled`: somebody has to help."""

Path = tuple[AskedAgent, ...]

_Request = ApprovalRequested | AnswerRequested


class ReadConversation(Protocol):
    """The parts of a Conversation that are used here."""

    _runs: Any

    async def _describe(self) -> WorkflowExecutionDescription: ...


@dataclass
class _FollowedAgent:
    path: Path
    reader: EventReader = field(default_factory=EventReader)
    caught_up: bool = False
    """Its history was read as far as it went when it was opened."""
    looked: bool = False
    """It was read that far, or could not be."""
    over: bool = False
    ended: bool = False
    """Its parent has its result."""
    news_of_end: asyncio.Event = field(default_factory=asyncio.Event)
    requests: dict[str, Event] = field(default_factory=dict)
    """The last request for each call, while the history of before is read."""
    waiting_since: dict[str, str] = field(default_factory=dict)
    """When each call began to wait whose request was told: after trouble, its history is read again."""
    following: asyncio.Task[None] | None = None

    @property
    def asked_agent(self) -> AskedAgent:
        return self.path[-1]

    @property
    def by_history(self) -> StateByHistory:
        return self.reader.by_history

    @property
    def waiting_calls(self) -> list[WaitingCall]:
        pending = self.by_history.state.pending.values()
        return [call.as_waiting().model_copy(update={"path": self.path}) for call in pending]


class FollowedAgents:
    """The sub-agents of the conversation `parent`, and those below them. `conversation` opens one by its id.

    `live_only`: tells only of calls that wait now, or begin to. If not, it also tells of earlier ones and of results.
    `shown_addresses`: addresses of calls that somebody sees as open: their agents are read though they have ended."""

    def __init__(
        self,
        conversation: Callable[[str], ReadConversation],
        parent: str,
        *,
        live_only: bool = False,
        shown_addresses: Collection[str] = (),
    ) -> None:
        self._conversation = conversation
        self._parent = parent
        self._live_only = live_only
        self._shown = shown_addresses
        self._agents: dict[str, _FollowedAgent] = {}
        """By the ids of their conversations."""
        self._news: asyncio.Queue[Event | None] = asyncio.Queue()

    @property
    def has_agents(self) -> bool:
        return bool(self._agents)

    @property
    def caught_up(self) -> bool:
        """All were read as far as they went when they were opened, or can't be read now; those that have ended were
        read to their ends."""
        agents = self._agents.values()
        return all(agent.over or (agent.looked and not (agent.ended and agent.caught_up)) for agent in agents)

    def works_on(self, address: str) -> bool:
        """Whether an agent that may have this call is at work."""
        return any(
            address.startswith("".join(f"/{call_id}" for call_id in _call_ids(agent)) + "/")
            for agent in self._agents.values()
            if not (agent.ended or agent.over)
        )

    @property
    def waiting_calls(self) -> tuple[WaitingCall, ...]:
        """The calls that wait for people, as far as was read."""
        return tuple(call for agent in self._agents.values() if not agent.over for call in agent.waiting_calls)

    @property
    def stall(self) -> str:
        """Why one of them is stalled; empty if none is."""
        for agent in self._agents.values():
            if stall := agent.by_history.state.stall:
                return f"The agent {agent.asked_agent.agent!r} is stalled: {stall.cause}"
        return ""

    def take_step(self, step: steps.Step) -> None:
        """Takes each step of the parent, which begins and ends them."""
        self._take_step_of(step, ())

    async def wait_for_events(self) -> list[Event]:
        """Waits until something has changed. Returns the events that tell of it, if any."""
        news = [await self._news.get()]
        while not self._news.empty():
            news.append(self._news.get_nowait())
        return [event for event in news if event is not None]

    def find_rest(self, by_history: StateByHistory, *, decides: bool, path: Path = ()) -> Rest:
        """What the open calls of a conversation come to: the parent's, or that of the agent at the end of this path.
        `decides`: whether approvals are for people who look on."""
        state = by_history.state
        decidable_calls = [pending for pending in state.pending.values() if decides or pending.needs == "answer"]
        rests = {
            self._rest_of_agent((*path, call.call_id), decides=decides)
            for call, _ in by_history.calls.unsettled
            if call.call_id not in state.pending
        }
        if "working" in rests or not (decidable_calls or rests):
            return "working"
        return "waiting" if decidable_calls or "waiting" in rests else "stalled"

    def close(self) -> None:
        for agent in self._agents.values():
            if agent.following:
                agent.following.cancel()

    # ------------------------------------------------------------ underneath

    def _rest_of_agent(self, path: Iterable[AskedAgent | str], *, decides: bool) -> Rest:
        call_ids = [part if isinstance(part, str) else part.call_id for part in path]
        agent = next((agent for agent in self._agents.values() if _call_ids(agent) == call_ids), None)
        if agent is None or agent.over or not agent.caught_up:
            return "working"
        by_history = agent.by_history
        if by_history.finished or by_history.signals.has_message:
            return "working"
        if by_history.state.stall:
            return "stalled"
        return self.find_rest(by_history, decides=decides, path=agent.path)

    def _take_step_of(self, step: steps.Step, path: Path) -> None:
        """A step of the conversation at the end of this path."""
        match step:
            case steps.ToolScheduled(conversation_id=child) if child:
                self._end_agents([child])
                asked_agent = AskedAgent(call_id=step.request.call_id, agent=step.tool, conversation_id=child)
                agent = self._agents[child] = _FollowedAgent((*path, asked_agent))
                agent.following = asyncio.create_task(self._follow_agent(agent))
            case steps.ToolCompleted() | steps.ToolRunFailed():
                self._end_agents(
                    self._agents_below([*(asked_agent.call_id for asked_agent in path), step.request.call_id])
                )
            case steps.RunClosed():
                self._end_agents(self._agents_below([asked_agent.call_id for asked_agent in path], itself=False))
            case _:
                pass

    def _agents_below(self, call_ids: list[str], *, itself: bool = True) -> list[str]:
        """The agent that was asked by these calls, and those below it."""
        paths = {child: _call_ids(agent) for child, agent in self._agents.items()}
        return [
            child
            for child, ids in paths.items()
            if ids[: len(call_ids)] == call_ids and (itself or len(ids) > len(call_ids))
        ]

    def _end_agents(self, children: Iterable[str]) -> None:
        for child in children:
            agent = self._agents.get(child)
            if agent is None:
                continue
            agent.ended = True
            # What could not be read while its parent had not heard of its end can be read now.
            agent.looked = agent.caught_up
            agent.news_of_end.set()
            if any(address.startswith(f"{address_of((), agent.path[0].call_id)}/") for address in self._shown):
                continue
            if agent.following:
                agent.following.cancel()
            del self._agents[child]

    async def _follow_agent(self, agent: _FollowedAgent) -> None:
        pause = FIRST_LOOK_SECONDS
        while not agent.over:
            had_ended = agent.ended
            try:
                await self._read_agent(agent)
            except NotFound:  # it is about to start; or it was deleted, or its retention is over
                agent.over = agent.ended
            except (EverturnError, RPCError):  # whoever follows the parent meets the same trouble, and is told
                agent.reader = EventReader()
                agent.caught_up = False
            if agent.over:
                self._news.put_nowait(None)
                return
            if agent.ended and not had_ended:
                continue  # it ended in this moment, so it may not have been read
            agent.looked = True
            self._news.put_nowait(None)
            await self._pause_before_look(agent, pause)
            pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    async def _pause_before_look(self, agent: _FollowedAgent, seconds: float) -> None:
        """Shorter if its end becomes known: somebody waits for what it said last."""
        if agent.ended:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(agent.news_of_end.wait(), seconds)

    async def _read_agent(self, agent: _FollowedAgent) -> None:
        """Reads its history to the end, and tells what happens. Returns at once if it has not begun yet, or if its
        parent has not heard of its end."""
        conversation = self._conversation(agent.asked_agent.conversation_id)
        described = await conversation._describe()
        runs = not is_over(described)
        if not runs and not agent.ended:
            return  # it is an earlier one of this id, or its parent is about to hear of its end
        async for run_id, step in conversation._runs.follow(described.run_id):
            if isinstance(step, steps.RunStarted) and not self._is_asked(agent, step):
                break
            agent.caught_up |= run_id != described.run_id or step.id >= described.history_length
            if type(step) is not steps.Step:
                self._take_step_of(step, agent.path)
                self._tell_events(agent, agent.reader.read_step(step, run_id=run_id))
            agent.looked |= agent.caught_up
            if agent.caught_up:
                self._tell_waiting(agent)
                self._news.put_nowait(None)
        agent.over = True

    def _is_asked(self, agent: _FollowedAgent, step: steps.RunStarted) -> bool:
        """Whether it works for this parent, and is no other conversation of the same id."""
        caller = step.start.caller
        parents = [self._parent, *(asked_agent.conversation_id for asked_agent in agent.path)]
        return caller is not None and (caller.conversation_id, caller.call_id) == (
            parents[-2],
            agent.asked_agent.call_id,
        )

    def _tell_events(self, agent: _FollowedAgent, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case ApprovalRequested() | AnswerRequested() if self._live_only:
                    agent.requests[event.call.call_id] = event
                case Decided() if self._live_only and event.call_id not in agent.waiting_since:
                    agent.requests.pop(event.call_id, None)
                case ToolFinished() if self._live_only:
                    agent.requests.pop(event.result.call_id, None)
                case ApprovalRequested() | AnswerRequested() | Decided() | ToolFinished():
                    self._put_event(agent, event)
                case _:
                    pass

    def _tell_waiting(self, agent: _FollowedAgent) -> None:
        """The requests that were held back until it was known that their calls wait."""
        pending = agent.by_history.state.pending
        for call_id, request in agent.requests.items():
            if call_id in pending and agent.waiting_since.get(call_id) != request.at:
                agent.waiting_since[call_id] = request.at
                self._put_event(agent, request)
        agent.requests.clear()

    def _put_event(self, agent: _FollowedAgent, event: Event) -> None:
        there = {"child": agent.asked_agent.conversation_id, "path": agent.path}
        self._news.put_nowait(event.model_copy(update=there))


def _call_ids(agent: _FollowedAgent) -> list[str]:
    return [asked_agent.call_id for asked_agent in agent.path]
