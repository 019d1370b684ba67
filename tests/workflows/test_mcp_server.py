"""`everturn mcp`: agents as tools, for the SDK's own client and for everturn itself, through kills of the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp import types
from mcp.client.stdio import StdioServerParameters
from starlette.testclient import TestClient

from everturn import Client, Conversation, McpServer, tool
from everturn.errors import InvalidSetting
from everturn.mcp_server.server import OWN_TOOLS, AgentServer
from everturn.mcp_server.serving import app_of
from everturn.testing import ScriptedModel, call
from everturn.tools.mcp.listed_tools import tools_of
from everturn.web.auth import check_token
from tests.support.agents import agent_on, hosting, nowhere
from tests.support.ports import free_port, listens
from tests.support.prepared import Program, command_of
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
        odd = await one.call_tool("clerk", {"message": "Refund 81"}, meta={"everturn/idempotencyKey": 5})
        assert (odd.is_error, "is no text" in str(odd.content)) == (True, True)
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
        conversation = client.conversation(result.structured_content["conversation_id"])
        closing = await one.call_tool("close", {"conversation_id": conversation.id})
        assert closing.is_error, "the end would deny the call"
        assert (await conversation.status()).state == "awaiting_approval"
        await conversation.approve("*")
        await conversation.outcome()


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
    return {"command": command_of("-m", "everturn", "mcp", *options), "env": env}


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
    [result] = results_of(await conversation.transcript())
    reply, fields = result.text.split("\n")
    assert reply == "It is on its way."
    told = json.loads(fields)  # its fields are beside its text: that says one of them
    assert (told.pop("conversation_id")[:6], told.pop("cost_usd")) == ("clerk-", None)
    assert told == {"state": "done", "turn": 2, "waiting": [], "cause": None, "cure": None, "text": reply}
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
    return [workflow.id async for workflow in client.temporal.list_workflows(query)]


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


# ---------------------------------------------------------------- who may say what, about which conversation


FORMS = ("status", "events", "send", "close", "approve", "deny", "answer")
"""The tools that take a conversation's id."""


def _arguments(name: str, conversation_id: str, call_id: str) -> dict[str, Any]:
    more = {"send": {"message": "Hello"}, "answer": {"content": "x"}}.get(name, {})
    return {"conversation_id": conversation_id} | more | ({"call_id": call_id} if name in OWN_TOOLS[4:7] else {})


async def test_only_what_offered_agents_and_theirs_have_begun_can_be_reached(
    client: Client, scripted: Scripted
) -> None:
    ran.clear()
    asking = scripted(lambda messages: "Done." if messages[-1]["role"] == "tool" else call("refund", {"order_id": "1"}))
    accounts = agent_on(asking, tools=[refund], name="accounts")
    handed = scripted([call("transfer_to_accounts", {"message": "Refund 2"})])
    clerk = agent_on(scripted([call("accounts", {"message": "Refund 1"}), "Done."]), tools=[accounts], name="clerk")
    desk = agent_on(handed, handoff_to=[accounts], name="desk")
    async with hosting(client, accounts, clerk, desk):
        others = await client.start(accounts, "Refund 1")
        [others_call] = await waiting(others)
        its_own, handed_over = await client.start(clerk, "Go"), await client.start(desk, "Go")
        [asked] = await eventually(lambda: _agents_of(its_own))
        [childs_call] = await waiting(client.conversation(asked))
        assert (await handed_over.outcome()).text == "Done."
        assert (await handed_over.by_history()).state.agent == "accounts"
        async with connected(client, "clerk", "desk") as one:
            for name in FORMS:
                for conversation_id in (others.id, "nobody", ""):
                    result = await one.call_tool(name, _arguments(name, conversation_id, others_call))
                    assert result.is_error, name
                    assert "no conversation" in str(result.content[0]), name
            for agent, conversation_id in (("accounts", None), ("accounts", its_own.id), ("clerk", others.id)):
                arguments = {"agent": agent, "message": "Hi", "conversation_id": conversation_id}
                result = await one.call_tool("start", arguments)
                assert result.is_error, arguments
                assert "Refund 1" not in str(result.content), "what others said is not told"
            for conversation_id in (its_own.id, asked, handed_over.id):
                await used(one, "status", conversation_id=conversation_id)
            assert (await one.call_tool("approve", {"conversation_id": asked, "call_id": "*"})).is_error
            await used(one, "approve", conversation_id=asked, call_id=childs_call)
            assert (await its_own.outcome()).text == "Done."
        assert (await others.status()).state == "awaiting_approval", "nothing was said to it, or decided"
        await others.close()
    assert ran == ["1"]


