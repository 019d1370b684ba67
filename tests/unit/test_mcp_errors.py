"""What an MCP server, or what is before it, refuses: whether the call has run, and what is done about it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from everturn import McpServer, Text
from everturn.errors import OutcomeUnknown, Retry, ToolFailed
from everturn.tools.context import ToolContext
from everturn.tools.mcp import error_codes
from everturn.tools.mcp.calls import ServerCall
from everturn.tools.mcp.connections import NotConnected, ServerConnection, ServerConnections
from everturn.tools.mcp.greetings import OLD_CURE, OLD_TRANSPORT
from everturn.tools.mcp.listed_tools import ListedTool
from everturn.tools.tool import Effect
from tests.support.bounds import Bounds
from tests.support.mcp_played import Answer, Answering, Message, Played, ran, rpc, served, status, stream


class FirstTry:
    """Nothing was left by a try before."""

    again = sent = is_cancelled = False
    task = None

    def __init__(self, *, once: bool) -> None:
        self.once = once

    async def keep(self, *, task: str | None = None) -> None: ...


@asynccontextmanager
async def connections() -> AsyncIterator[ServerConnections]:
    opened = ServerConnections(on_change=lambda _: None)
    try:
        yield opened
    finally:
        await opened.close()


async def paid(opened: ServerConnections, server: McpServer, effect: Effect, **arguments: Any) -> str:
    """What the model is told, or the name of what is done instead, with its words."""
    tool = ListedTool("pay", effect)
    call = ServerCall(opened, server, tool, ToolContext(), FirstTry(once=effect == "once"))
    try:
        parts = await call.call_tool({"cents": 5, **arguments})
    except (ToolFailed, Retry, OutcomeUnknown) as error:
        return f"{type(error).__name__}: {error}"
    return " ".join(part.text for part in parts if isinstance(part, Text))


def no_result(message: Message) -> Answer:
    return Answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": 5}}))


def another_result(message: Message) -> Answer:
    return ran({**message, "id": "another"})


def whole(answering: Answering) -> Answering:
    """Beside `stream`: as it is."""
    return answering


def both(answering: Answering) -> Answering:
    """The same with a null in the place of the error, or of the result."""

    def answer(message: Message) -> Answer:
        written = answering(message)
        body = {"result": None, "error": None, **json.loads(written.body)}
        return replace(written, body=json.dumps(body))

    return answer


TOO_MANY = {"error": "too many requests"}
QUOTA = "Monthly quota exceeded"
BROKEN = status(200, {"jsonrpc": "2.0"})


@pytest.mark.parametrize(
    ("refusal", "effect", "told", "sent"),
    [
        # Not begun with: it is made again, whatever the body is.
        (status(429, TOO_MANY), "once", "paid 5", 2),
        (status(429, "later"), "once", "paid 5", 2),
        (status(503, TOO_MANY), "once", "paid 5", 2),
        (status(503), "once", "paid 5", 2),
        (status(408, TOO_MANY), "once", "paid 5", 2),
        (rpc(-32000, "Rate limit", number=429), "once", "paid 5", 2),
        (rpc(-32603, "Busy", number=503, has_id=False), "once", "paid 5", 2),
        (status(429, TOO_MANY), "idempotent", "Retry: 127.0.0.1 does not take the call now: HTTP 429", 1),
        # Refused: the model is told, with the status and the words.
        (status(401, {"error": "invalid_token"}), "once", "ToolFailed: 127.0.0.1 refused the call: HTTP 401 Unaut", 1),
        (status(403, "not you"), "once", "ToolFailed: 127.0.0.1 refused the call: HTTP 403 Forbidden: not you", 1),
        (rpc(-32001, "Wrong tenant", number=403), "once", "ToolFailed: 127.0.0.1 refused the call: HTTP 403 Forbi", 1),
        (status(404, {"detail": "Not Found"}), "once", "ToolFailed: 127.0.0.1 refused the call: HTTP 404 Not Found", 1),
        (status(413), "once", "ToolFailed: 127.0.0.1 refused the call: HTTP 413", 1),
        (rpc(-32602, "No cents", number=400), "once", "ToolFailed: 127.0.0.1 refused the call: No cents", 1),
        (rpc(-32603, "Boom", number=500), "once", "ToolFailed: 127.0.0.1 refused the call: Boom", 1),
        # A server's own errors, with codes that we, or the SDK, have for others.
        *(
            (send(rpc(code, QUOTA)), effect, f"ToolFailed: 127.0.0.1 refused the call: {QUOTA}", 1)
            for number, code in enumerate((*sorted(error_codes.RESERVED), -32001, -32042, 7))
            for effect, send in zip(("once", "read"), (whole, stream)[:: 1 if number % 2 else -1], strict=True)
        ),
        # By JSON-RPC, who gives no id could not read the request.
        (rpc(-32000, "No valid session", has_id=False), "once", "ToolFailed: 127.0.0.1 refused the call: No valid", 1),
        (rpc(-32700, "Parse error", has_id=False), "once", "ToolFailed: 127.0.0.1 refused the call: Parse error", 1),
        (stream(rpc(-32700, "Parse", has_id=False)), "once", "ToolFailed: 127.0.0.1 refused the call: Parse", 1),
        # It may have run.
        (another_result, "once", "OutcomeUnknown: 127.0.0.1 gave an answer that is not MCP: it answers another", 1),
        (status(200, {"jsonrpc": "2.0", "method": "ping", "id": 3}), "once", "OutcomeUnknown: 127.0.0.1 gave an", 1),
        (status(500, {"error": "boom"}), "once", "OutcomeUnknown: ", 1),
        (rpc(-32603, "Boom", number=500, has_id=False), "once", "OutcomeUnknown: ", 1),
        (status(502), "once", "OutcomeUnknown: ", 1),
        (status(504, TOO_MANY), "once", "OutcomeUnknown: ", 1),
        (status(504), "idempotent", "Retry: ", 1),
        (status(202), "once", "OutcomeUnknown: ", 1),
        (status(200, "<html>Sign in"), "once", "OutcomeUnknown: 127.0.0.1 gave an answer that is not MCP", 1),
        (status(200, "<html>Sign in"), "read", "ToolFailed: 127.0.0.1 gave an answer that is not MCP", 1),
        (BROKEN, "once", "OutcomeUnknown: 127.0.0.1 gave an answer that is not MCP", 1),
        (stream(BROKEN), "once", "OutcomeUnknown: 127.0.0.1 gave an answer that is not MCP", 1),
        *((send(rpc([7], "Odd")), "once", "OutcomeUnknown", 1) for send in (whole, stream)),
        # Libraries that write the member that is not there, too.
        *((send(both(ran)), "once", "paid 5", 1) for send in (whole, stream)),
        *(
            (send(both(rpc(-32000, "No"))), "once", "ToolFailed: 127.0.0.1 refused the call: No", 1)
            for send in (whole, stream)
        ),
        # It has run.
        (stream(ran), "once", "paid 5", 1),
        (no_result, "once", "ToolFailed: 127.0.0.1 has run the call, but its answer is not MCP", 1),
    ],
)
async def test_a_refusal_counts_by_who_says_what(
    refusal: Answering, effect: Effect, told: str, sent: int, bounds: Bounds
) -> None:
    bounds(mcp_call_wait_seconds=0.01)
    with served(Played([refusal])) as played:
        async with connections() as opened:
            assert (await paid(opened, McpServer(url=played.url), effect)).startswith(told)
        assert len(played.calls) == sent


FORGOTTEN = [
    status(404, "Session not found"),
    rpc(-32001, "Session not found", number=404),
    rpc(-32000, "Bad Request: No valid session ID provided", number=400, has_id=False),
    rpc(-32000, "Bad Request: Server not initialized", number=400),
    status(400, "Invalid session ID"),
    status(400, {"error": "unknown session"}),
    rpc(-32600, "Unauthorized: Session not found", number=401),
    status(410),
    status(422, {"detail": "Unexpected message, expect initialize request"}),
    rpc(-32600, "Server not initialized"),
    rpc(-32602, "Invalid request parameters"),
    rpc(-32000, "Session not found"),
    rpc(-32000, "No valid session", has_id=False),
    stream(rpc(-32001, "Session not found")),
]


@pytest.mark.parametrize(
    ("forgotten", "effect"),
    [*((words, "once") for words in FORGOTTEN), *((words, "idempotent") for words in FORGOTTEN[::5])],
)
async def test_a_server_that_was_restarted_gets_the_call_once_in_a_new_session(
    forgotten: Answering, effect: Effect
) -> None:
    with served(Played(forgotten=forgotten)) as played:
        async with connections() as opened:
            server = McpServer(url=played.url)
            assert await paid(opened, server, effect) == "paid 5"
            played.forget()
            assert await paid(opened, server, effect) == "paid 5"
    assert played.paid == [5, 5]
    assert len(played.calls) == 2


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (status(400, "No such order"), "HTTP 400 Bad Request: No such order"),
        (rpc(-32600, "No such order"), "No such order"),
        (rpc(-32603, "Session not found"), "Session not found"),
        (status(401, "Card refused"), "HTTP 401 Unauthorized: Card refused"),
    ],
)
async def test_a_refusal_of_the_call_alone_is_no_forgotten_session(refusal: Answering, told: str) -> None:
    with served(Played([refusal], forgotten=status(404))) as played:
        async with connections() as opened:
            text = await paid(opened, McpServer(url=played.url), "once")
    assert text == f"ToolFailed: 127.0.0.1 refused the call: {told}"
    assert len(played.calls) == 1


async def test_a_server_whose_errors_are_all_alike_does_not_get_a_call_twice() -> None:
    """-32603 may come after the effect, and of every request, as while its database is away."""
    with served(Played(forgotten=rpc(-32603, "Session not found"))) as played:
        async with connections() as opened:
            server = McpServer(url=played.url)
            await paid(opened, server, "once")
            played.forget()
            assert "Session not found" in await paid(opened, server, "once")
    assert played.paid == [5]


@pytest.mark.parametrize("refusal", [status(401), status(500), status(502), status(202), rpc(-32000, "Quota")])
async def test_the_other_calls_of_a_connection_go_on(refusal: Answering) -> None:
    with served(Played([refusal], forgotten=status(404))) as played:
        async with connections() as opened:
            server = McpServer(url=played.url)
            other = asyncio.create_task(paid(opened, server, "once", slow=True))
            await asyncio.to_thread(played.began.wait, 10)
            assert not (await paid(opened, server, "once")).startswith("paid")
            assert await paid(opened, server, "once") == "paid 5", "on another connection"
            played.may_end.set()
            assert await other == "paid 5"


@pytest.mark.parametrize(("header", "seconds"), [("7", 7), ("999999999", 86_400)])
async def test_a_server_says_when_to_come_again(header: str, seconds: int) -> None:
    with served(Played([status(429, TOO_MANY, retry_after=header)])) as played:
        async with connections() as opened:
            tool = ListedTool("pay", "read")
            call = ServerCall(opened, McpServer(url=played.url), tool, ToolContext(), FirstTry(once=False))
            with pytest.raises(Retry) as later:
                await call.call_tool({})
    assert later.value.after == timedelta(seconds=seconds)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_error_in_a_stream_is_told_apart_and_all_else_stays(end: str) -> None:
    error = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Quota"}}, indent=1)
    others = [": a comment", "", "id: 3", 'data: {"jsonrpc": "2.0", "method": "x", "params": {"error": -32000}}', ""]
    lines = [*others, "id: 4", "event: message", *(f"data: {line}" for line in error.splitlines()), "", ""]
    changed = error_codes.events_told_apart(end.join(lines).encode()).decode()
    kept = end.join([*others, ""])
    assert changed.startswith(kept)
    *fields, data = [line for line in changed.removeprefix(kept).splitlines() if line]
    assert fields == ["id: 4", "event: message"]
    told = json.loads(data.removeprefix("data: "))
    assert (told["error"]["code"], told["error"]["data"]["code"]) == (error_codes.SERVERS_OWN, -32000)


# ---------------------------------------------------------------- greetings

INSISTS = """
import json, sys

