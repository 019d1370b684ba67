"""MCP servers that send too much: their connection ends, they say why, and the worker's other conversations go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everturn import Client, McpServer
from everturn.cli import run_command
from everturn.testing import ScriptedModel, call
from everturn.tools.mcp.connections import ConnectionLost, NotConnected, RunningCall, ServerConnection
from everturn.tools.mcp.listed_tools import list_tools, tools_of
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.ports import free_port, listens
from tests.support.prepared import Program
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, reaches, until, waiting

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]
MIB = 2**20


class Flood:
    """The server of mcp_flood.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = [sys.executable, "-I", "-S", str(ROOT / "tests" / "support" / "mcp_flood.py"), str(folder)]

    @contextmanager
    def over(self, how: str, list_: str = "plain", **options: Any) -> Iterator[McpServer]:
        if how == "stdio":
            yield McpServer(command=[*self.command, "0", list_], cwd=str(ROOT), name="flood", **options)
            return
        port = free_port()
        process = Program(*self.command[3:], str(port), list_, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            until(lambda: listens(port))
            yield McpServer(url=f"http://127.0.0.1:{port}/mcp", name="flood", **options)
        finally:
            process.kill()
            process.wait()

    @property
    def calls(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def flood(tmp_path: Path) -> Flood:
    return Flood(tmp_path)


ANSWERS = [
    ("stdio", "long", "more than 1,048,576 bytes"),
    ("http", "long", "more than 1,048,576 bytes"),
    ("http", "bomb", "more than 1,048,576 bytes"),
    ("stdio", "values", "more than 10,000 JSON values"),
    ("http", "values", "more than 10,000 JSON values"),
]


@pytest.mark.parametrize(("how", "kind", "words"), ANSWERS)
async def test_an_answer_that_is_too_long_is_the_calls_and_not_in_doubt(
    client: Client, scripted: Scripted, flood: Flood, bounds: Bounds, how: str, kind: str, words: str
) -> None:
    bounds(mcp_message_bytes=MIB, mcp_values=10_000)
    model = scripted([call(f"once_{kind}"), call("fine"), "Done."])
    with flood.over(how) as server:
        agent = agent_on(model, tools=[server])
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go on")
            assert (await conversation.outcome()).text == "Done."
    cut, fine = results_of(await conversation.transcript())
    assert cut.is_error
    assert cut.text.startswith("flood has run the call, but its answer can't be read: it sent a message of")
    assert words in cut.text
    assert "which is the limit" in cut.text
    assert "in pages" in cut.text
    assert fine.text == "fine"
    assert flood.calls == [f"once_{kind}", "fine"]


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("stdio", "endless", "it sent a message of more than 1,048,576 bytes"),
        ("http", "endless", "it sent a message of more than 1,048,576 bytes"),
        ("stdio", "pings", "it sent more than 100 requests before it took our answers"),
    ],
)
async def test_a_message_of_nobodys_that_is_too_long_ends_the_connection_and_a_person_is_told_why(
    client: Client, scripted: Scripted, flood: Flood, bounds: Bounds, how: str, kind: str, words: str
) -> None:
    bounds(mcp_message_bytes=MIB)
    model = scripted([call(f"once_{kind}"), call("fine"), "Done."])
    with flood.over(how) as server:
        agent = agent_on(model, tools=[server])
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go on")
            [call_id] = await waiting(conversation)
            [asked] = (await conversation.status()).waiting
            assert asked.reason == "outcome_unknown"
            assert f"flood lost its connection in the middle of the call: {words}" in asked.why
            await conversation.deny(call_id, "Leave it")
            assert (await conversation.outcome()).text == "Done."
    assert [result.text for result in results_of(await conversation.transcript())][1:] == ["fine"]
    assert flood.calls == [f"once_{kind}", "fine"]


async def test_a_call_that_may_run_again_says_what_was_lost_when_its_patience_is_over(
    client: Client, scripted: Scripted, flood: Flood, bounds: Bounds
) -> None:
    bounds(mcp_message_bytes=MIB)
    short = timedelta(seconds=4)
    with flood.over("stdio", timeout=short, patience=short) as server:
        agent = agent_on(scripted([call("endless"), "Done."]), tools=[server])
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go on")
            assert (await conversation.outcome()).text == "Done."
    [lost] = results_of(await conversation.transcript())
    assert "it sent a message of more than 1,048,576 bytes, which is the limit" in lost.text


@pytest.mark.long_if(lambda how, kind: (how, kind) == ("http", "progress"))
@pytest.mark.parametrize(
    ("how", "kind"),
    [("stdio", "logs"), ("stdio", "progress"), ("stdio", "errors"), ("http", "logs"), ("http", "progress")],
)
async def test_what_a_server_says_without_an_end_leaves_other_conversations_going(
    client: Client, scripted: Scripted, flood: Flood, how: str, kind: str
) -> None:
    with flood.over(how) as server:
        flooded = agent_on(scripted([call(kind), "At last."]), tools=[server], name="flooded")
        other = agent_on(scripted(["One.", "Two."]), name="other")
        async with hosting(client, flooded, other):
            long = await client.start(flooded, "Go on")
            await eventually(lambda: flood.calls)
            assert (await (await client.start(other, "Count")).outcome()).text == "One."
            flood.go()
            assert (await long.outcome()).text == "At last."
    [result] = results_of(await long.transcript())
    assert result.text == "at last"