async def _agents_of(conversation: Conversation) -> list[str]:
    return [asked.conversation_id for asked in (await conversation.status()).agents]


def _approval(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content or {"decision": "approve"})


async def test_an_answer_counts_for_the_question_that_was_asked_in_this_call(
    client: Client, scripted: Scripted
) -> None:
    ran.clear()
    model = scripted(lambda messages: "Done." if messages[-1]["role"] == "tool" else call("refund", {"order_id": "1"}))
    clerk, boss = agent_on(model, tools=[refund]), agent_on(model, tools=[refund], name="boss")
    async with hosting(client, clerk, boss):

        async def never(*_: Any) -> types.ElicitResult:
            raise AssertionError

        async with connected(client, "clerk", "boss", elicitation_callback=never) as one:

            async def asked(agent: str, message: str, answers: Any = None) -> Any:
                return await one.session.call_tool(
                    agent, {"message": message}, input_responses=answers, allow_input_required=True
                )

            [name] = (await asked("clerk", "Refund 1")).input_requests
            [others] = (await asked("boss", "Refund 1")).input_requests
            conversation_id, call_id, digest = name.split(" ")
            conversation = client.conversation(conversation_id)
            refused: list[tuple[str, str, dict[str, types.ElicitResult]]] = [
                ("boss", "Refund 1", {name: _approval()}),
                ("clerk", "Refund 1", {f"nobody {call_id} {digest}": _approval()}),
                ("clerk", "Refund 1", {"nonsense": _approval()}),
                ("clerk", "Refund 1", {name: _approval(), others: _approval()}),
                ("clerk", "Refund 1", {name: _approval(decision="yes")}),
                ("clerk", "Refund 1", {name: _approval(answer="refunded 1")}),
            ]
            for agent, message, answers in refused:
                result = await asked(agent, message, answers)
                assert getattr(result, "is_error", False), answers
            unheard = [
                ("Refund 2", name, _approval()),
                ("Refund 1", f"{conversation_id} {call_id} {'0' * len(digest)}", _approval()),
                ("Refund 1", f"{conversation_id} another {digest}", _approval()),
                ("Refund 1", name, types.ElicitResult(action="cancel")),
            ]
            for message, answered, answer in unheard:
                await asked("clerk", message, {answered: answer})
                assert (await conversation.status()).state == "awaiting_approval", answered
            assert (await asked("clerk", "Refund 1", {name: _approval()})).structured_content["text"] == "Done."
            assert (await asked("boss", "Refund 1", {others: types.ElicitResult(action="decline")})).content
        async with connected(client, "clerk", decisions=False) as closed:
            told = await closed.session.call_tool("clerk", {"message": "Refund 1"}, input_responses={name: _approval()})
            assert isinstance(told, types.CallToolResult)
            assert told.is_error
    assert ran == ["1"]


async def test_what_is_said_of_each_tool_holds_without_a_key(client: Client) -> None:
    async with connected(client, "clerk") as one:
        found = {tool.name: tool for tool in (await one.list_tools()).tools}
        assert one.server_info.version == version("everturn")
    hints = {name: tool.annotations or types.ToolAnnotations() for name, tool in found.items()}
    assert {name for name in hints if hints[name].read_only_hint} == {"status", "events"}
    assert {name for name in hints if hints[name].idempotent_hint} == {"close"}
    assert {name for name in hints if hints[name].destructive_hint} == {"approve", "deny", "answer", "close"}
    [*with_key] = (name for name in found if found[name].meta == {"everturn/idempotentWithKey": True})
    assert sorted(with_key) == ["clerk", "send", "start"]
    tools = {tool.name: tool.effect for tool in tools_of(McpServer(command=["x"]), list(found.values()), _never)}
    assert {name for name in tools if tools[name] == "once"} == {"approve", "deny", "answer"}


