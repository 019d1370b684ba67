"""What a worker knows of a conversation that it has in memory, it does not read from the history; and what it can do at
once, it does without a way through the server's queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import Client, Worker, tool
from everturn.devserver import DevServer
from everturn.records import ToolResult
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting

Scripted = Callable[..., ScriptedModel]

CALLS = 8
"""Of one reply: more than temporalio begins at once by itself."""


async def test_a_worker_that_has_replayed_a_conversation_does_not_read_it_once_more(
    client: Client, scripted: Scripted
) -> None:
    @tool(effect="read")
    def fetch(size: int) -> str:
        return "x" * size

    model = scripted([call("fetch", {"size": 10}), call("fetch", {"size": 5_000}), "First.", "Second.", "Third."])
    agent = agent_on(model, tools=[fetch])
    async with hosting(client, agent):
        conversation = await client.start(agent, "One", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "First."
    async with hosting(client, agent) as second:
        await conversation.send("Two")
        assert await conversation.reply() == "Second."
        await conversation.send("Three")
        assert await conversation.reply() == "Third."
        assert (second.prefixes.hits, second.prefixes.misses) == (2, 0)
    assert [len(request["messages"]) for request in model.requests[-2:]] == [7, 9]
    assert model.requests[-1]["messages"][4]["content"] == "x" * 5_000


class Elsewhere(Interceptor):
    """The tools might as well have run on another worker: this one remembers none of their results."""

    worker: Worker

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        elsewhere = self

        class Forgetting(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
                result = await self.next.execute_activity(input)
                if isinstance(result, ToolResult):
                    elsewhere.worker.prefixes.forget_results(activity.info().workflow_run_id or "", [result.call_id])
                return result

        return Forgetting(next)


async def test_results_of_calls_that_ran_on_another_worker_are_not_read_from_the_history(
    client: Client, scripted: Scripted
) -> None:
    @tool(effect="read")
    async def fetch(number: int) -> str:
        return f"{number} " + "x" * 4_000

    model = scripted([[call("fetch", {"number": n}) for n in range(CALLS)], "Done."])
    agent, elsewhere = agent_on(model, tools=[fetch]), Elsewhere()
    async with hosting(client, agent, interceptors=[elsewhere]) as elsewhere.worker:
        await client.run(agent, "Go")
        assert (elsewhere.worker.prefixes.hits, elsewhere.worker.prefixes.misses) == (1, 0)
    results = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert results == [f"{number} " + "x" * 4_000 for number in range(CALLS)]


async def test_all_calls_of_a_reply_begin_at_once_where_their_conversation_is(
    server: DevServer, client: Client, scripted: Scripted
) -> None:
    @tool(effect="read")
    async def fetch(number: int) -> int:
        return number

    agent = agent_on(scripted([[call("fetch", {"number": n}) for n in range(CALLS)], "Done."]), tools=[fetch])
    another = await Client.connect(server.address, task_queue=client.task_queue, identity="another")
    async with hosting(client, agent), hosting(another, agent):
        conversation = await client.start(agent, "Go")
        await conversation.outcome()
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    started = [e.activity_task_started_event_attributes.identity for e in history.events]
    began = history.events[0].workflow_execution_started_event_attributes
    assert began.eager_execution_accepted
    assert Counter(filter(None, started)) == {client.temporal.identity: CALLS + 2}