def answer(**fields):
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **fields}}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "server/discover":
        {at_discover}
    elif "id" in message:
        server = {{"name": "a", "version": "1"}}
        answer(result={{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}, "serverInfo": server}})
"""


@pytest.mark.parametrize(
    "at_discover",
    [
        "sys.exit('expect initialize request')",
        "sys.exit(0)",
        "pass",
        "answer(error={'code': -32000, 'message': 'no'})",
        "answer(result={})",
    ],
)
async def test_a_server_that_takes_the_newer_greeting_badly_is_greeted_in_the_older_way(at_discover: str) -> None:
    program = INSISTS.format(at_discover=at_discover)
    server = McpServer(command=[sys.executable, "-c", program], start_timeout=timedelta(seconds=3))
    async with connections() as opened:
        first = opened.connection_to(server)
        assert (await first.opened_session()).initialize_result is not None
        await opened.renew(first)
        again = opened.connection_to(server)
        assert again.legacy == first.legacy, "what it takes is remembered"
        await again.opened_session()


ODD = """
import json, sys

def answer(**fields):
    print(json.dumps({{"jsonrpc": "2.0", **fields}}), flush=True)

server = {{"name": "a", "version": "1"}}
greeting = {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}, "serverInfo": server}}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "notifications/initialized":
        answer(id=None, error={{"code": -32601, "message": "no such method"}})
    if "id" not in message:
        continue
    if message["method"] == "tools/call":
        print(json.dumps({answers}), flush=True)
    elif message["method"] == "server/discover":
        answer(id=message["id"], error={{"code": -32601, "message": "no such method"}})
    else:
        answer(id=message["id"], result=greeting)