async def _never(*_: Any) -> None:
    raise AssertionError


@pytest.mark.parametrize("decisions", [True, False])
@pytest.mark.parametrize("name", OWN_TOOLS)
def test_an_agent_can_not_take_the_name_of_a_tool_of_the_servers(name: str, *, decisions: bool) -> None:
    with pytest.raises(InvalidSetting, match=f"'{name}'"):
        AgentServer(nowhere(), {"clerk": "", name: ""}, decisions=decisions)


TOKEN = "a-secret-of-16-characters"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("token", "hosts", "headers", "status"),
    [
        (None, (), {}, 200),
        (None, (), {"host": "localhost:80"}, 200),
        (None, (), {"host": "[::1]:80"}, 200),
        (None, (), {"host": "evil.example"}, 421),
        (None, (), {"host": ""}, 421),
        (None, (), {"origin": "http://localhost:3000"}, 200),
        (None, (), {"origin": "https://evil.example"}, 403),
        (None, (), {"origin": "null"}, 403),
        (None, ("agents.example",), {"host": "agents.example"}, 200),
        (None, ("agents.example:8443",), {"host": "Agents.example:8443"}, 200),
        (None, ("agents.example:8443",), {"host": "agents.example"}, 421),
        (None, ("agents.example",), {"host": "evil.example"}, 421),
        (TOKEN, (), {}, 401),
        (TOKEN, (), {"authorization": "Bearer b-secret-of-16-characters"}, 401),
        (TOKEN, (), {"host": "agents.example"}, 401),
        (TOKEN, (), {"host": "agents.example", **BEARER}, 200),
        (TOKEN, (), {"authorization": f"bearer  {TOKEN}"}, 200),
        (TOKEN, (), {"authorization": f"Basic {TOKEN}"}, 401),
        (TOKEN, (), {"authorization": TOKEN}, 401),
        (TOKEN, (), {"host": "agents.example", "origin": "https://pages.example", **BEARER}, 200),
        (TOKEN, ("agents.example",), {"host": "agents.example", **BEARER}, 200),
        (TOKEN, ("agents.example",), {"host": "evil.example", **BEARER}, 421),
    ],
)
def test_strangers_are_turned_away(token: str | None, hosts: tuple[str, ...], headers: Any, status: int) -> None:
    app = app_of(AgentServer(nowhere(), {}), token=token, hosts=hosts)
    first = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    usual = {"accept": "application/json, text/event-stream", "host": "127.0.0.1:80"}
    with TestClient(app) as visitor:
        assert visitor.post("/mcp", json=first, headers=usual | headers).status_code == status


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
@pytest.mark.parametrize("headers", [{}, {"last-event-id": "7"}, {"mcp-protocol-version": "2026-07-28"}])
def test_a_server_without_sessions_has_no_streams_to_take_up(method: str, headers: dict[str, str]) -> None:
    usual = {"accept": "text/event-stream", "host": "localhost", "mcp-session-id": "1"}
    with TestClient(app_of(AgentServer(nowhere(), {}), token=None)) as visitor:
        answer = visitor.request(method, "/mcp", headers=usual | headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_token_has_to_be_strong_and_there_if_others_can_reach_the_server() -> None:
    with pytest.raises(InvalidSetting, match="EVERTURN_MCP_TOKEN"):
        check_token(None, host="0.0.0.0", what="MCP server", variable="EVERTURN_MCP_TOKEN")
    with pytest.raises(InvalidSetting, match="16"):
        check_token("short", host="127.0.0.1", what="MCP server", variable="EVERTURN_MCP_TOKEN")
