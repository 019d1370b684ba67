"""Clients that send half of a request, or nothing: they are let go, and lock nobody out."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from everturn.web.server import HttpServer, config_of, open_socket
from tests.support.bounds import Bounds
from tests.support.prepared import Program

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
HALF_A_HEAD = HEAD[:30]
MINUTES = 300.0
"""What never runs out in a test."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """Answers with the body that came, after `wait` is set."""

    def __init__(self) -> None:
        self.wait = asyncio.Event()
        self.wait.set()
        self.asked = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.asked.set()
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        await self.wait.wait()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    """The port that it is served at."""
    started = asyncio.Event()
    with open_socket("127.0.0.1", 0) as bound:
        server = HttpServer(config_of(app), started.set)
        running = asyncio.create_task(server.serve(sockets=[bound]))
        await started.wait()
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def connected(port: int, said: bytes = b"") -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def let_go(connection: Connection) -> bytes:
    """What came until the server closed the connection."""
    try:
        return await connection[0].read()
    except ConnectionResetError:
        return b""
    finally:
        connection[1].close()


async def answered(port: int, said: bytes = HEAD + b"0123456789") -> bytes:
    reader, writer = await connected(port, said)
    answer = await reader.readuntil(b"0123456789")
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (b"", "request_head_seconds"),
        (HALF_A_HEAD, "request_head_seconds"),
        (HEAD + b"01234", "request_body_seconds"),
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_who_does_not_finish_a_request_is_let_go(bounds: Bounds, said: bytes, limit: str) -> None:
    bounds(**{"request_head_seconds": MINUTES, "request_body_seconds": MINUTES, limit: 0.2})
    async with serving(Echo()) as port:
        assert await let_go(await connected(port, said)) == b""


async def test_a_second_request_on_a_connection_has_to_come_in_time_too(bounds: Bounds) -> None:
    bounds(request_head_seconds=0.2)
    async with serving(Echo()) as port:
        came = await let_go(await connected(port, HEAD + b"0123456789" + HALF_A_HEAD))
    assert came.startswith(b"HTTP/1.1 200 OK")
    assert came.count(b"HTTP/1.1") == 1


async def test_who_sends_byte_by_byte_gets_no_more_time(bounds: Bounds) -> None:
    bounds(request_head_seconds=0.3)
    async with serving(Echo()) as port:
        reader, writer = await connected(port)

        async def drip() -> None:
            while True:
                writer.write(b"X")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        try:
            assert await let_go((reader, writer)) in (b"", b"Invalid HTTP request received.")
        finally:
            dripping.cancel()


async def test_an_answer_may_take_longer_than_a_request(bounds: Bounds) -> None:
    bounds(request_head_seconds=0.1, request_body_seconds=0.1)
    app = Echo()
    app.wait.clear()
    async with serving(app) as port:
        answer = asyncio.create_task(answered(port))
        await app.asked.wait()
        assert await let_go(await connected(port)) == b"", "both limits are over"
        app.wait.set()
        assert (await answer).startswith(b"HTTP/1.1 200 OK")


async def test_if_there_are_too_many_who_has_waited_longest_makes_room(bounds: Bounds) -> None:
    bounds(request_head_seconds=MINUTES, connections=5)
    app = Echo()
    async with serving(app) as port, AsyncExitStack() as stack:
        held = [await connected(port, HALF_A_HEAD) for _ in range(20)]
        for _, writer in held:
            stack.callback(writer.close)
        assert (await answered(port)).startswith(b"HTTP/1.1 200 OK")
        for one in held[:15]:
            assert await let_go(one) == b""


async def test_requests_that_run_make_no_room(bounds: Bounds) -> None:
    bounds(connections=3)
    app = Echo()
    app.wait.clear()
    async with serving(app) as port:
        first = [asyncio.create_task(answered(port)) for _ in range(2)]
        await app.asked.wait()
        assert await let_go(await connected(port)) == b""
        app.wait.set()
        assert len(await asyncio.gather(*first)) == 2


@pytest.mark.parametrize("command", ["web", "codec", "mcp"])
async def test_half_requests_lock_nobody_out_of_a_command_that_may_open_few_files(
    server: Any, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("EVERTURN_ENCRYPTION_KEYS", f"k1:{'A' * 43}=")
    arguments = {
        "web": ["web", "--port", "0"],
        "codec": ["codec", "--port", "0"],
        "mcp": ["mcp", "--http", "--port", "0", "--agent", "clerk"],
    }
    with ExitStack() as stack:
        process = stack.enter_context(Program("-m", "everturn", *arguments[command], stderr=subprocess.PIPE))
        stack.callback(process.kill)
        said = ""
        while not (found := re.search(r"http://[\w.]+:(\d+)", said)):
            line = await asyncio.to_thread(process.stderr.readline)
            assert line, f"it ended, and said {said!r}"
            said += line
        port = int(found[1])
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (100, 100))
        for _ in range(200):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            half.sendall(HALF_A_HEAD)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=180) as honest:
            assert (await honest.get("/nowhere")).status_code < 500
