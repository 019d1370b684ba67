"""`everturn mcp`: agents as tools, for the SDK's own client and for everturn itself, through kills of the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp import types
from mcp.client.stdio import StdioServerParameters
from starlette.testclient import TestClient

from everturn import Client, McpServer, tool
from everturn.errors import InvalidSetting
from everturn.mcp_server.server import AgentServer
from everturn.mcp_server.serving import Bearer
from everturn.testing import ScriptedModel, call
from everturn.web.auth import check_token
from tests.support.agents import agent_on, hosting
from tests.support.ports import free_port, listens
from tests.support.prepared import Program
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, until, waiting

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]

ran: list[str] = []


@tool(needs_approval=True, effect="once")
def refund(order_id: str) -> str:
    """Pays back."""
    ran.append(order_id)
    return f"refunded {order_id}"


@asynccontextmanager
async def connected(client: Client, *agents: str, **options: Any) -> AsyncIterator[mcp.Client]:
    """The SDK's client on a server of this process: the server has no state, so that one is as good as another."""
    elicit = options.pop("elicitation_callback", None)
    server = AgentServer(client, dict.fromkeys(agents, ""), **options)
    async with mcp.Client(server.mcp, elicitation_callback=elicit) as one:
        yield one


async def used(one: mcp.Client, name: str, **arguments: Any) -> Any:
    """What a tool returns, as JSON; fails if it is an error."""
    result = await one.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def test_a_conversation_is_started_decided_on_and_followed(client: Client, scripted: Scripted) -> None:
    ran.clear()
    agent = agent_on(scripted([call("refund", {"order_id": "81"}), "It is on its way."]), tools=[refund])
    async with hosting(client, agent):
        async with connected(client) as one:
            begun = await used(one, "start", agent="clerk", message="Refund 81", conversation_id="order-81")
            assert await used(one, "start", agent="clerk", message="Refund 81", conversation_id="order-81") == begun
            status = await used(one, "status", conversation_id="order-81", wait_seconds=30)
            assert status["state"] == "awaiting_approval"
            [waits] = status["waiting"]
            assert (waits["tool"], waits["arguments"]) == ("refund", {"order_id": "81"})
        async with connected(client) as one:  # another server: there is nothing that the first one knew
            said = await used(one, "events", conversation_id="order-81")
            assert [event["kind"] for event in said["events"]][-1] == "approval_requested"
            await used(one, "approve", conversation_id="order-81", call_id=waits["call_id"], note="Be kind")
            status = await used(one, "status", conversation_id="order-81", wait_seconds=30)
            assert (status["state"], status["text"]) == ("done", "It is on its way.")
            rest = await used(one, "events", conversation_id="order-81", since=said["cursor"], wait_seconds=10)
            assert rest["done"]
            assert rest["events"][0]["kind"] == "decided"
            nothing = await used(one, "events", conversation_id="order-81", since=rest["cursor"])
            assert nothing["events"] == []
    assert ran == ["81"]


async def test_what_goes_wrong_is_said_in_a_line(client: Client) -> None:
    async with connected(client) as one:
        result = await one.call_tool("status", {"conversation_id": "nobody"})
        [block] = result.content
    assert result.is_error
    assert isinstance(block, types.TextContent)
    assert "nobody" in block.text
    assert "Traceback" not in block.text


