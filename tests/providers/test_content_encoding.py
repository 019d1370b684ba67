"""Compressed answers: one layer is read, in pieces, and a bomb costs no more than the longest reply."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator

import pytest

from everturn.errors import InvalidReply, RateLimited
from everturn.http.content_encoding import PIECE_BYTES, UnknownEncoding, UnreadableBody, decoder_of
from everturn.models import Model, ModelSettings
from everturn.providers import ask, connections
from everturn.providers.base import Request
from everturn.records import Message
from tests.providers.sockets import sends, server, streamed_or_not
from tests.support.bounds import Bounds

REPLY = b'{"choices":[{"message":{"content":"ok"}}]}'
EVENTS = b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
MODELS = ["openai-chat:demo", "openai:demo", "anthropic:demo", "google:demo"]


@pytest.fixture(autouse=True)
async def _connections(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-test-0123456789")
    yield
    await connections.aclose()


def request(base_url: str, *, model: str = MODELS[0], stream: bool) -> Request:
    return Request(
        model=Model(model, base_url=base_url), messages=[Message.user("hi")], settings=ModelSettings(stream=stream)
    )


def head(content_type: str, encoding: str, status: str = "200 OK") -> bytes:
    fields = f"Content-Type: {content_type}\r\nContent-Encoding: {encoding}\r\nConnection: close\r\nRetry-After: 7"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode()


def in_members(data: bytes) -> bytes:
    return gzip.compress(data[:7]) + gzip.compress(b"") + gzip.compress(data[7:])


def padded(data: bytes) -> bytes:
    return gzip.compress(data) + b"\0" * 9


def raw_deflate(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


@streamed_or_not
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-GZip", gzip.compress),
        ("gzip", in_members),
        ("gzip", padded),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
        ("utf-8", bytes),
        ("identity, gzip", gzip.compress),
    ],
)
async def test_one_layer_is_read_even_byte_by_byte(encoding: str, pack: type[bytes], stream: bool) -> None:
    kind, body = ("text/event-stream", EVENTS) if stream else ("application/json", REPLY)
    packed = pack(body)
    pieces = [packed[:3], *(packed[at : at + 1] for at in range(3, len(packed)))]
    for sent in (pieces, [packed]):
        async with server(sends(head(kind, encoding), *sent)) as base_url:
            assert (await ask(request(base_url, stream=stream))).text == "ok"


async def test_a_body_of_countless_pieces_is_refused() -> None:
    async with server(sends(head("application/json", "gzip") + gzip.compress(b"") * 1_001)) as base_url:
        with pytest.raises(InvalidReply, match="compressed in more than 1000 pieces"):
            await ask(request(base_url, stream=False))


@streamed_or_not
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,gzip,gzip", "deflate, gzip", "br", "zstd", "gzip, br"])
async def test_layers_and_what_was_not_asked_for_are_refused_by_name(encoding: str, model: str, stream: bool) -> None:
    body = gzip.compress(gzip.compress(b" " * 1000))
    async with server(sends(head("text/event-stream", encoding) + body)) as base_url:
        with pytest.raises(InvalidReply, match=encoding.partition(",")[0]) as raised:
            await ask(request(base_url, model=model, stream=stream))
    assert "compressed" in str(raised.value)


@streamed_or_not
@pytest.mark.parametrize("model", MODELS)
async def test_a_bomb_is_refused_at_the_bound(model: str, stream: bool, bounds: Bounds) -> None:
    bounds(reply_bytes=1_000_000)
    kind = "text/event-stream" if stream else "application/json"
    async with server(sends(head(kind, "gzip") + gzip.compress(b": \n" * 1_000_000))) as base_url:
        with pytest.raises(InvalidReply, match="longer than 1000000 bytes"):
            await ask(request(base_url, model=model, stream=stream))


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip", "deflate", "br"])
async def test_an_error_whose_body_is_a_bomb_or_unreadable_is_still_that_error(encoding: str, bounds: Bounds) -> None:
    bounds(error_bytes=100_000)
    bomb = gzip.compress(gzip.compress(b" " * 10_000_000))
    async with server(sends(head("application/json", encoding, "429 Too Many Requests") + bomb)) as base_url:
        with pytest.raises(RateLimited) as raised:
            await ask(request(base_url, stream=False))
    assert raised.value.retry_after == 7


@streamed_or_not
async def test_a_body_that_is_not_what_its_header_says_is_refused(stream: bool) -> None:
    kind = "text/event-stream" if stream else "application/json"
    async with server(sends(head(kind, "gzip") + REPLY)) as base_url:
        with pytest.raises(InvalidReply, match="can't be decompressed"):
            await ask(request(base_url, stream=stream))


def test_no_piece_is_larger_than_the_bound_and_nothing_is_lost() -> None:
    body = bytes(range(256)) * 10_000 + b" " * 5_000_000
    decoder = decoder_of({"content-encoding": "gzip"})
    pieces = list(decoder.decode_pieces(gzip.compress(body) + b"a tail"))
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert list(decoder.decode_pieces(b"more of the tail")) == []


async def test_others_have_their_turn_while_a_large_piece_is_read() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with server(sends(head("text/event-stream", "gzip") + gzip.compress(b": \n" * 5_000_000))) as base_url:
        counting = asyncio.create_task(count())
        with pytest.raises(InvalidReply):
            await ask(request(base_url, stream=True))
        counting.cancel()
    assert turns > 5_000_000 * 3 / PIECE_BYTES


def test_what_can_not_be_read_says_so() -> None:
    with pytest.raises(UnknownEncoding, match=r"2 times over \(gzip, br\)"):
        decoder_of({"content-encoding": "gzip, br"})
    with pytest.raises(UnreadableBody):
        list(decoder_of({"content-encoding": "deflate"}).decode_pieces(b"no zlib at all"))


async def test_a_body_of_too_many_values_is_refused(bounds: Bounds) -> None:
    bounds(json_values=1_000)
    for stream, kind, body in [
        (False, "application/json", b"[" + b"{}," * 2_000 + b"0]"),
        (True, "text/event-stream", b"data: [" + b"{}," * 2_000 + b"0]\n\n"),
    ]:
        async with server(sends(head(kind, "identity") + body)) as base_url:
            with pytest.raises(InvalidReply, match="more than 1,000 values"):
                await ask(request(base_url, stream=stream))


BOMBS = """
import asyncio, gzip, resource, sys, zlib
from everturn.models import Model, ModelSettings
from everturn.providers import ask
from everturn.providers.base import Request
from everturn.records import Message