async def test_all_calls_of_a_connection_and_the_log_are_told_why_it_was_lost(
    flood: Flood, bounds: Bounds, caplog: pytest.LogCaptureFixture
) -> None:
    bounds(mcp_message_bytes=MIB)
    with flood.over("stdio") as server:
        connection = ServerConnection(server, on_change=lambda: None)
        try:
            calls = [
                connection.run_call(RunningCall(), lambda session: session.call_tool("endless", {})),
                connection.run_call(RunningCall(), lambda session: session.call_tool("fine", {})),
            ]
            for lost in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(lost, ConnectionLost)
                assert "more than 1,048,576 bytes, which is the limit" in str(lost)
            assert not connection.is_alive
            await eventually(lambda: "mcp.disconnected" in caplog.text)
            assert "more than 1,048,576 bytes" in caplog.text
            assert "1,048,576" in connection.ended_for
        finally:
            await connection.close()


@pytest.mark.parametrize("how", ["stdio", "http"])
async def test_a_list_that_is_too_long_for_a_message_says_so(
    client: Client, scripted: Scripted, flood: Flood, bounds: Bounds, how: str
) -> None:
    bounds(mcp_message_bytes=MIB)
    short: Any = {"timeout": timedelta(seconds=1), "patience": timedelta(seconds=1)}
    with flood.over(how, "huge", **short) as server:
        agent = agent_on(scripted(["Done."]), tools=[server])
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go on")
            status = await reaches(conversation, "stalled")
            assert "The tools of MCP server 'flood' can't be listed: it sent a message of" in (status.cause or "")
            await conversation.close()


@pytest.mark.parametrize(("list_", "last"), [("pages", "tool_33_9"), ("huge", "t33")])
async def test_a_list_that_is_cut_says_so_in_the_log(
    flood: Flood, caplog: pytest.LogCaptureFixture, list_: str, last: str
) -> None:
    with flood.over("stdio", list_) as server:
        connection = ServerConnection(server, on_change=lambda: None)
        try:
            listed = await list_tools(await connection.opened_session(), server)
        finally:
            await connection.close()
    assert "the limit is 1,000 tools, 4,194,304 bytes, 100 pages. Name those you need: allow=[...]" in listed.cut
    assert listed.tools[-1].name == last
    assert last in [listed_tool.name for listed_tool in tools_of(server, listed.tools, _never)]
    assert "mcp.list_cut" in caplog.text


async def test_of_a_list_that_is_too_long_the_allowed_tools_are_taken(flood: Flood) -> None:
    with flood.over("stdio", "huge", allow=["fine", "t99"]) as server:
        connection = ServerConnection(server, on_change=lambda: None)
        try:
            listed = await list_tools(await connection.opened_session(), server)
        finally:
            await connection.close()
    assert listed.cut == ""
    assert [listed_tool.name for listed_tool in tools_of(server, listed.tools, _never)] == ["fine", "t99"]


@pytest.mark.parametrize(("list_", "name", "words"), [("huge", "wordy", "100,000"), ("deep", "deep", "nested")])
async def test_a_tool_that_is_too_long_or_deep_is_left_out(
    flood: Flood, caplog: pytest.LogCaptureFixture, list_: str, name: str, words: str
) -> None:
    with flood.over("stdio", list_, allow=["fine", name]) as server:
        connection = ServerConnection(server, on_change=lambda: None)
        try:
            listed = await list_tools(await connection.opened_session(), server)
        finally:
            await connection.close()
    assert [listed_tool.name for listed_tool in tools_of(server, listed.tools, _never)] == ["fine"]
    assert "mcp.tool_left_out" in caplog.text
    assert words in caplog.text


async def test_one_tool_that_the_protocol_does_not_allow_takes_no_others_away(
    flood: Flood, caplog: pytest.LogCaptureFixture
) -> None:
    with flood.over("stdio", "odd", deny=["bare"]) as server:
        connection = ServerConnection(server, on_change=lambda: None)
        try:
            listed = await list_tools(await connection.opened_session(), server)
        finally:
            await connection.close()
    names = {tool.name for tool in tools_of(server, listed.tools, _never)}
    assert names >= {"fine", "typeless", "empty", "listing"}
    assert names.isdisjoint({"list", "text", "None"})
    assert caplog.text.count("mcp.tool_left_out") == 4


async def _never(*_: object) -> None:
    raise NotImplementedError


def test_a_list_that_is_cut_is_said_by_the_command_line(flood: Flood, capsys: pytest.CaptureFixture[str]) -> None:
    file = flood.folder / "flooded_agents.py"
    server = f"McpServer(command={[*flood.command, '0', 'pages']!r}, cwd={str(ROOT)!r}, name='flood')"
    file.write_text(
        f"from everturn import Agent, McpServer\nclerk = Agent('clerk', model='openai:x', tools=[{server}])\n"
    )
    assert run_command(["tools", str(file), "--mcp", "--json"]) == 0
    assert "MCP server 'flood': only its first 1,000 tools are taken" in capsys.readouterr().err


async def test_a_greeting_that_is_too_long_is_no_connection(bounds: Bounds) -> None:
    bounds(mcp_message_bytes=MIB)
    program = f"import sys\nsys.stdin.readline()\nwhile True: sys.stdout.write('x' * {MIB})"
    connection = ServerConnection(McpServer(command=[sys.executable, "-c", program]), on_change=lambda: None)
    try:
        with pytest.raises(NotConnected, match="more than 1,048,576 bytes, which is the limit"):
            await connection.opened_session()
    finally:
        await connection.close()