async def test_an_agent_is_a_tool_whose_approvals_are_questions_to_the_caller(
    client: Client, scripted: Scripted
) -> None:
    ran.clear()
    asked: list[str] = []

    async def decide(_: Any, question: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(question.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    agent = agent_on(scripted([call("refund", {"order_id": "81"}), "It is on its way."]), tools=[refund])
    async with hosting(client, agent), connected(client, "clerk", elicitation_callback=decide) as one:
        result = await one.call_tool("clerk", {"message": "Refund 81"}, meta={"everturn/idempotencyKey": "a"})
        again = await one.call_tool("clerk", {"message": "Refund 81"}, meta={"everturn/idempotencyKey": "a"})
    assert [block.text for block in result.content if isinstance(block, types.TextContent)] == ["It is on its way."]
    assert again.structured_content == result.structured_content
    assert asked == ['clerk: refund needs approval: refund({"order_id": "81"})']
    assert ran == ["81"]


async def test_a_caller_that_can_ask_nobody_is_told_how_far_it_is(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([call("refund", {"order_id": "81"}), "Done."]), tools=[refund])
    async with hosting(client, agent), connected(client, "clerk", decisions=False) as one:
        names = {found.name for found in (await one.list_tools()).tools}
        assert names == {"clerk", "start", "send", "status", "events", "close"}
        result = await one.call_tool("clerk", {"message": "Refund 81"})
        assert result.structured_content is not None
        assert result.structured_content["state"] == "awaiting_approval"
        await client.conversation(result.structured_content["conversation_id"]).close()


async def test_approve_says_that_a_person_is_to_be_asked_first(client: Client) -> None:
    async with connected(client) as one:
        found = {tool.name: tool.annotations for tool in (await one.list_tools()).tools}
    assert found["approve"] is not None
    assert found["approve"].destructive_hint
    assert found["status"] is not None
    assert found["status"].read_only_hint


def command(client: Client, *options: str) -> dict[str, Any]:
    """`everturn mcp` on the client's server and queue, for an MCP client."""
    address = client.temporal.service_client.config.target_host
    env = {"TEMPORAL_ADDRESS": address, "EVERTURN_TASK_QUEUE": client.task_queue}
    return {"command": [sys.executable, "-m", "everturn", "mcp", *options], "env": env}


async def test_everturn_is_a_client_of_its_own_server_though_that_is_killed(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    ran.clear()
    clerk = agent_on(scripted([call("refund", {"order_id": "81"}), "It is on its way."]), tools=[refund])
    boss_model = scripted([call("clerk", {"message": "Refund 81"}), "I have seen to it."])
    boss = agent_on(boss_model, tools=[McpServer(**command(client, "--agent", "clerk"))], name="boss")
    async with hosting(client, clerk, boss):
        conversation = await client.start(boss, "Refund 81")
        [call_id] = await waiting(conversation)
        [asked] = (await conversation.status()).waiting
        assert asked.reason == "tool_asks"
        assert asked.why.startswith('clerk: refund needs approval: refund({"order_id": "81"}) (answer with JSON: ')
    # Worker, client and server are gone.
    async with hosting(client, clerk, boss):
        await conversation.answer(call_id, {"decision": "approve", "note": "Be kind"})
        assert (await conversation.outcome()).text == "I have seen to it."
    assert [result.text for result in results_of(await conversation.transcript())] == ["It is on its way."]
    assert ran == ["81"]


async def test_the_sdks_client_speaks_to_the_command_over_stdio(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    made = command(client, "--agent", "clerk")
    program, *arguments = made["command"]
    place = StdioServerParameters(command=program, args=arguments, env={**os.environ, **made["env"]})
    async with hosting(client, agent):
        for mode in ("auto", "legacy"):
            async with mcp.Client(place, mode=mode) as one:
                result = await one.call_tool("clerk", {"message": "Hi"}, meta={"everturn/idempotencyKey": "one"})
            assert result.structured_content is not None
            assert result.structured_content["text"] == "Hello."
    assert len(await eventually(lambda: _all_of(client))) == 1


async def _all_of(client: Client) -> list[str]:
    query = f"TaskQueue = '{client.task_queue}'"
    return [one.id async for one in client.temporal.list_workflows(query)]


async def test_the_command_serves_over_http_to_whoever_has_the_token(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "a-secret-of-16-characters")
    worker = agent_on(scripted(["Hello."]), name="clerk")
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": client.temporal.service_client.config.target_host,
        "EVERTURN_TASK_QUEUE": client.task_queue,
        "EVERTURN_MCP_TOKEN": "a-secret-of-16-characters",
    }
    port = free_port()
    command = ("-m", "everturn", "mcp", "--agent", "clerk", "--http", "--port", str(port))
    place = McpServer(url=f"http://127.0.0.1:{port}/mcp", headers_env={"Authorization": "Bearer $SHOP_TOKEN"})
    boss = agent_on(scripted([call("clerk", {"message": "Hi"}), "It said hello."]), name="boss", tools=[place])
    with Program(*command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: process.poll() is not None or listens(port))
            async with hosting(client, worker, boss):
                conversation = await client.start(boss, "Ask the clerk")
                assert (await conversation.outcome()).text == "It said hello."
        finally:
            process.terminate()
        assert process.wait() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    [result] = results_of(await conversation.transcript())
    assert "Hello." in result.text
    assert not result.is_error


def test_strangers_are_turned_away() -> None:
    server = AgentServer(None, {})  # type: ignore[arg-type] # nobody asks anything of it
    app = server.mcp.streamable_http_app(stateless_http=True, host="127.0.0.1")
    token = "a-secret-of-16-characters"
    first = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"accept": "application/json, text/event-stream", "host": "127.0.0.1:80"}
    with TestClient(Bearer(app, token=token)) as visitor:
        assert visitor.post("/mcp", json=first, headers=accept).status_code == 401
        wrong = {**accept, "authorization": "Bearer b-secret-of-16-characters"}
        assert visitor.post("/mcp", json=first, headers=wrong).status_code == 401
        right = {**accept, "authorization": f"Bearer {token}"}
        assert visitor.post("/mcp", json=first, headers=right).status_code == 200
        rebound = {**right, "host": "evil.example"}
        assert visitor.post("/mcp", json=first, headers=rebound).status_code == 421
    with pytest.raises(InvalidSetting, match="EVERTURN_MCP_TOKEN"):
        check_token(None, host="0.0.0.0", what="MCP server", variable="EVERTURN_MCP_TOKEN")
    with pytest.raises(InvalidSetting, match="16"):
        check_token("short", host="127.0.0.1", what="MCP server", variable="EVERTURN_MCP_TOKEN")
    assert json.dumps(first)
