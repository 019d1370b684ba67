"""Conversations are listed and counted by status, in Temporal's own index, which lags a little."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.service import RPCError

from everturn import Client, names, tool
from everturn.cli.doctor_finding import Finding
from everturn.cli.doctor_temporal import search_attributes_finding
from everturn.devserver import DevServer
from everturn.errors import ConversationError
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import check_all
from tests.support.waiting import eventually, take_instead, waiting

UPSERTED = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES


@tool(needs_approval=True)
def refund(cents: int) -> str:
    return f"refunded {cents}"


@pytest.fixture
def name() -> str:
    """An agent of this test alone: the index is shared."""
    return f"clerk-{uuid4().hex[:8]}"


async def _upserts(client: Client, conversation_id: str) -> int:
    history = await client.temporal.get_workflow_handle(conversation_id).fetch_history()
    return sum(event.event_type == UPSERTED for event in history.events)


async def test_conversations_are_counted_by_the_status_that_the_list_gives_them(
    client: Client, scripted: Callable[..., ScriptedModel], name: str
) -> None:
    model = scripted(lambda said: [call("refund", {"cents": 1})] if "refund" in str(said[-1]) else "Done.")
    agent = agent_on(model, tools=[refund], name=name)
    async with hosting(client, agent):
        waits = [await client.start(agent, "refund") for _ in range(3)]
        await client.run(agent, "hello")
        await waiting(await client.start(agent, "refund", keep_open=timedelta(hours=1)))
        for one in waits:
            await waiting(one)
        await client.temporal.get_workflow_handle(waits[0].id).terminate()
        expected = {"awaiting_approval": 3, "done": 1, "terminated": 1}
        await eventually(lambda: _is(client, name, expected), what=f"the counts are {expected}")
        listed = [conversation async for conversation in client.conversations(agent=name)]
        assert sorted(one.status for one in listed) == ["awaiting_approval"] * 3 + ["done", "terminated"]
        assert {one.model for one in listed} == {"scripted:demo"}
        waiting_ones = {
            conversation.id async for conversation in client.conversations(agent=name, status="awaiting_approval")
        }
        assert {waits[1].id, waits[2].id} < waiting_ones
        assert waits[0].id not in waiting_ones, "it was terminated, and could not say so"
        assert (await client.count())["awaiting_approval"] >= 3


async def _is(client: Client, agent: str, expected: dict[str, int]) -> bool:
    return await client.count(agent) == expected


async def test_a_status_is_written_only_when_it_changes(
    client: Client, scripted: Callable[..., ScriptedModel], name: str
) -> None:
    @tool
    def look_up(page: int) -> str:
        return f"page {page}"

    agent = agent_on(scripted([*([call("look_up", {"page": page})] for page in range(5)), "Done."]), tools=[look_up])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read five pages.")
        outcome = await conversation.outcome()
    assert outcome.turns == 6
    assert await _upserts(client, conversation.id) == 1, "it was running from the start, and then done"


@pytest.mark.long
async def test_an_older_run_of_a_conversation_is_no_conversation_of_its_own(
    client: Client, scripted: Callable[..., ScriptedModel], name: str, bounds: Bounds
) -> None:
    bounds(events=20)

    @tool
    def look_up(page: int) -> str:
        return f"page {page}"

    turns = [[call("look_up", {"page": page})] for page in range(6)]
    agent = agent_on(scripted([*turns, "Done."]), tools=[look_up], name=name)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read six pages.")
        first_run = (await client.temporal.get_workflow_handle(conversation.id).describe()).run_id
        await conversation.outcome()
        assert await conversation.latest_run() != first_run
    await eventually(lambda: _is(client, name, {"done": 1}), what="one is done")
    assert [conversation.id async for conversation in client.conversations(agent=name)] == [conversation.id]


@pytest.fixture
async def bare(server: DevServer) -> AsyncIterator[Client]:
    """A client of a namespace that has none of everturn's search attributes."""
    namespace = f"bare-{uuid4().hex[:8]}"
    of_default = await Client.connect(server.address)
    request = RegisterNamespaceRequest(
        namespace=namespace, workflow_execution_retention_period=Duration(seconds=3 * 86_400)
    )
    await of_default.temporal.workflow_service.register_namespace(request, retry=True)
    client = await Client.connect(server.address, namespace=namespace, task_queue=f"test-{namespace}", by="tester")
    await eventually(lambda: _known(client), what=f"the server knows {namespace}")
    yield client
    await check_all(client)


async def _known(client: Client) -> bool:
    try:
        await client.count()
    except (RPCError, ConversationError):
        return False
    return True


async def test_a_namespace_without_search_attributes_is_left_without_until_doctor_registers_them(
    bare: Client, server: DevServer, scripted: Callable[..., ScriptedModel], name: str
) -> None:
    agent = agent_on(scripted(lambda _: "Done."), name=name)
    async with hosting(bare, agent):
        outcome = await bare.run(agent, "hello", id="before")
        assert outcome.status == "completed"
        assert await _upserts(bare, "before") == 0
        await eventually(lambda: _counts(bare, {"completed": 1}), what="Temporal's own word is counted")
        with pytest.raises(ConversationError, match="doctor --fix"):
            await bare.count(agent=name)

    assert (await search_attributes_finding(bare, fix=False)).state == "wrong"
    assert (await search_attributes_finding(bare, fix=True)).state == "ok"
    again = await Client.connect(server.address, namespace=bare.temporal.namespace, task_queue=bare.task_queue)
    await eventually(lambda: _is_registered(again), what="the attributes are registered")
    async with hosting(again, agent):
        await again.run(agent, "hello", id="after")
        assert await _upserts(again, "after") == 1
    await eventually(lambda: _is(again, name, {"done": 1}), what="the one with a status is counted by it")
    await eventually(lambda: _counts(again, {"completed": 1, "done": 1}), what="so is the one without")


async def _counts(client: Client, expected: dict[str, int]) -> bool:
    return await client.count() == expected


async def _is_registered(client: Client) -> bool:
    found: Finding = await search_attributes_finding(client, fix=False)
    return found.state == "ok"


async def test_a_conversation_whose_workflow_task_fails_is_stuck_and_not_idle(
    client: Client, scripted: Callable[..., ScriptedModel], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(["Hi."]), name=name)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug in the workflow's code")

    async with hosting(client, agent, cached_conversations=0):
        conversation = await client.start(agent, "hello", keep_open=timedelta(minutes=5))
        await conversation.reply()
        await eventually(lambda: _is(client, name, {"idle": 1}))
        with monkeypatch.context() as new_code:
            take_instead(new_code, names.MESSAGE, broken)
            await client.temporal.get_workflow_handle(conversation.id).signal("message", {"text": "again"})
            await eventually(lambda: _is(client, name, {"stuck": 1}), what="it is counted as stuck")
            [stuck] = [conversation async for conversation in client.conversations(agent=name, status="stuck")]
            assert stuck.id == conversation.id
            assert "its workflow task fails again and again" in stuck.trouble
            assert [conversation.id async for conversation in client.conversations(agent=name, status="idle")] == []
    await client.temporal.get_workflow_handle(conversation.id).terminate()
    await eventually(lambda: _is(client, name, {"terminated": 1}), what="one that is over is no longer stuck")
