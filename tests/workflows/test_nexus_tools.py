"""Nexus operations as tools: each runs as it is, behind a real endpoint of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import nexusrpc
import nexusrpc.handler
import pytest
from temporalio import nexus, workflow
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker as TemporalWorker

from everturn import Client, Limits, nexus_tool
from everturn.events import ToolFinished, ToolStarted, WorkerAwaited
from everturn.testing import ScriptedModel, call
from tests.crash.workers import WorkerProcess
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.nexus_endpoints import endpoint_to, make_endpoint
from tests.support.nexus_shop import Receipt, Refund, Shop
from tests.support.prepared import Program
from tests.support.transcripts import results_of, told
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@workflow.defn(sandboxed=False)
class Shipping:
    """Takes until somebody says that it is there."""

    def __init__(self) -> None:
        self.arrived = False

    @workflow.signal
    def arrive(self) -> None:
        self.arrived = True

    @workflow.run
    async def run(self, order_id: str) -> str:
        if order_id == "lost":
            raise ApplicationError("lost at sea", type="Lost")
        await workflow.wait_condition(lambda: self.arrived)
        return f"shipped {order_id}"


@nexusrpc.handler.service_handler(service=Shop)
class Handler:
    def __init__(self, *, answers: asyncio.Event | None = None) -> None:
        """`answers`: it says that it has begun a shipping once this is set."""
        self.headers: list[dict[str, str]] = []
        self._answers = answers

    @nexusrpc.handler.sync_operation
    async def refund(self, ctx: nexusrpc.handler.StartOperationContext, given: Refund) -> Receipt:
        self.headers.append(dict(ctx.headers))
        return Receipt(given.order_id, given.cents)

    @nexusrpc.handler.sync_operation
    async def greet(self, ctx: nexusrpc.handler.StartOperationContext, given: str) -> str:
        return f"Hello {given}"

    @nexusrpc.handler.sync_operation
    async def now(self, ctx: nexusrpc.handler.StartOperationContext, given: None) -> str:
        return "noon"

    @nexus.workflow_run_operation
    async def ship(self, ctx: nexus.WorkflowRunOperationContext, given: str) -> nexus.WorkflowHandle[str]:
        handle = await ctx.start_workflow(
            Shipping.run, given, id=f"ship-{given}", id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
        )
        if self._answers:
            await self._answers.wait()
        return handle

    @nexusrpc.handler.sync_operation
    async def fail(self, ctx: nexusrpc.handler.StartOperationContext, given: str) -> str:
        match given:
            case "failed":
                raise nexusrpc.OperationError("no money left", state=nexusrpc.OperationErrorState.FAILED)
            case "cancelled":
                raise nexusrpc.OperationError("changed my mind", state=nexusrpc.OperationErrorState.CANCELED)
            case "refused":
                raise nexusrpc.HandlerError("not for you", type=nexusrpc.HandlerErrorType.UNAUTHORIZED)
            case _:
                raise ApplicationError("closed on mondays", type="Closed", non_retryable=True)


@asynccontextmanager
async def handling(client: Client, queue: str, handler: Any = None) -> AsyncIterator[None]:
    """A worker of another team, as Temporal has it."""
    theirs = await TemporalClient.connect(client.temporal.service_client.config.target_host)
    async with TemporalWorker(
        theirs, task_queue=queue, workflows=[Shipping], nexus_service_handlers=[handler or Handler()]
    ):
        yield


def queue_of() -> str:
    return f"shop-{uuid4().hex[:8]}"


async def test_an_operation_runs_with_its_own_input_and_output(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    queue, handler = queue_of(), Handler()
    endpoint = await endpoint_to(client, queue)
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
    tools = [
        nexus_tool(Shop.refund, endpoint=endpoint, service=Shop),
        nexus_tool(Shop.greet, endpoint=endpoint, service=Shop),
        nexus_tool(Shop.now, endpoint=endpoint, service=Shop),
        nexus_tool("refund", endpoint=endpoint, service="Shop", schema=schema, name="refund_by_name"),
        nexus_tool(Shop.ship, endpoint=endpoint, service=Shop),
    ]
    order = uuid4().hex
    calls = [
        call("refund", {"order_id": "81", "cents": 12}, id="a"),
        call("greet", {"input": "Ada"}, id="b"),
        call("now", {}, id="c"),
        call("refund_by_name", {"order_id": "82"}, id="d"),
        call("refund", {"cents": 12}, id="e"),
        call("ship", {"input": order}, id="f"),
    ]
    agent = agent_on(scripted([calls, "Done."]), tools=tools)
    async with handling(client, queue, handler), hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        handle = client.temporal.get_workflow_handle(f"ship-{order}")
        await eventually(lambda: _runs(handle))
        await handle.signal("arrive")
        assert (await conversation.outcome()).text == "Done."
    texts = {result.call_id: result.text for result in results_of(await conversation.transcript())}
    assert texts == {
        "a": '{"order_id":"81","refunded":12}',
        "b": "Hello Ada",
        "c": "noon",
        "d": '{"order_id":"82","refunded":5}',
        "e": "The arguments of refund do not fit its schema:\norder_id: Field required",
        "f": f"shipped {order}",
    }
    keys = [header["everturn-idempotency-key"] for header in handler.headers]
    assert len({*keys}) == 2, "one for each call"
    events = await told(conversation)
    assert {event.tool for event in events if isinstance(event, ToolStarted)} == {tool.name for tool in tools}
    assert {event.result.call_id for event in events if isinstance(event, ToolFinished)} == set("abcdef")
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    scheduled = [event for event in history.events if event.HasField("nexus_operation_scheduled_event_attributes")]
    assert len(scheduled) == 5
    summaries = [
        str((await client.temporal.data_converter.decode([one.user_metadata.summary]))[0]) for one in scheduled
    ]
    assert 'refund(order_id="81", cents=12)' in summaries


async def _runs(handle: Any) -> bool:
    try:
        return bool((await handle.describe()).status is WorkflowExecutionStatus.RUNNING)
    except Exception:  # noqa: BLE001 - it is not there yet
        return False


async def test_what_fails_is_told_to_the_model(client: Client, scripted: Scripted, cached_conversations: int) -> None:
    queue = queue_of()
    endpoint = await endpoint_to(client, queue)
    tools = [
        nexus_tool(Shop.fail, endpoint=endpoint, service=Shop),
        nexus_tool(Shop.ship, endpoint=endpoint, service=Shop),
        nexus_tool("nothing", endpoint=endpoint, service="Shop", schema={}),
    ]
    calls = [
        *(call("fail", {"input": kind}, id=kind) for kind in ("failed", "cancelled", "refused", "other")),
        call("ship", {"input": "lost"}, id="lost"),
        call("nothing", {}, id="nothing"),
    ]
    agent = agent_on(scripted([calls, "Done."]), tools=tools)
    async with handling(client, queue), hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    results = results_of(await conversation.transcript())
    assert {result.call_id: result.text for result in results} == {
        "failed": "OperationError: no money left",
        "cancelled": "changed my mind",
        "refused": "not for you",
        "other": "Closed: closed on mondays",
        "lost": "Lost: lost at sea",
        "nothing": "Nexus service definition 'Shop' has no operation 'nothing'. "
        "There are 5 operations in the definition.",
    }
    assert all(result.is_error for result in results)
    finished = [finish.result for finish in await told(conversation) if isinstance(finish, ToolFinished)]
    assert {finish.call_id: finish.text for finish in finished} == {result.call_id: result.text for result in results}


async def test_an_endpoint_that_nobody_serves_is_named_in_the_status_until_somebody_does(
    client: Client, scripted: Scripted, bounds: Bounds, cached_conversations: int
) -> None:
    bounds(started_within=timedelta(seconds=0.5))
    queue = queue_of()
    endpoint = await endpoint_to(client, queue)
    agent = agent_on(
        scripted([[call("greet", {"input": "Ada"}, id="a")], "Done."]),
        tools=[nexus_tool(Shop.greet, endpoint=endpoint, service=Shop)],
    )
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")

        async def said() -> bool:
            status = await conversation.status()
            start = f"No handler at the Nexus endpoint {endpoint!r} started 'Shop/greet' within 0.5 s."
            return status.state == "running" and (status.cause or "").startswith(start)

        await eventually(said)
        assert f"--name {endpoint}" in ((await conversation.status()).cure or "")
        async with handling(client, queue):
            assert (await conversation.outcome()).text == "Done."
        assert (await conversation.status()).cause is None
    [result] = results_of(await conversation.transcript())
    assert result.text == "Hello Ada"
    (awaited,) = [event for event in await told(conversation) if isinstance(event, WorkerAwaited)]
    assert endpoint in awaited.cause


async def test_an_endpoint_that_is_not_there_is_waited_for(client: Client, scripted: Scripted, bounds: Bounds) -> None:
    bounds(quietly=timedelta(seconds=0.2))
    queue, endpoint = queue_of(), f"none-{uuid4().hex[:8]}"
    agent = agent_on(
        scripted([[call("greet", {"input": "Ada"}, id="a")], "Done."]),
        tools=[nexus_tool(Shop.greet, endpoint=endpoint, service=Shop)],
    )
    async with handling(client, queue), hosting(client, agent):
        conversation = await client.start(agent, "Go")

        async def said() -> bool:
            return f"There is no Nexus endpoint {endpoint!r}." in ((await conversation.status()).cause or "")

        await eventually(said)
        await make_endpoint(client, endpoint, queue)
        assert (await conversation.outcome()).text == "Done."


async def test_a_turn_that_is_cancelled_cancels_its_operation(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    queue, order = queue_of(), uuid4().hex
    endpoint = await endpoint_to(client, queue)
    agent = agent_on(
        scripted([[call("ship", {"input": order}, id="a")], "Done."]),
        tools=[nexus_tool(Shop.ship, endpoint=endpoint, service=Shop)],
    )
    handle = client.temporal.get_workflow_handle(f"ship-{order}")

    async def cancelled() -> bool:
        return bool((await handle.describe()).status is WorkflowExecutionStatus.CANCELED)

    async with handling(client, queue), hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await eventually(lambda: _runs(handle))
        await conversation.cancel_turn()
        await eventually(cancelled)
        await conversation.close()
        await conversation.outcome()
    [result] = results_of(await conversation.transcript())
    assert "It was running: it may or may not have taken effect." in result.text


async def test_a_turn_that_is_cancelled_before_the_handler_has_answered_goes_on(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    queue, order, answers = queue_of(), uuid4().hex, asyncio.Event()
    endpoint = await endpoint_to(client, queue)
    agent = agent_on(
        scripted([[call("ship", {"input": order}, id="a")], "Done."]),
        tools=[nexus_tool(Shop.ship, endpoint=endpoint, service=Shop)],
    )
    handle = client.temporal.get_workflow_handle(f"ship-{order}")

    async def cancelled() -> bool:
        return bool((await handle.describe()).status is WorkflowExecutionStatus.CANCELED)

    handler = Handler(answers=answers)
    async with (
        handling(client, queue, handler),
        hosting(client, agent, cached_conversations=cached_conversations),
    ):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await eventually(lambda: _runs(handle))
        await conversation.cancel_turn()
        answers.set()
        await eventually(cancelled)
        await conversation.send("Again")
        assert await conversation.reply() == "Done."
        await conversation.close()
        await conversation.outcome()
    [result] = results_of(await conversation.transcript())
    assert "It may or may not have taken effect." in result.text or "cut short" in result.text


async def test_an_operation_that_its_own_team_cancels_is_told_to_the_model(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    queue, order = queue_of(), uuid4().hex
    endpoint = await endpoint_to(client, queue)
    agent = agent_on(
        scripted([[call("ship", {"input": order}, id="a")], "Done."]),
        tools=[nexus_tool(Shop.ship, endpoint=endpoint, service=Shop)],
    )
    handle = client.temporal.get_workflow_handle(f"ship-{order}")
    async with handling(client, queue), hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await eventually(lambda: _runs(handle))
        await handle.cancel()
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert (result.is_error, result.text) == (True, "operation canceled")


async def test_a_person_decides_and_edits_before_an_operation_runs(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    queue = queue_of()
    endpoint = await endpoint_to(client, queue)
    refund = nexus_tool(Shop.refund, endpoint=endpoint, service=Shop, needs_approval=True)
    calls = [call("refund", {"order_id": "81"}, id="a"), call("refund", {"order_id": "82"}, id="b")]
    agent = agent_on(scripted([calls, "Done."]), tools=[refund])
    async with handling(client, queue), hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=2)
        await conversation.deny("b", reason="too much")
        await conversation.approve("a", {"order_id": "83", "cents": "many"})

        async def asked_again() -> bool:
            return any(waiting_call.reason == "invalid_edit" for waiting_call in (await conversation.status()).waiting)

        await eventually(asked_again)
        await conversation.approve("a", {"order_id": "83", "cents": 7})
        assert (await conversation.outcome()).text == "Done."
    edited, denied = results_of(await conversation.transcript())
    assert edited.text.endswith('{"order_id":"83","refunded":7}')
    assert denied.text == "This call was denied by tester and did not run. Reason: too much"


@pytest.mark.long
async def test_more_operations_than_temporal_lets_wait_at_a_time_all_run(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(run_bytes=1_000_000_000)  # else the history's room lets fewer run at a time
    queue = queue_of()
    endpoint = await endpoint_to(client, queue)
    calls = [call("greet", {"input": str(number)}, id=f"c{number}") for number in range(40)]
    agent = agent_on(
        scripted([calls, "Done."]),
        tools=[nexus_tool(Shop.greet, endpoint=endpoint, service=Shop)],
        limits=Limits(max_parallel_calls=64),
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        # Nobody serves them yet: those that were started all wait.
        handle = client.temporal.get_workflow_handle(conversation.id)

        async def pending() -> bool:
            return len((await handle.describe()).raw_description.pending_nexus_operations) == 20

        await eventually(pending)
        async with handling(client, queue):
            assert (await conversation.outcome()).text == "Done."
    results = results_of(await conversation.transcript())
    assert [result.text for result in results] == [f"Hello {number}" for number in range(40)]


async def test_what_was_planned_runs_though_a_deploy_took_the_tool_away(client: Client, scripted: Scripted) -> None:
    queue = queue_of()
    endpoint = await endpoint_to(client, queue)
    model = scripted([[call("greet", {"input": "Ada"}, id="a")], "Done."])
    greet = nexus_tool(Shop.greet, endpoint=endpoint, service=Shop, needs_approval=True)
    before, after = agent_on(model, tools=[greet]), agent_on(model)
    async with handling(client, queue):
        async with hosting(client, before):
            conversation = await client.start(before, "Go")
            await waiting(conversation)
        again = await Client.connect(
            client.temporal.service_client.config.target_host, task_queue=client.task_queue, by="tester"
        )
        async with hosting(again, after):
            await conversation.approve("a")
            assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text.endswith("Hello Ada")


async def test_a_conversation_outlives_more_time_outs_than_temporal_lets_a_run_have(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    queue = queue_of()
    endpoint = await endpoint_to(client, queue)
    turns = [[call("ship", {"input": uuid4().hex}, id=f"c{turn}-{place}") for place in range(8)] for turn in range(5)]
    ship = nexus_tool(Shop.ship, endpoint=endpoint, service=Shop, timeout=timedelta(seconds=0.3))
    agent = agent_on(scripted([*turns, "Done."]), tools=[ship])
    async with handling(client, queue), hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    results = results_of(await conversation.transcript())
    silent = "its worker was lost, took too long, or could not reach Temporal (start to close timeout)"
    doubt = f"{silent}. It may or may not have taken effect."
    assert [result.text for result in results] == [f"The tool could not be run: {doubt}"] * 40
    assert len(await runs_of(client, conversation)) > 1, "a new run has no open operations"


async def test_a_conversation_that_is_closed_no_longer_waits_for_a_handler(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(started_within=timedelta(seconds=0.3))
    endpoint = await endpoint_to(client, queue_of())
    agent = agent_on(
        scripted([[call("greet", {"input": "Ada"}, id="a")], "Done."]),
        tools=[nexus_tool(Shop.greet, endpoint=endpoint, service=Shop)],
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))

        async def awaited() -> bool:
            return bool((await conversation.status()).cause)

        await eventually(awaited)
        await conversation.close()
        await conversation.outcome()
    [result] = results_of(await conversation.transcript())
    assert result.text.startswith("This call was cut short: the conversation was closed.")


async def test_workers_of_both_sides_are_killed_in_the_middle(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    queue, order = queue_of(), uuid4().hex
    endpoint = await endpoint_to(client, queue)
    model = scripted([[call("ship", {"input": order}, id="a")], "Done."])
    handle = client.temporal.get_workflow_handle(f"ship-{order}")

    def start() -> WorkerProcess:
        environment = {"SHOP_ENDPOINT": endpoint}
        return WorkerProcess(client, model, tmp_path, agents="tests/support/nexus_agents.py", environment=environment)

    ours = start()
    theirs = start_handlers(client, queue)
    try:
        conversation = await client.start("clerk", "Ship it")
        await eventually(lambda: _runs(handle))
        ours.kill()
        theirs.kill()
        await asyncio.to_thread(theirs.wait, 60)
        ours, theirs = start(), start_handlers(client, queue)
        await handle.signal("arrive")
        assert (await conversation.outcome()).text == "Done."
    finally:
        await asyncio.to_thread(ours.stop)
        theirs.kill()
        await asyncio.to_thread(theirs.wait, 60)
    [result] = results_of(await conversation.transcript())
    assert result.text == f"shipped {order}"
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    assert sum(event.HasField("nexus_operation_scheduled_event_attributes") for event in history.events) == 1


def start_handlers(client: Client, queue: str) -> Program:
    """Their worker, in a process of its own."""
    address = client.temporal.service_client.config.target_host
    program = f"from tests.workflows.test_nexus_tools import *; asyncio.run(serve({address!r}, {queue!r}))"
    return Program("-c", program, cwd=Path(__file__).parents[2])


async def serve(address: str, queue: str) -> None:
    temporal = await TemporalClient.connect(address)
    worker = TemporalWorker(
        temporal,
        task_queue=queue,
        workflows=[Shipping],
        nexus_service_handlers=[Handler()],
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=0.5),
    )
    await worker.run()
