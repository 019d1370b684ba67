"""What Temporal's server says of a command that it did not take, as the real one says it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import temporalio.client
from google.protobuf.any_pb2 import Any as AnyMessage
from temporalio import workflow
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker as SdkWorker

from everturn import Client
from everturn.errors import Ended, NotFound, OtherWorkflow, Unreachable
from everturn.history.reader import read_steps
from everturn.history.steps import Step
from everturn.temporal import temporal_errors
from everturn.testing import ScriptedModel
from everturn.workflows.conversation import ConversationWorkflow
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


async def said(asked: Awaitable[Any]) -> RPCError:
    with pytest.raises(RPCError) as caught:
        await asked
    return caught.value


@workflow.defn(sandboxed=False)
class Invoice:
    @workflow.run
    async def run(self) -> None:
        await asyncio.Event().wait()


async def test_another_workflow_is_no_conversation(client: Client) -> None:
    """Nobody waits for the reply of a workflow that never gives one."""
    queue = f"q-{uuid4().hex[:8]}"
    async with SdkWorker(client.temporal, task_queue=queue, workflows=[Invoice]):
        invoice = await client.temporal.start_workflow(Invoice.run, id=f"invoice-{queue}", task_queue=queue)
        there = client.conversation(invoice.id)
        for ask in (there.status, there.transcript, there.reply, there.outcome, partial(anext, there.events())):
            with pytest.raises(NotFound, match=r"Invoice|another one"):
                await ask()
        with pytest.raises(OtherWorkflow, match="'Invoice'"):
            await there.approve()


async def test_what_is_over_what_was_closed_meanwhile_and_what_never_was_are_told_apart(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(["Done."]))

    async def closed_meanwhile() -> tuple[RPCError, RPCError] | None:
        conversation = await client.start(agent, "Hi")
        handle = client.temporal.get_workflow_handle(conversation.id)
        pausing = asyncio.create_task(said(handle.execute_update("pause", {})))
        await handle.describe()  # meanwhile, the update arrives
        await handle.terminate()
        error = await pausing
        return (error, await said(handle.signal("pause", {}))) if temporal_errors.run_closed_first(error) else None

    aborted, over = await eventually(closed_meanwhile)
    missing = await said(client.temporal.get_workflow_handle("nobody").signal("pause", {}))
    asked = (temporal_errors.run_closed_first, temporal_errors.over)
    assert [[ask(error) for ask in asked] for error in (aborted, over, missing)] == [
        [True, False],
        [False, True],
        [False, False],
    ]
    kinds = [type(temporal_errors.in_our_words(error, client.temporal, "it", "pause")) for error in (over, missing)]
    assert kinds == [Ended, NotFound]


async def test_a_workflow_task_that_fails_again_and_again_is_known_by_its_detail(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: ConversationWorkflow) -> None:
        raise RuntimeError("a fault of ours")

    agent = agent_on(scripted(["Done."]))
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        await conversation.reply()
        handle = client.temporal.get_workflow_handle(conversation.id)
        with monkeypatch.context() as patch:
            patch.setattr(ConversationWorkflow, "_show_state", broken)
            await handle.signal("message", {"text": "And?"})

            async def fails() -> RPCError | None:
                try:
                    await handle.query("status", rpc_timeout=timedelta(seconds=1))
                except RPCError as error:
                    return error if temporal_errors.task_fails(error) else None
                return None

            error = await eventually(fails)
        told = temporal_errors.in_our_words(error, client.temporal, conversation.id, "pause")
        assert isinstance(told, Unreachable)
        assert "its workflow task fails again and again" in told.message
        await handle.terminate()


async def test_a_history_that_the_server_moves_while_it_is_read_is_read_on(client: Client, scripted: Scripted) -> None:
    async with hosting(client, agent := agent_on(scripted(["Done."]))):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
    config = client.temporal.config()
    moving = temporalio.client.Client(**{**config, "interceptors": [MovesOnce()]})
    whole = [step async for step in read_steps(client.temporal, conversation.id) if type(step) is not Step]
    for follow in (False, True):
        steps = read_steps(moving, conversation.id, follow=follow)
        assert [step async for step in steps if type(step) is not Step] == whole


class MovesOnce(temporalio.client.Interceptor):
    """Each run's history is moved once, after its third event: the error is as the server has said it once."""

    def intercept_client(self, next: temporalio.client.OutboundInterceptor) -> temporalio.client.OutboundInterceptor:  # noqa: A002
        class Outbound(temporalio.client.OutboundInterceptor):
            left = 2

            def fetch_workflow_history_events(self, input: Any) -> Any:  # noqa: A002
                return self._events(self.next.fetch_workflow_history_events(input))

            async def _events(self, events: AsyncIterator[HistoryEvent]) -> AsyncIterator[HistoryEvent]:
                async for event in events:
                    if event.event_id == 4 and self.left:
                        self.left -= 1
                        raise moved()
                    yield event

        return Outbound(next)


def moved() -> RPCError:
    message = "Current and request branch tokens don't match"
    kind = "type.googleapis.com/temporal.server.api.errordetails.v1.CurrentBranchChangedFailure"
    status = GrpcStatus(code=RPCStatusCode.INVALID_ARGUMENT, message=message, details=[AnyMessage(type_url=kind)])
    return RPCError(message, RPCStatusCode.INVALID_ARGUMENT, status.SerializeToString())
