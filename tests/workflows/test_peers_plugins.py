"""Peers' plugins on the same client and worker as everturn's, in either order: both go on as they do alone.

OpenAI's is in a package that is not among the development dependencies: PEERS=1, after a `make bench`, brings it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import temporalio
from temporalio.client import Client as TemporalClient
from temporalio.worker import Replayer, Worker

from benchmarks import peers
from everturn import Client, EverturnPlugin, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on
from tests.support.vendors import pydantic_ai_temporal
from tests.workflows.application import Checkout, Order, charge

Scripted = Callable[..., ScriptedModel]


@tool
def look_up(order_id: str) -> str:
    """An order."""
    return f"order {order_id}"


def openai_agents_plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not os.environ.get("PEERS"):
        pytest.skip("PEERS=1 runs it, in the environment of the benchmarks")
    peers.make()
    [theirs] = (peers.VENV / "lib").glob("*/site-packages/temporalio")
    monkeypatch.setattr(temporalio, "__path__", [*temporalio.__path__, str(theirs)])
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    from temporalio.openai_agents import OpenAIAgentsPlugin  # type: ignore[import-not-found,unused-ignore]

    return OpenAIAgentsPlugin()


@pytest.mark.filterwarnings("ignore:A non-Pydantic Temporal payload converter was used")
@pytest.mark.parametrize("peer", ["pydantic-ai", "openai-agents"])
@pytest.mark.parametrize("given", ["ours first", "theirs first", "ours on the worker"])
async def test_both_run_side_by_side(
    server: DevServer, scripted: Scripted, peer: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted([call("look_up", {"order_id": "81"}), "Done."]), tools=[look_up])
    theirs = pydantic_ai_temporal.PydanticAIPlugin() if peer == "pydantic-ai" else openai_agents_plugin(monkeypatch)
    ours = EverturnPlugin(agents=[agent], drain_timeout=timedelta(seconds=20))
    on_client = {"ours first": [ours, theirs], "theirs first": [theirs, ours], "ours on the worker": [theirs]}[given]
    temporal = await TemporalClient.connect(server.address, plugins=on_client)
    queue = f"peers-{uuid.uuid4()}"
    on_worker = [] if ours in on_client else [ours]
    async with Worker(temporal, task_queue=queue, workflows=[Checkout], activities=[charge], plugins=on_worker):
        client = Client(temporal, task_queue=queue, by="tester")
        order = await temporal.execute_workflow(Checkout.run, Order("81", 1), id=f"{queue}-own", task_queue=queue)
        conversation = await client.start(agent, "Hi")
        assert (await conversation.outcome()).text == "Done."
        assert [message.role for message in await conversation.transcript()] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        histories = [
            await temporal.get_workflow_handle(one).fetch_history() for one in (f"{queue}-own", conversation.id)
        ]
    assert order == Order("81", 2)
    replayer = Replayer(workflows=[Checkout], data_converter=temporal.data_converter, plugins=[EverturnPlugin()])
    for history in histories:
        await replayer.replay_workflow(history)