"""
"""A program that answers each call with this, and even a notification with an error that names no request."""


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ('{"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "No"}}', "ToolFailed: shop refused"),
        ('{"jsonrpc": "2.0", "error": {"code": -32000, "message": "No"}}', "ToolFailed: shop refused the call: No"),
        ('{"jsonrpc": "2.0", "error": "No"}', "OutcomeUnknown: shop gave an answer that is not MCP"),
        ('{"jsonrpc": "2.0", "result": {"content": []}}', "OutcomeUnknown: shop gave an answer that is not MCP"),
        ('{"id": message["id"], "result": {"content": []}}', "OutcomeUnknown: shop gave an answer that is not MCP"),
        ('{"jsonrpc": "2.0", "id": message["id"] + 0.0, "result": {}}', "OutcomeUnknown: shop gave an answer that"),
    ],
)
async def test_an_answer_of_a_program_that_names_no_request_is_that_to_the_only_one(answers: str, problem: str) -> None:
    program = ODD.format(answers=answers)
    server = McpServer(command=[sys.executable, "-c", program], name="shop")
    async with connections() as opened, asyncio.timeout(20):
        assert (await paid(opened, server, "once")).startswith(problem)


async def test_a_server_that_takes_neither_greeting_says_both_times_why() -> None:
    refuses = McpServer(command=[sys.executable, "-c", "raise SystemExit('no shop today')"])
    connection = ServerConnection(refuses, on_change=lambda: None)
    with pytest.raises(NotConnected, match="no shop today"):
        await connection.opened_session()
    await connection.close()


@pytest.mark.parametrize(
    ("refused", "old_stream", "words", "cure"),
    [
        (405, True, f"HTTP 405 Method Not Allowed: {OLD_TRANSPORT}", OLD_CURE),
        (404, True, f"HTTP 404 Not Found: {OLD_TRANSPORT}", OLD_CURE),
        (404, False, "HTTP 404 Not Found", "Check the address"),
        (401, False, "HTTP 401 Unauthorized", "Check the server's token"),
        (500, False, "HTTP 500 Internal Server Error", ""),
    ],
)
async def test_an_address_that_takes_no_greeting_says_why(
    refused: int, old_stream: bool, words: str, cure: str
) -> None:
    with served(Played(refused=refused, old_stream=old_stream)) as played:
        connection = ServerConnection(McpServer(url=played.url), on_change=lambda: None)
        with pytest.raises(NotConnected) as problem:
            await connection.opened_session()
        await connection.close()
    assert str(problem.value) == words
    assert problem.value.cure.startswith(cure)
