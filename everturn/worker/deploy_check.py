"""Before a deploy: do the new code and its agents still fit the conversations that run?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from everturn.agent import Agent, with_sub_agents
from everturn.client.client import Client
from everturn.client.listing import quoted
from everturn.client.matching import matching, sampled
from everturn.errors import EverturnError
from everturn.history.reader import HistoryReader
from everturn.history.state_by_history import StateByHistory
from everturn.plans import PlannedCall, RunHandoff, RunPlan
from everturn.records import ToolCall
from everturn.temporal.any_status import OPEN_QUERY
from everturn.tools.arguments import InvalidArguments

SHOWN: Final = 3
"""Conversations that a line names beside the first one."""


@dataclass(frozen=True)
class Conflict:
    """What a running conversation would meet with these agents."""

    conversation: str
    problem: str
    kind: str = ""
    """The same for conflicts that have one cause: the problem, without what is this conversation's own."""


async def conflicts(
    client: Client, agents: Sequence[Agent], *, query: str = OPEN_QUERY, sample: int | None = None
) -> AsyncGenerator[Conflict]:
    """Every conflict of the conversations that run on the client's task queue. Reads the history of each, and replays
    it with this code, several at the same time. `query`: only of those that this filter of Temporal's finds; `sample`:
    only of so many, drawn at random. Raises Refused for what is no filter."""
    # Replaying takes the workflow's code, which nothing else here needs.
    from everturn.testing.replay import Diverged, replay_all

    by_name = with_sub_agents(agents)
    found = matching(client.temporal, query, also=f"{OPEN_QUERY} AND TaskQueue = {quoted(client.task_queue)}")
    async with aclosing(replay_all(client, sampled(found, sample))) as done:
        async for one in done:
            conversation = one.history.workflow_id
            if isinstance(one.problem, Diverged):
                yield Conflict(conversation, f"diverges: {one.problem.where}", kind=one.problem.kind)
                continue
            if one.problem:
                yield Conflict(conversation, one.problem.message, kind=one.problem.message)
                continue
            by_history, reader = StateByHistory(), HistoryReader(client.temporal.data_converter)
            try:
                for event in one.history.events:
                    by_history.take_step(await reader.read_event(event))
            except EverturnError as error:
                yield Conflict(conversation, error.message, kind=error.message)
                continue
            for conflict in _problems(conversation, by_history, by_name) if one.history.events else ():
                yield conflict


@dataclass
class Group:
    """Conflicts of one kind."""

    example: Conflict
    """The first that was found."""
    conversations: list[str] = field(default_factory=list)
    """All that have it, without repetition."""

    @property
    def in_words(self) -> str:
        others = self.conversations[1:]
        more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
        like_it = f" ({len(others):,} more like it: {', '.join(others[:SHOWN])}{more})" if others else ""
        return f"{self.example.conversation}: {self.example.problem}{like_it}"


def grouped(found: Iterable[Conflict]) -> list[Group]:
    """One for each kind of conflict; what most conversations have comes first."""
    by_kind: dict[str, Group] = {}
    for one in found:
        group = by_kind.setdefault(one.kind or one.problem, Group(one))
        if one.conversation not in group.conversations:
            group.conversations.append(one.conversation)
    return sorted(by_kind.values(), key=lambda group: -len(group.conversations))


def _problems(conversation: str, by_history: StateByHistory, agents: Mapping[str, Agent]) -> list[Conflict]:
    name = by_history.state.agent
    agent = agents.get(name)
    if agent is None:
        problem = f"its agent {name!r} is not hosted; these are: {', '.join(sorted(agents)) or 'none'}"
        return [Conflict(conversation, problem, kind=problem)]
    unsettled = by_history.calls.unsettled
    problems = [(call, _problem(agent, call, planned, agents)) for call, planned in unsettled]
    return [Conflict(conversation, f"call {call.call_id!r} {why}", kind=why) for call, why in problems if why]


def _problem(agent: Agent, call: ToolCall, planned: PlannedCall, agents: Mapping[str, Agent]) -> str:
    """What is wrong with an open call, in the words after its id; empty if nothing is."""
    if not isinstance(planned, RunPlan):
        return ""
    if isinstance(planned, RunHandoff):
        to = planned.successor.agent
        return "" if to in agents else f"hands it on to {to!r}, which is not hosted"
    tool = agent.tool(call.name)
    if tool is None:
        return f"is for the tool {call.name}, which agent {agent.name!r} no longer has"
    if tool.effect != planned.effect:
        return f"was planned with effect {planned.effect!r}, and {call.name} has {tool.effect!r}"
    try:
        tool.check(call.arguments)
    except InvalidArguments as error:
        first_problem = str(error).partition("\n")[0]  # whole: each problem is one line
        return f"no longer fits the schema of {call.name}: {first_problem}"
    return ""
