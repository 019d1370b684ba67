"""A tool in TypeScript: a real worker of Temporal's TypeScript SDK, killed in the middle and taken over by another.

`npm install --no-save && npm run build` in tests/typescript makes the worker; `.ci/run` does that.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import BaseModel

from everturn import Client, activity_tool, nexus_tool
from everturn.events import ToolLost, ToolStarted
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.foreign_workers import ForeignWorker, foreign_worker
from tests.support.nexus_endpoints import endpoint_to
from tests.support.transcripts import results_of, told
from tests.support.waiting import eventually, waiting

FOLDER = Path(__file__).parents[1] / "typescript"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "worker.mjs").exists() or not (FOLDER / "node_modules" / "@temporalio").exists(),
        reason="the worker is not built: run `npm install --no-save && npm run build` in tests/typescript",
    ),
]

Scripted = Callable[..., ScriptedModel]


def typescript_worker(client: Client, queue: str, name: str) -> AbstractAsyncContextManager[ForeignWorker]:
    assert NODE
    return foreign_worker(client, [NODE, "worker.mjs"], FOLDER, queue=queue, name=name)


class Book(BaseModel):
    title: str
    pages: int = 10


async def test_a_tool_in_typescript_that_is_killed_in_the_middle_is_taken_over(
    client: Client, scripted: Scripted
) -> None:
    queue = f"typescript-{uuid4().hex[:8]}"
    render = activity_tool("render", task_queue=queue, schema=Book, heartbeat_timeout=timedelta(seconds=2))
    agent = agent_on(scripted([[call("render", {"title": "Alice"}, id="a")], "Done."]), tools=[render])
    async with hosting(client, agent), typescript_worker(client, queue, "first") as first:
        conversation = await client.start(agent, "Go")
        await eventually(lambda: "first renders page 2" in first.said, what="it is in the middle")
        await first.kill()
        async with typescript_worker(client, queue, "second") as second:
            assert (await conversation.outcome()).text == "Done."
            assert "second renders page" in second.said
    [result] = results_of(await conversation.transcript())
    assert result.text == '{"title":"Alice","pages":10,"by":"second","key":"call:a"}'
    kinds = [type(event) for event in await told(conversation)]
    assert [kind for kind in kinds if kind in (ToolStarted, ToolLost)] == [ToolStarted, ToolLost, ToolStarted]


async def test_its_arguments_its_errors_and_its_approvals_are_as_those_of_a_function(
    client: Client, scripted: Scripted
) -> None:
    queue = f"typescript-{uuid4().hex[:8]}"
    numbers = {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
    order = {"properties": {"order": {"type": "string"}}, "required": ["order"]}
    tools = [
        activity_tool("add", task_queue=queue, schema=numbers, by_position=["a", "b"], effect="read"),
        activity_tool(
            "refund", task_queue=queue, schema=order, by_position=["order"], effect="once", needs_approval=True
        ),
    ]
    calls = [
        call("add", {"a": 1, "b": 2}, id="a"),
        call("add", {"a": 1}, id="b"),
        call("refund", {"order": "81"}, id="c"),
    ]
    agent = agent_on(scripted([calls, "Done."]), tools=tools)
    async with hosting(client, agent), typescript_worker(client, queue, "only"):
        conversation = await client.start(agent, "Go")
        assert await waiting(conversation) == ("c",)
        await conversation.approve("c")
        assert (await conversation.outcome()).text == "Done."
    texts = {result.call_id: result.text for result in results_of(await conversation.transcript())}
    assert texts["a"] == "3"
    assert "b: Field required" in texts["b"]
    assert texts["c"] == "RangeError: There is no order 81."


async def test_nexus_operations_in_typescript_are_tools(client: Client, scripted: Scripted) -> None:
    queue = f"typescript-{uuid4().hex[:8]}"
    endpoint = await endpoint_to(client, queue)
    order = {"properties": {"order": {"type": "string"}, "pages": {"type": "integer"}}, "required": ["order", "pages"]}
    tools = [
        nexus_tool("quote", endpoint=endpoint, service="Shop", schema=order, needs_approval=True),
        nexus_tool("cancel", endpoint=endpoint, service="Shop", schema=order),
    ]
    calls = [
        call("quote", {"order": "81", "pages": 3}, id="a"),
        call("quote", {"order": "81"}, id="b"),
        call("cancel", {"order": "81", "pages": 3}, id="c"),
    ]
    agent = agent_on(scripted([calls, "Done."]), tools=tools)
    async with hosting(client, agent), typescript_worker(client, queue, "only"):
        conversation = await client.start(agent, "Go")
        assert await waiting(conversation) == ("a",)
        await conversation.approve("a")
        assert (await conversation.outcome()).text == "Done."
    texts = {result.call_id: result.text for result in results_of(await conversation.transcript())}
    assert texts["a"] == '{"order":"81","cents":15,"by":"only"}'
    assert "pages: Field required" in texts["b"]
    assert "has left" in texts["c"]
