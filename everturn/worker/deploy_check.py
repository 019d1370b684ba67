"""Before a deploy: do the new code and its agents still fit the conversations that run?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from everturn import names
from everturn.agent import Agent, with_sub_agents
from everturn.client.client import Client
from everturn.errors import EverturnError
from everturn.history import reader
from everturn.history.state_by_history import StateByHistory
from everturn.plans import HandOver, PlannedCall, RunPlan
from everturn.records import ToolCall
from everturn.tools.schema import InvalidArguments


@dataclass(frozen=True)
class Conflict:
    """What a running conversation would meet with these agents."""

    conversation: str
    problem: str


async def conflicts(client: Client, agents: Sequence[Agent]) -> AsyncIterator[Conflict]:
    """Every conflict of the conversations that run on the client's task queue. Reads the history of each, and replays
    it with this code."""
    # Replaying takes the workflow's code, which nothing else here needs.
    from everturn.testing.replay import Diverged, replay_history

    by_name = with_sub_agents(agents)
    query = (
        f"WorkflowType = '{names.CONVERSATION}' AND ExecutionStatus = 'Running' AND TaskQueue = '{client.task_queue}'"
    )
    async for execution in client.temporal.list_workflows(query):
        try:
            recorded = await client.temporal.get_workflow_handle(execution.id, run_id=execution.run_id).fetch_history()
            await replay_history(recorded, data_converter=client.temporal.data_converter)
            by_history = StateByHistory()
            async for step in reader.read_steps(client.temporal, execution.id, run_id=execution.run_id):
                by_history.take(step)
        except EverturnError as error:
            yield Conflict(execution.id, f"diverges: {error.where}" if isinstance(error, Diverged) else error.message)
            continue
        for problem in _problems(by_history, by_name):
            yield Conflict(execution.id, problem)


def _problems(by_history: StateByHistory, agents: Mapping[str, Agent]) -> list[str]:
    name = by_history.state.agent
    agent = agents.get(name)
    if agent is None:
        return [f"its agent {name!r} is not hosted; these are: {', '.join(sorted(agents)) or 'none'}"]
    problems = [_problem(agent, call, planned, agents) for call, planned in by_history.calls.unsettled]
    return [problem for problem in problems if problem]


def _problem(agent: Agent, call: ToolCall, planned: PlannedCall, agents: Mapping[str, Agent]) -> str:
    """What is wrong with an open call; empty if nothing is."""
    if not isinstance(planned, RunPlan):
        return ""
    if isinstance(planned, HandOver):
        to = planned.successor.agent
        return "" if to in agents else f"call {call.call_id!r} hands it on to {to!r}, which is not hosted"
    tool = agent.tool(call.name)
    if tool is None:
        return f"call {call.call_id!r} is for the tool {call.name}, which agent {agent.name!r} no longer has"
    if tool.effect != planned.effect:
        return f"call {call.call_id!r} was planned with effect {planned.effect!r}, and {call.name} has {tool.effect!r}"
    try:
        tool.check(call.arguments)
    except InvalidArguments as error:
        return f"call {call.call_id!r} no longer fits the schema of {call.name}: {str(error).splitlines()[0]}"
    return ""
