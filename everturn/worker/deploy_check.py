"""Before a deploy: do the new code and its agents still fit the conversations that run?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from everturn.agent import Agent, with_sub_agents
from everturn.client.client import Client
from everturn.client.conversations_by_query import draw_sample, find_matching
from everturn.errors import EverturnError
from everturn.history.reader import HistoryReader
from everturn.history.state_by_history import StateByHistory
from everturn.plans import PlannedCall, RunHandoff, RunPlan
from everturn.records import ToolCall
from everturn.temporal.any_status import OPEN_QUERY
from everturn.temporal.filter_values import quoted
from everturn.tools.arguments import InvalidArguments

SHOWN: Final = 3
"""Conversations that a line names beside the first one."""


@dataclass(frozen=True)
class DeployConflict:
    """What a running conversation would meet with these agents."""

    conversation: str
    problem: str
    kind: str = ""
    """The same for conflicts that have one cause: the problem, without what is this conversation's own."""


async def find_conflicts(
    client: Client, agents: Sequence[Agent], *, query: str = OPEN_QUERY, sample: int | None = None
) -> AsyncGenerator[DeployConflict]:
    """Every conflict of the conversations that run on the client's task queue. Reads the history of each, and replays
    it with this code, several at the same time. `query`: only of those that this filter of Temporal's finds; `sample`:
    only of so many, drawn at random. Raises Refused for what is no filter."""
    # Replaying takes the workflow's code, which nothing else here needs.
    from everturn.testing.replay import Diverged, replay_all

    by_name = with_sub_agents(agents)
    executions = find_matching(client.temporal, query, also=f"{OPEN_QUERY} AND TaskQueue = {quoted(client.task_queue)}")
    async with aclosing(replay_all(client, draw_sample(executions, sample))) as done:
        async for replayed in done:
            conversation = replayed.history.workflow_id
            if isinstance(replayed.problem, Diverged):
                yield DeployConflict(conversation, f"diverges: {replayed.problem.where}", kind=replayed.problem.kind)
                continue
            if replayed.problem:
                yield DeployConflict(conversation, replayed.problem.message, kind=replayed.problem.message)
                continue
            by_history = StateByHistory()
            reader = HistoryReader(client.temporal.data_converter)
            try:
                for event in replayed.history.events:
                    by_history.take_step(await reader.read_event(event))
            except EverturnError as error:
                yield DeployConflict(conversation, error.message, kind=error.message)
                continue
            if replayed.history.events:
                for conflict in _conflicts_of(conversation, by_history, by_name):
                    yield conflict


@dataclass
class ConflictGroup:
    """Conflicts of one kind."""

    example: DeployConflict
    """The first that was found."""
    conversations: list[str] = field(default_factory=list)
    """All that have it, without repetition."""

    @property
    def in_words(self) -> str:
        words = f"{self.example.conversation}: {self.example.problem}"
        others = self.conversations[1:]
        if not others:
            return words
        more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
        return f"{words} ({len(others):,} more like it: {', '.join(others[:SHOWN])}{more})"


def group_conflicts(conflicts: Iterable[DeployConflict]) -> list[ConflictGroup]:
    """One for each kind of conflict; what most conversations have comes first."""
    by_kind: dict[str, ConflictGroup] = {}
    for conflict in conflicts:
        group = by_kind.setdefault(conflict.kind or conflict.problem, ConflictGroup(conflict))
        if conflict.conversation not in group.conversations:
            group.conversations.append(conflict.conversation)
    return sorted(by_kind.values(), key=lambda group: -len(group.conversations))


def _conflicts_of(
    conversation_id: str, by_history: StateByHistory, agents: Mapping[str, Agent]
) -> list[DeployConflict]:
    name = by_history.state.agent
    agent = agents.get(name)
    if agent is None:
        problem = f"its agent {name!r} is not hosted; these are: {', '.join(sorted(agents)) or 'none'}"
        return [DeployConflict(conversation_id, problem, kind=problem)]
    unsettled = by_history.calls.unsettled
    problems = [(call, _call_problem(agent, call, planned, agents)) for call, planned in unsettled]
    return [
        DeployConflict(conversation_id, f"call {call.call_id!r} {problem}", kind=problem)
        for call, problem in problems
        if problem
    ]


def _call_problem(agent: Agent, call: ToolCall, planned: PlannedCall, agents: Mapping[str, Agent]) -> str:
    """What is wrong with an open call, in the words after its id; empty if nothing is."""
    if not isinstance(planned, RunPlan):
        return ""
    if isinstance(planned, RunHandoff):
        to = planned.successor.agent
        if to in agents:
            return ""
        return f"hands it on to {to!r}, which is not hosted"
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
