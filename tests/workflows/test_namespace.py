"""What the server says of the namespace is asked for until it is said: a call that fails in passing is no answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import temporalio.client
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.service import RPCError, RPCStatusCode

from everturn import Client, tool
from everturn.devserver import DevServer
from everturn.temporal import namespace, search_attribute_setup
from everturn.temporal.namespace import Namespace
from everturn.testing import ScriptedModel, call
from everturn.workflows.visibility import STATUS
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually, waiting

Failing = Callable[[int, RPCStatusCode], None]


@pytest.fixture
def failing(client: Client, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Lets the first so many of the worker's questions fail, each kind for itself."""

    def fail(times: int, status: RPCStatusCode) -> None:
        for service, name in (
            (client.temporal.operator_service, "list_search_attributes"),
            (client.temporal.workflow_service, "describe_namespace"),
        ):
            monkeypatch.setattr(service, name, _failing_first(getattr(service, name), times, status))

    return fail


def _failing_first(ask: Any, times: int, status: RPCStatusCode) -> Any:
    left = [times]

    async def asked(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise RPCError("no luck", status, b"")
        return await ask(*args, **options)

    return asked


@tool(needs_approval=True)
def refund() -> str:
    return "refunded"


async def test_one_question_that_fails_is_asked_again(client: Client, failing: Failing, server: DevServer) -> None:
    known = Client(client.temporal).namespace
    told = (await known.indexed(), await known.retention())
    assert told == (True, timedelta(days=1).total_seconds())
    failing(2, RPCStatusCode.UNAVAILABLE)
    asked = Namespace(client.temporal, pause_seconds=0.001)
    assert (await asked.indexed(), await asked.retention()) == told
    assert asked.known


async def test_a_server_that_keeps_search_attributes_to_operators_tells_them_by_the_namespace(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = client.temporal.operator_service
    denied = _failing_first(service.list_search_attributes, 1, RPCStatusCode.PERMISSION_DENIED)
    monkeypatch.setattr(service, "list_search_attributes", denied)
    assert await Namespace(client.temporal).indexed()


async def test_a_conversation_that_met_a_worker_without_an_answer_is_told_later(
    client: Client,
    scripted: Callable[..., ScriptedModel],
    failing: Failing,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its status is written into the index from then on, and its histories are kept as long as need be until then."""
    client.namespace = Namespace(client.temporal, pause_seconds=0.001, again_seconds=0.0)
    failing(namespace.TRIES * 3, RPCStatusCode.UNAVAILABLE)
    agent = agent_on(scripted([call("refund"), call("refund"), "Done."]), tools=[refund])
    with caplog.at_level(logging.WARNING):
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go")
            for _ in range(2):
                await waiting(conversation)
                await conversation.approve()
            assert (await conversation.outcome()).text == "Done."
    assert "namespace.not_told what='search attributes' error='no luck'" in caplog.text
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    upserted = [
        event for event in history.events if event.HasField("upsert_workflow_search_attributes_event_attributes")
    ]
    assert upserted


async def test_a_conversation_is_started_before_the_server_has_noticed_new_search_attributes(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The list has them at once, and what reads a cache has not: of a cluster's servers, some for 10 s or a minute."""
    as_in_a_cluster = {"system.forceSearchAttributesCacheRefreshOnRead": "false"}
    async with DevServer(dynamic_config=as_in_a_cluster) as server:
        new = Client(await temporalio.client.Client.connect(server.address, namespace="new"))
        keeps = Duration(seconds=86_400)
        await new.temporal.workflow_service.register_namespace(
            RegisterNamespaceRequest(namespace="new", workflow_execution_retention_period=keeps), retry=True
        )

        async def lacking() -> list[str]:
            with suppress(RPCError):  # it is not there yet
                return await search_attribute_setup.lacking_search_attributes(new.temporal)
            return []

        await search_attribute_setup.register_search_attributes(new.temporal, await eventually(lacking))
        with caplog.at_level(logging.INFO):
            conversation = await new.start("clerk", "Go")
        described = await new.temporal.get_workflow_handle(conversation.id).describe()
        assert described.typed_search_attributes[STATUS] == "running"
    assert "namespace.not_noticed" in caplog.text


async def test_a_server_that_keeps_the_question_to_operators_is_told_of_once(
    client: Client, failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    failing(5, RPCStatusCode.PERMISSION_DENIED)
    asked = Namespace(client.temporal, again_seconds=0.0)
    with caplog.at_level(logging.INFO):
        assert [await asked.indexed() for _ in range(6)] == [False] * 5 + [True]
    assert caplog.text.count("namespace.not_told") == 1
    assert await asked.retention() == namespace.SHORTEST_RETENTION, "nothing is lost until it says more"
