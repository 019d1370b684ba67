"""The worker's HTTP server for text: what it keeps and sends is bounded, whoever asks and however slowly they read."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64decode
from collections.abc import AsyncIterator

import pytest

from everturn.heartbeats.details import StreamedText
from everturn.live import text_server, turn_text
from everturn.live.lane import decode_text
from everturn.live.text_server import TextServer
from everturn.live.turn_text import CHUNK_BYTES, MOST_CHARS, MOST_RECENT_BYTES, MOST_RECENT_PIECES, TurnText
from everturn.storage.data_converter import data_converter
from tests.support.bounds import Bounds
from tests.support.waiting import eventually

PATH, TOKEN = text_server.path_of("default", "run", "3"), "right"


@pytest.fixture
async def server() -> AsyncIterator[TextServer]:
    server = TextServer("127.0.0.1", 0)
    server.port = await server.open()  # type: ignore[attr-defined]
    yield server
    await server.close()


def said(at: int, text: str) -> StreamedText:
    return StreamedText(turn=1, every=0, at=at, pieces=(("text", text),))


async def filled(count: int, chars: int = 1000) -> TurnText:
    text = TurnText(data_converter, attempt=1)
    for number in range(count):
        await text.add_text(said(number * chars, chr(97 + number % 26) * chars))
    return text


async def connected(server: TextServer, *, asked: str = "", token: str = TOKEN) -> socket.socket:
    loop = asyncio.get_running_loop()
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    own.setblocking(False)
    await loop.sock_connect(own, ("127.0.0.1", server.port))  # type: ignore[attr-defined]
    await loop.sock_sendall(
        own, f"GET {PATH}{asked} HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    return own


async def all_of(own: socket.socket) -> bytes:
    """Until the server closes it."""
    loop, found = asyncio.get_running_loop(), b""
    with own:
        while some := await loop.sock_recv(own, 65536):
            found += some
    return found


async def text_of(answer: bytes) -> str:
    """As a client puts it together, which passes over what it has."""
    text = ""
    for line in answer.splitlines():
        if line.startswith(b"data: ") and line != b"data: .":
            streamed = await decode_text(data_converter, b64decode(line[6:]))
            assert streamed is not None
            text += "".join(piece for _, piece in streamed.after(len(text)))
    return text


async def test_who_reads_nothing_has_little_ready_for_them_and_no_one_else_waits(server: TextServer) -> None:
    text = TurnText(data_converter, attempt=1)
    server.begin_turn(PATH, TOKEN, text)
    slow, quick = await connected(server), await connected(server)
    await eventually(lambda: server.count_followers(text) == 2)
    reading = asyncio.create_task(all_of(quick))
    whole = ""
    for number in range(150):
        piece = f"{number:04}" * 250
        await text.add_text(said(len(whole), piece))
        whole += piece
        server.text_has_grown(text)
        await asyncio.sleep(0)
    text.ended = True
    server.text_has_grown(text)
    assert await text_of(await reading) == whole, "nobody waits for the slow one"
    [reader] = server._readers
    assert reader._transport.get_write_buffer_size() <= text_server.BUFFERED_BYTES + CHUNK_BYTES
    assert await text_of(await all_of(slow)) == whole, "who reads on later gets all of it"
    await eventually(lambda: not server._readers and not server._followers)


async def test_who_takes_nothing_for_long_is_let_go_and_goes_on_at_their_place(
    server: TextServer, bounds: Bounds
) -> None:
    bounds(live_look_seconds=0.02, live_stalled_seconds=0.2)
    text = await filled(400)
    server.begin_turn(PATH, TOKEN, text)
    slow = await connected(server)
    await eventually(lambda: server.count_followers(text) == 1)
    await eventually(lambda: not server._readers, what="it is let go")
    slow.close()
    text.ended = True
    later = text.place_after(1, 300_000)
    chunk, _ = text.text_after(later)
    first = await decode_text(data_converter, b64decode(chunk.splitlines()[0][6:]))
    assert first is not None
    assert first.at == 300_000


async def test_a_request_that_never_ends_is_let_go(server: TextServer, bounds: Bounds) -> None:
    bounds(live_look_seconds=0.02, live_head_seconds=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    writer.write(b"GET / HTTP/1.1\r\n")
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: w\r\nX: " + b"x" * 20_000, b"400"),
        (b"POST / HTTP/1.1\r\nHost: w\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"GET / HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer \xe4\xff\r\n\r\n", b"404"),
        (b"GET //[ HTTP/1.1\r\nHost: w\r\n\r\n", b"404"),
        (f"GET {PATH}?at=-1&attempt=99999999999999999999 HTTP/1.1\r\nHost: w\r\n\r\n".encode(), b"404"),
        (f"GET {PATH} HTTP/1.1\r\nHost: w\r\nAuthorization: Basic {TOKEN}\r\n\r\n".encode(), b"404"),
    ],
)
async def test_what_is_no_request_for_a_turn_gets_nothing(server: TextServer, sent: bytes, status: bytes) -> None:
    server.begin_turn(PATH, TOKEN, await filled(1))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    writer.write(sent)
    answer = await reader.read()
    assert answer.split()[1] == status
    assert answer.endswith(b"\r\n\r\n")
    writer.close()


async def test_those_above_the_most_are_told_to_follow_otherwise(server: TextServer) -> None:
    text = TurnText(data_converter, attempt=1)
    server.begin_turn(PATH, TOKEN, text)
    server._most = 2
    within = [await connected(server) for _ in range(2)]
    await eventually(lambda: server.count_followers(text) == 2)
    assert b" 503 " in await all_of(await connected(server))
    for own in within:
        own.close()
    await eventually(lambda: not server._readers)


async def test_a_later_try_takes_the_place_of_the_one_before(server: TextServer) -> None:
    server.begin_turn(PATH, TOKEN, await filled(1))
    own = await connected(server)
    await eventually(lambda: server._followers)
    later = TurnText(data_converter, attempt=2)
    server.begin_turn(PATH, TOKEN, later)
    answer = await all_of(own)
    assert turn_text.END not in answer, "it broke off: they come again"
    assert server.text_at(PATH) is later


async def test_a_long_turn_takes_little_more_room_than_its_text_and_nobody_lacks_a_word() -> None:
    text = TurnText(data_converter, attempt=1)
    place, heard, whole = 0, "", ""
    for number in range(3 * MOST_RECENT_PIECES):
        await text.add_text(said(len(whole), f"{number} "))
        whole += f"{number} "
        if number % 7 == 0 or number > 3 * MOST_RECENT_PIECES - 2:
            while not text.is_whole_at(place):
                chunk, place = text.text_after(place)
                heard += await text_of_from(chunk, len(heard))
    assert heard == whole, "who is at the end is sent each piece once"
    assert len(text._recent) <= MOST_RECENT_PIECES
    late, place = b"", 0
    while not text.is_whole_at(place):
        chunk, place = text.text_after(place)
        late += chunk
    assert await text_of(late) == whole
    assert late.count(b"data: ") <= MOST_RECENT_PIECES + 1


async def test_text_beyond_the_most_loses_its_beginning_and_not_its_end() -> None:
    text = await filled(2 * MOST_CHARS // 1000 + 1000)
    kept = sum(len(frame) for _, frame in text._recent) + len(text._head)
    assert kept < 2 * (MOST_CHARS + MOST_RECENT_BYTES)
    assert sum(len(piece) for _, piece in text._head_pieces) <= MOST_CHARS
    [(last, _)] = text._recent[-1:]
    assert last.at == 2 * MOST_CHARS + 999_000


async def text_of_from(chunk: bytes, position: int) -> str:
    text = ""
    for line in chunk.splitlines():
        if line.startswith(b"data: "):
            streamed = await decode_text(data_converter, b64decode(line[6:]))
            assert streamed is not None
            text += "".join(piece for _, piece in streamed.after(position + len(text)))
    return text


@pytest.mark.parametrize(("attempt", "chars"), [(1, 0), (1, 500), (1, 1500), (1, 99_999_999), (2, 5), (0, 5)])
async def test_every_place_leads_to_the_rest_of_the_text(attempt: int, chars: int) -> None:
    text = await filled(3)
    chunk, _ = text.text_after(text.place_after(attempt, chars))
    rest = await text_of_from(chunk, chars if attempt == 1 else 0)
    whole = "a" * 1000 + "b" * 1000 + "c" * 1000
    assert rest == (whole[chars:] if attempt == 1 else whole)


def test_a_piece_is_never_larger_than_a_client_takes() -> None:
    from everturn.live.http_lane import MOST_EVENT_BYTES

    assert turn_text.MOST_CHARS * 6 * 4 / 3 < MOST_EVENT_BYTES, "six bytes a letter in JSON, four thirds in base64"
