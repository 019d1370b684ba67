"""A tool in Go: a real worker of Temporal's Go SDK, killed in the middle and taken over by another.

`go build -o worker .` in tests/go makes the worker; `.ci/run` does that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import BaseModel
from temporalio.common import RetryPolicy

from everturn import Client, activity_tool
from everturn.events import ToolLost, ToolStarted
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.foreign_workers import ForeignWorker, foreign_worker
from tests.support.transcripts import results_of, told
from tests.support.waiting import eventually, waiting

WORKER = Path(__file__).parents[1] / "go" / "worker"

pytestmark = pytest.mark.skipif(
    not WORKER.exists(), reason="the worker is not built: run `go build -o worker .` in tests/go"
)

Scripted = Callable[..., ScriptedModel]


class Book(BaseModel):
    title: str
    pages: int = 10


def go_worker(client: Client, queue: str, name: str) -> AbstractAsyncContextManager[ForeignWorker]:
    return foreign_worker(client, [str(WORKER)], WORKER.parent, queue=queue, name=name)


async def test_a_tool_in_go_that_is_killed_in_the_middle_is_taken_over(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    queue = f"go-{uuid4().hex[:8]}"
    render = activity_tool("render", task_queue=queue, schema=Book, heartbeat_timeout=timedelta(seconds=2))
    agent = agent_on(scripted([[call("render", {"title": "Alice"}, id="a")], "Done."]), tools=[render])
    async with (
        hosting(client, agent, cached_conversations=cached_conversations),
        go_worker(client, queue, "first") as first,
    ):
        conversation = await client.start(agent, "Go")
        await eventually(lambda: "first renders page 2" in first.said, what="it is in the middle")
        await first.kill()
        async with go_worker(client, queue, "second") as second:
            assert (await conversation.outcome()).text == "Done."
            assert "second renders page" in second.said
    [result] = results_of(await conversation.transcript())
    assert result.text == '{"by":"second","key":"call:a","pages":10,"title":"Alice"}'
    kinds = [type(event) for event in await told(conversation)]
    assert [kind for kind in kinds if kind in (ToolStarted, ToolLost)] == [ToolStarted, ToolLost, ToolStarted]


async def test_its_arguments_its_errors_and_its_approvals_are_as_those_of_a_function(
    client: Client, scripted: Scripted
) -> None:
    queue = f"go-{uuid4().hex[:8]}"
    numbers = {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
    order = {"properties": {"order": {"type": "string"}}, "required": ["order"]}
    tools = [
        activity_tool("add", task_queue=queue, schema=numbers, by_position=["a", "b"], effect="read"),
        activity_tool(
            "refund", task_queue=queue, schema=order, by_position=["order"], effect="once", needs_approval=True
        ),
        activity_tool("flaky", task_queue=queue, schema={}, retry=RetryPolicy(maximum_attempts=3)),
    ]
    calls = [
        call("add", {"a": 1, "b": 2}, id="a"),
        call("add", {"a": "one", "b": 2}, id="b"),
        call("refund", {"order": "81"}, id="c"),
        call("flaky", {}, id="d"),
    ]
    agent = agent_on(scripted([calls, "Done."]), tools=tools)
    async with hosting(client, agent), go_worker(client, queue, "only"):
        conversation = await client.start(agent, "Go")
        assert await waiting(conversation) == ("c",)
        await conversation.approve("c")
        assert (await conversation.outcome()).text == "Done."
    texts = {result.call_id: result.text for result in results_of(await conversation.transcript())}
    assert texts["a"] == "3"
    assert "cannot unmarshal string" in texts["b"], "a schema's types are checked by whoever runs it"
    assert texts["c"] == "NoSuchOrder: There is no order 81."
    assert texts["d"] == "took 3 tries"
