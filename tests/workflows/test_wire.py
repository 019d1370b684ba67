"""The wire contract, held by the official Temporal CLI: start, signal, query, with nothing of everturn on that side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from everturn import Client, Text, tool
from everturn.devserver import DevServer, find_binary
from everturn.errors import Ended
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def refund(order_id: str) -> str:
    return f"refunded {order_id}"


async def temporal(server: DevServer, *arguments: str, check: bool = True) -> str:
    """Runs the CLI; returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        str(await find_binary()),
        *arguments,
        "--address",
        server.address,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await asyncio.wait_for(process.communicate(), 60))[0].decode()
    assert process.returncode == 0 or not check, output
    return output


async def start(server: DevServer, client: Client, workflow_id: str, *inputs: Any, check: bool = True) -> str:
    given = [argument for input_ in inputs for argument in ("--input", json.dumps(input_))]
    return await temporal(
        server, "workflow", "start", "--type", "Conversation", "--task-queue", client.task_queue,
        "--workflow-id", workflow_id, *given, check=check,
    )  # fmt: skip


async def test_the_temporal_cli_starts_a_conversation_and_releases_its_calls(
    server: DevServer, client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted([call("refund", {"order_id": "81"}), "Refunded."]), tools=[refund])
    order = f"order-81-{client.task_queue}"
    async with hosting(client, agent):
        await start(server, client, order, {"agent": "clerk", "message": "Order 81 arrived broken"})
        conversation = client.conversation(order)
        await waiting(conversation)
        status = await temporal(server, "workflow", "query", "--workflow-id", order, "--type", "status")
        assert '"awaiting_approval"' in status
        assert '"reason":"needs_approval"' in "".join(status.split())
        await temporal(
            server, "workflow", "signal", "--workflow-id", order, "--name", "approve", "--input", '{"call_id":"*"}'
        )
        result = json.loads(await temporal(server, "workflow", "result", "--workflow-id", order, "--output", "json"))
    outcome = result["result"]
    assert (outcome["status"], outcome["text"], outcome["turns"]) == ("completed", "Refunded.", 2)
    assert set(outcome) == {"status", "text", "output", "turns", "tool_calls", "usage", "cost_usd"}


async def test_the_temporal_cli_may_update_too(server: DevServer, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([call("refund", {"order_id": "81"}, id="r"), "Not refunded."]), tools=[refund])
    order = f"order-82-{client.task_queue}"
    async with hosting(client, agent):
        await start(server, client, order, {"agent": "clerk", "message": "Order 82"})
        await waiting(client.conversation(order))
        update = ("workflow", "update", "execute", "--workflow-id", order, "--name", "deny", "--input")
        refused = await temporal(server, *update, '{"call_id": "x"}', check=False)
        assert "No call 'x' waits; these do: 'r'." in refused
        assert "[r]" in await temporal(server, *update, '{"call_id": "r", "by": "ann"}')
        assert (await client.conversation(order).outcome()).text == "Not refunded."


async def test_the_transcript_query_gives_pages(server: DevServer, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
        handle = client.temporal.get_workflow_handle(conversation.id)
        page = await handle.query("transcript", {"from": 1, "limit": 5})
        assert page == {
            "from": 1,
            "total": 2,
            "messages": [{"role": "assistant", "parts": [{"kind": "text", "text": "Hello."}]}],
        }


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ((), "agent: Field required"),
        (({},), "agent: Field required"),
        (("clerk",), "its input is a JSON object, got 'clerk'"),
        (([1],), "its input is a JSON object, got [1]"),
        (({"agent": "clerk"},), "message: it is required, unless the conversation is kept open"),
        (({"agent": "", "message": "Hi"},), "agent: String should have at least 1 character"),
        (({"agent": 7, "message": "Hi"},), "agent: Input should be a valid string"),
        (({"agent": "clerk", "message": {"text": "Hi"}},), "message"),
        (({"agent": "clerk", "message": [{"kind": "nonsense"}]},), "message"),
        (({"agent": "clerk", "message": "Hi", "keep_open": "long"},), "keep_open"),
        (({"agent": "clerk", "message": "Hi", "limits": {"max_turn": 3}},), "limits.max_turn: Extra inputs"),
        (({"agent": "clerk", "message": "Hi", "limits": {"max_turns": 0}},), "limits.max_turns"),
        (({"agent": "clerk", "message": "Hi"}, 2), "it takes one input, got 2"),
    ],
)
async def test_a_start_that_makes_no_sense_fails_at_once_and_says_why(
    server: DevServer, client: Client, scripted: Scripted, inputs: tuple[Any, ...], why: str
) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        name = f"bad-{client.task_queue}"
        await start(server, client, name, *inputs)
        with pytest.raises(Ended) as ended:
            await client.conversation(name).outcome()
    assert "This conversation can't start: " in str(ended.value)
    assert why in str(ended.value)


async def test_an_id_that_another_message_has_is_named_by_an_update_and_in_the_log(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", message_id="m1", keep_open=timedelta(minutes=1))
        handle = client.temporal.get_workflow_handle(conversation.id)
        await conversation.send([Text(text="1")], message_id="m1")
        assert await handle.execute_update("message", {"text": "1", "message_id": "m1"}) == {"taken": False}
        assert "message.not_taken" not in caplog.text
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("message", {"text": "2", "message_id": "m1"})
        assert "message_id 'm1'" in str(refused.value.cause)
        await conversation.send("2", message_id="m1")
        await eventually(lambda: "message.not_taken" in caplog.text, what="the log says it")
        await conversation.close()
        assert (await conversation.outcome()).text == "One."