def packed(unit, megabytes):
    packing = zlib.compressobj(1, wbits=16 + zlib.MAX_WBITS)
    megabyte = unit * (2**20 // len(unit))
    return b"".join(packing.compress(megabyte) for _ in range(megabytes)) + packing.flush()

BOMBS = [
    ("gzip, gzip", gzip.compress(packed(b" ", 300))),
    ("gzip", packed(b" ", 300)),
    ("gzip", packed(b"{},", 60)),
]

async def main():
    bomb = ("", b"")
    async def answer(reader, writer):
        await reader.readuntil(b"\\r\\n\\r\\n")
        head = f"HTTP/1.1 {status}\\r\\nContent-Type: {kind}\\r\\nContent-Encoding: {bomb[0]}\\r\\n"
        writer.write(f"{head}Connection: close\\r\\n\\r\\n".encode() + bomb[1])
        try:
            await writer.drain()
        except OSError:
            pass
        writer.close()
    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bomb in BOMBS:
        for kind in ("text/event-stream", "application/json"):
            for status in ("200 OK", "503 Busy"):
                settings = ModelSettings(stream="stream" in kind)
                model = Model("openai-chat:demo", base_url=url)
                try:
                    await ask(Request(model=model, messages=[Message.user("hi")], settings=settings))
                except Exception as error:
                    print(type(error).__name__, file=sys.stderr)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)

asyncio.run(main())
"""


def test_bombs_take_no_gigabytes() -> None:
    ended = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stderr.split().count("InvalidReply") + ended.stderr.split().count("Unavailable") == 12
    assert int(ended.stdout) < 400, "megabytes"
