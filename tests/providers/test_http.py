"""The transport, over real connections on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from everturn.errors import (
    ConnectionFailed,
    InvalidReply,
    KeyMissing,
    KeyRefused,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    Unavailable,
)
from everturn.models import Model, ModelSettings
from everturn.providers import ToolSpec, ask, connections, generate
from everturn.providers.base import Delta, Request
from everturn.records import Message, ToolCall, Usage
from everturn.testing import Reply, ScriptedModel, call, cut, fail, garbage, say, slow
from everturn.tools.tool import tool
from tests.providers.sockets import head, sends, server, streamed_or_not
from tests.support.bounds import Bounds

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
async def _connections() -> AsyncIterator[None]:
    yield
    await connections.aclose()


def request(base_url: str, *, stream: bool = True, **options: Any) -> Request:
    model = Model("openai-chat:demo", base_url=base_url)
    return Request(model=model, messages=[Message.user("hi")], settings=ModelSettings(stream=stream), **options)


async def reply_to(script: Reply, *, stream: bool = True) -> Any:
    async with ScriptedModel([script]) as model:
        return await ask(request(model.base_url, stream=stream))


@streamed_or_not
async def test_a_reply_with_text_and_parallel_calls_arrives(stream: bool) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    reply = await reply_to(
        [say("Looking. – 😊\u2028", usage=usage), call("weather", {"city": "Paris"}), call("weather", {})],
        stream=stream,
    )
    assert reply.text == "Looking. – 😊\u2028"
    assert [(found.name, found.arguments) for found in reply.tool_calls] == [
        ("weather", {"city": "Paris"}),
        ("weather", {}),
    ]
    assert (reply.stop, reply.usage) == ("tool_calls", Usage(input_tokens=5, output_tokens=7))
    assert reply.model == "openai-chat:demo"


async def test_deltas_arrive_before_the_end() -> None:
    heard = asyncio.Event()
    told: list[str] = []

    def hear(delta: Delta) -> None:
        told.append(delta.text)
        heard.set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head("text/event-stream") + b'data: {"choices":[{"delta":{"content":"First "}}]}\n\n')
        await asyncio.wait_for(heard.wait(), 30)
        writer.write(b'data: {"choices":[{"delta":{"content":"last."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')

    async with server(answer) as base_url:
        assert (await ask(request(base_url), on_delta=hear)).text == "First last."
    assert told == ["First ", "last."]


async def test_the_request_carries_the_key_the_tools_and_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        received.append(await reader.readuntil(b"}}]}"))
        writer.write(head("application/json") + b'{"choices":[{"message":{"content":"ok"}}]}')

    async with server(answer) as base_url:
        assert (await ask(request(base_url, stream=False, tools=[ToolSpec("weather")]))).text == "ok"
    assert received[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}\r\n".encode() in received[0]
    assert b"Content-Type: application/json\r\n" in received[0]
    assert b'"messages":[{"role":"user","content":"hi"}]' in received[1]
    assert b'"name":"weather"' in received[1]


async def test_a_cookie_that_an_answer_sets_goes_out_with_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        headed = head("application/json").replace(b"Connection:", b"Set-Cookie: seen=order-81; Path=/\r\nConnection:")
        writer.write(headed + b'{"choices":[{"message":{"content":"ok"}}]}')

    async with server(answer) as base_url:
        for _ in range(2):
            assert (await ask(request(base_url, stream=False))).text == "ok"
    assert len(received) == 2
    assert b"cookie" not in received[1].lower()


@streamed_or_not
@pytest.mark.parametrize(
    ("script", "error"),
    [
        (fail(429, headers={"retry-after": "3"}), RateLimited),
        (fail(429, code="insufficient_quota"), QuotaExhausted),
        (fail(401, f"Incorrect API key provided: {KEY}"), KeyRefused),
        (fail(400, body=""), RequestRefused),
        (fail(503, body="<html>", headers={"content-type": "text/html"}), Unavailable),
        (fail(500, body=b"\xff\x00", headers={"content-type": "application/octet-stream"}), Unavailable),
        (cut(after=3), ConnectionFailed),
        (cut(after=0), ConnectionFailed),
        (garbage(), InvalidReply),
        (garbage(b""), InvalidReply),
        (garbage(b'{"choices": []}'), InvalidReply),
        (garbage(b"<html>", content_type="text/html"), InvalidReply),
        (garbage(b"data: {}\n\n", content_type="text/event-stream"), InvalidReply),
        (garbage(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', content_type="text/event-stream"), InvalidReply),
        (garbage(b'data: {"error":{"code":502}}\n\n', content_type="text/event-stream"), Unavailable),
        (garbage(b'{"error": {"message": "x", "code": 429}}'), RateLimited),
    ],
)
async def test_what_goes_wrong_is_a_typed_error(
    script: Reply, error: type[ProviderError], stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(error) as raised:
        await reply_to(script, stream=stream)
    assert raised.value.provider == "openai-chat"
    assert KEY not in f"{raised.value} {raised.value.args} {raised.value.__cause__}"


async def test_retry_after_travels_with_the_error() -> None:
    with pytest.raises(RateLimited) as raised:
        await reply_to(fail(429, headers={"Retry-After": "3"}))
    assert raised.value.retry_after == 3.0


async def test_a_server_may_answer_otherwise_than_it_was_asked() -> None:
    whole = b'{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}'
    events = b'data: {"choices":[{"delta":{"content":"streamed"},"finish_reason":"stop"}]}\n\n'
    assert (await reply_to(garbage(whole), stream=True)).text == "whole"
    assert (await reply_to(garbage(events, content_type="text/event-stream"), stream=False)).text == "streamed"
    assert (await reply_to(garbage(events, content_type="text/plain"), stream=True)).text == "streamed"


async def test_a_connection_that_breaks_after_the_reply_is_whole_costs_nothing() -> None:
    events = b'data: {"choices":[{"delta":{"content":"all"},"finish_reason":"stop"}]}\n\n'
    unfinished = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n" + events
    async with server(sends(unfinished)) as base_url:
        assert (await ask(request(base_url))).text == "all"


async def test_a_server_that_stays_connected_after_its_last_word_is_not_waited_for(
    bounds: Bounds,
) -> None:
    bounds(end_seconds=0.05)
    events = b'data: {"choices":[{"delta":{"content":"all"}}]}\n\ndata: [DONE]\n\n'
    answered = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head("text/event-stream") + events)
        await answered.wait()

    async with server(answer) as base_url, asyncio.timeout(30):
        assert (await ask(request(base_url))).text == "all"
        answered.set()


@streamed_or_not
async def test_a_reply_without_end_is_refused(stream: bool, bounds: Bounds) -> None:
    bounds(reply_bytes=100_000)
    content_type = "text/event-stream" if stream else "application/json"
    endless = sends(head(content_type), *[b": " + b" " * 60_000 + b"\n"] * 5)
    async with server(endless) as base_url:
        with pytest.raises(InvalidReply, match="longer than 100000 bytes"):
            await ask(request(base_url, stream=stream))


async def test_an_error_without_end_is_still_that_error(bounds: Bounds) -> None:
    bounds(error_bytes=100_000)
    async with server(sends(head("text/plain", "503 Busy"), *[b"x" * 60_000] * 5)) as base_url:
        with pytest.raises(Unavailable):
            await ask(request(base_url))


async def test_nobody_there_names_the_host() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1.*base_url="):
            await ask(request(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))


async def test_a_redirect_is_not_followed() -> None:
    with pytest.raises(RequestRefused, match="redirect"):
        await reply_to(fail(302, headers={"location": "http://127.0.0.1:1/"}))


async def test_a_missing_key_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with pytest.raises(KeyMissing, match="GROQ_API_KEY"):
        await generate("groq:m", "hi")


@streamed_or_not
async def test_one_connection_serves_one_request_after_another(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    async with ScriptedModel(["ok"]) as model:
        assert model._server
        accept = model._server.process_request

        def counted(connection: Any, address: Any) -> None:
            opened.append(address)
            accept(connection, address)

        monkeypatch.setattr(model._server, "process_request", counted)
        for _ in range(5):
            await ask(request(model.base_url, stream=stream))
    assert len(opened) == 1


async def test_many_requests_at_a_time_all_get_their_own_reply() -> None:
    def echo(messages: list[dict[str, Any]]) -> Reply:
        return slow(messages[-1]["content"], seconds=0.05)

    async with ScriptedModel(echo) as model:
        target = Model("openai-chat:demo", base_url=model.base_url)
        replies = await asyncio.gather(*(generate(target, f"n{number}") for number in range(40)))
    assert [reply.text for reply in replies] == [f"n{number}" for number in range(40)]


async def test_a_cancelled_request_gives_its_connection_back() -> None:
    async with ScriptedModel(lambda _: slow("late", seconds=0.5)) as model:
        for _ in range(30):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await ask(request(model.base_url))
    (shared,) = connections._of_loop.values()
    assert {group.busy for group in shared._groups} == {0}


def test_each_event_loop_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def once() -> str:
        reply = await ask(request(model.base_url))
        await connections.aclose()
        return reply.text

    with ScriptedModel(["ok"]) as model:
        assert [asyncio.run(once()) for _ in range(3)] == ["ok"] * 3


async def test_a_proxy_from_the_environment_is_not_asked_for_what_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert (await reply_to("ok")).text == "ok"


def read_page(path: str, lines: int = 10) -> str:
    """Reads a page."""
    return ""


async def test_a_text_that_is_no_unicode_is_still_sent() -> None:
    async with ScriptedModel(lambda messages: messages[0]["content"]) as model:
        target = Model("openai-chat:demo", base_url=model.base_url)
        assert (await generate(target, "file-\udcff.txt")).text == "file-\ufffd.txt"


async def test_generate_hands_the_calls_back() -> None:
    def script(messages: list[dict[str, Any]], body: dict[str, Any]) -> Reply:
        assert messages[0] == {"role": "system", "content": "Be brief."}
        names = [entry.get("function", entry).get("name") for entry in body["tools"]]
        return call("read_page", {"path": ",".join(map(str, names))}, id="c1")

    async with ScriptedModel(script) as model:
        reply = await generate(
            Model("openai-chat:demo", base_url=model.base_url),
            [Message.user("hi")],
            instructions="Be brief.",
            tools=[read_page, tool(name="other")(read_page), {"name": "dict"}, {"type": "browser_search"}],
        )
    assert reply.tool_calls == (
        ToolCall(call_id="c1", name="read_page", arguments={"path": "read_page,other,dict,None"}),
    )


@streamed_or_not
@pytest.mark.parametrize("status", ["201 Created", "203 Non-Authoritative Information", "206 Partial Content"])
async def test_a_reply_is_read_whatever_its_servers_word_for_success(status: str, stream: bool) -> None:
    body = b'{"choices":[{"message":{"content":"ok"},"delta":{"content":"ok"},"finish_reason":"stop"}]}'
    kind, sent = (
        ("text/event-stream", b"data: " + body + b"\n\ndata: [DONE]\n\n") if stream else ("application/json", body)
    )
    async with server(sends(head(kind, status) + sent)) as base_url:
        assert (await ask(request(base_url, stream=stream))).text == "ok"


@pytest.mark.parametrize("status", [204, 205])
async def test_a_success_without_a_body_is_an_unusable_reply_of_that_status(status: int) -> None:
    async with server(sends(f"HTTP/1.1 {status} No Content\r\nConnection: close\r\n\r\n".encode())) as base_url:
        with pytest.raises(InvalidReply, match="it is empty") as raised:
            await ask(request(base_url, stream=False))
    assert raised.value.status == status


@streamed_or_not
async def test_a_byte_order_mark_is_passed_over(stream: bool) -> None:
    mark = "\ufeff".encode()
    body = b'{"choices":[{"message":{"content":"ok"},"delta":{"content":"ok"},"finish_reason":"stop"}]}'
    kind, sent = (
        ("text/event-stream", b"data: " + body + b"\n\ndata: [DONE]\n\n") if stream else ("application/json", body)
    )
    async with server(sends(head(kind) + mark + sent)) as base_url:
        assert (await ask(request(base_url, stream=stream))).text == "ok"
