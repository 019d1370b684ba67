"""The worker's own small HTTP server: sends the text of turns that run here to readers that have the turn's token.

There is one kind of request, and one answer to a connection: server-sent events until the turn's end. Text is encoded
once for all readers. A reader that takes no data keeps its place in the text and is not written to. After a while it is
disconnected; it can reconnect at its place. All readers together get a small share of the worker's time: the more there
are, the larger the steps in which they get the text.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import time
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

import h11

from everturn.errors import InvalidSetting
from everturn.live.turn_text import END, TurnText
from everturn.logs import get_logger
from everturn.system.open_files import files_to_spare

MOST_READERS: Final = 2000
"""The most connections at a time. Further readers get the text by heartbeats."""

MOST_TOLD: Final = 100
"""How many further connections are told so, with a 503."""

LOOK_SECONDS: Final = 1.0
ALIVE_SECONDS: Final = 5.0
"""Between two signs of life to a reader that waits for text."""

HEAD_SECONDS: Final = 5.0
"""The longest time until a request has arrived."""

STALLED_SECONDS: Final = 20.0
"""After this time, a reader that takes no data is disconnected."""

MOST_HEAD_BYTES: Final = 8192
BUFFERED_BYTES: Final = 64 * 1024
"""The most data that is buffered for one reader, besides one chunk."""

REST_FOR_EACH: Final = 9
"""The pause after sending, as a multiple of the time it took: it uses a tenth of the worker's time at most."""

ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    b"X-Accel-Buffering: no\r\nConnection: close\r\n\r\n"
)
PATH: Final = "/everturn/live/"

_log = get_logger("everturn.live")


class TextServer:
    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._turns: dict[str, tuple[str, TurnText]] = {}
        """Tokens and texts, by path."""
        self._readers: set[_TextReader] = set()
        self._followers: dict[TurnText, set[_TextReader]] = {}
        self._dirty: dict[TurnText, None] = {}
        self._sending: asyncio.TimerHandle | None = None
        self._rests_until = 0.0
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._most = MOST_READERS

    async def open(self) -> int:
        """The port that it listens at. Raises InvalidSetting."""
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _TextReader(self), self._host, self._port, backlog=1024)
        except OSError as error:
            raise InvalidSetting(
                f"EVERTURN_LIVE_LISTEN: a worker can't listen at {self._host}:{self._port}: {error.strerror or error}.",
                cure="Give each worker of a machine a port of its own; 0 takes any free one.",
            ) from None
        self._most = files_to_spare(MOST_READERS)
        self._watching = asyncio.create_task(self._watch_readers())
        bound: socket.socket = self._server.sockets[0]
        return int(bound.getsockname()[1])

    async def close(self) -> None:
        if self._server:
            self._server.close()
        if self._watching:
            self._watching.cancel()
        if self._sending:
            self._sending.cancel()
        for reader in list(self._readers):
            reader.abort()

    # ------------------------------------------------------------ turns

    def begin_turn(self, path: str, token: str, text: TurnText) -> None:
        if earlier := self._turns.get(path):
            self._let_go(earlier[1])
        self._turns[path] = (token, text)

    def text_at(self, path: str) -> TurnText | None:
        if path not in self._turns:
            return None
        return self._turns[path][1]

    def text_has_grown(self, text: TurnText) -> None:
        """To be called if the text has grown or ended: sends that to its readers."""
        if text.ended:
            self._turns = {path: held for path, held in self._turns.items() if held[1] is not text}
        if self._followers.get(text):
            self._dirty[text] = None
            self._send_soon()

    def count_followers(self, text: TurnText) -> int:
        return len(self._followers.get(text, ()))

    def _let_go(self, text: TurnText) -> None:
        for reader in list(self._followers.get(text, ())):
            reader.abort()

    # ------------------------------------------------------------ readers

    def add_reader(self, reader: _TextReader) -> bool:
        """Adds a connection; False if there are too many."""
        self._readers.add(reader)
        return len(self._readers) <= self._most

    @property
    def is_flooded(self) -> bool:
        """Whether there are so many connections that new ones are closed without an answer."""
        return len(self._readers) > self._most + MOST_TOLD

    def remove_reader(self, reader: _TextReader) -> None:
        self._readers.discard(reader)
        if reader.text and (same := self._followers.get(reader.text)):
            same.discard(reader)
            if not same:
                del self._followers[reader.text]
                self._dirty.pop(reader.text, None)

    def add_follower(self, reader: _TextReader, text: TurnText) -> None:
        self._followers.setdefault(text, set()).add(reader)

    def may_read(self, path: str, token: str) -> TurnText | None:
        """The text; None for an unknown turn and for a wrong token alike."""
        right, text = self._turns.get(path, ("", None))
        same = hmac.compare_digest(right.encode(), token.encode("utf-8", "surrogateescape"))
        if not (same and right):
            return None
        return text

    def _send_soon(self) -> None:
        if self._sending is None:
            loop = asyncio.get_running_loop()
            self._sending = loop.call_at(max(loop.time(), self._rests_until), self._send_new_text)

    def _send_new_text(self) -> None:
        """Sends new text to all readers. Each chunk is put together once."""
        self._sending = None
        loop = asyncio.get_running_loop()
        started = time.perf_counter()
        dirty = self._dirty
        self._dirty = {}
        for text in dirty:
            chunks: dict[int, tuple[bytes, int]] = {}
            for reader in list(self._followers.get(text, ())):
                reader.send_new_text(chunks)
        self._rests_until = loop.time() + REST_FOR_EACH * (time.perf_counter() - started)

    async def _watch_readers(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            for reader in list(self._readers):
                reader.check_alive(now)


class _TextReader(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: TextServer) -> None:
        self._server = server
        self.text: TurnText | None = None
        self._place = 0
        self._once = False
        """Whether it asks only for the text so far."""
        self._is_too_many = False
        self._closing = False
        self._paused = False
        self._last = time.monotonic()
        """When it last took data."""
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        with suppress(AttributeError, OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFERED_BYTES)
        self._is_too_many = not self._server.add_reader(self)
        if self._is_too_many and self._server.is_flooded:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.remove_reader(self)

    def pause_writing(self) -> None:
        self._paused = True
        self._last = time.monotonic()

    def resume_writing(self) -> None:
        self._paused = False
        self._last = time.monotonic()
        self.send_new_text({})

    def data_received(self, data: bytes) -> None:
        if self.text or self._closing:
            return  # whatever it says now does not matter
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
            if isinstance(event, h11.Request):
                self._answer_request(event)
        except h11.RemoteProtocolError:
            self._refuse_request(b"400 Bad Request")

    def _answer_request(self, request: h11.Request) -> None:
        if self._is_too_many:
            self._refuse_request(b"503 Service Unavailable")
            return
        if request.method != b"GET":
            self._refuse_request(b"405 Method Not Allowed")
            return
        try:
            url = urlsplit(request.target.decode("ascii", "replace"))
        except ValueError:
            self._refuse_request(b"404 Not Found")
            return
        scheme, _, token = dict(request.headers).get(b"authorization", b"").decode("latin-1").partition(" ")
        text = self._server.may_read(url.path, token.strip()) if scheme.lower() == "bearer" else None
        if text is None:
            self._refuse_request(b"404 Not Found")
            return
        query = dict(parse_qsl(url.query))
        self.text = text
        self._once = query.get("once") == "1"
        self._place = text.place_after(_read_number(query.get("attempt")), _read_number(query.get("at")))
        self._server.add_follower(self, text)
        self._transport.write(ANSWER)
        self.send_new_text({})

    def _refuse_request(self, status: bytes) -> None:
        self._closing = True
        self._transport.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self._transport.close()

    def send_new_text(self, chunks: dict[int, tuple[bytes, int]]) -> None:
        """Sends the text that it does not have yet, as long as it takes data. `chunks`: those already put together for
        other readers, by place."""
        if self._closing or self.text is None:
            return
        while not self._paused and not self.text.is_whole_at(self._place):
            if self._place not in chunks:
                chunks[self._place] = self.text.text_after(self._place)
            chunk, self._place = chunks[self._place]
            self._transport.write(chunk)
            self._last = time.monotonic()
        if (self.text.ended or self._once) and not self._paused:
            self._closing = True
            self._transport.write(END)
            self._transport.close()

    def check_alive(self, now: float) -> None:
        """Disconnects it if it takes no data or sends no request; sends it a sign of life if it waits for text."""
        silent = now - self._last
        waits_for_it = self._paused or self._closing
        if silent > (HEAD_SECONDS if self.text is None else STALLED_SECONDS) and (waits_for_it or self.text is None):
            self.abort()
        elif self.text is not None and not waits_for_it and silent > ALIVE_SECONDS:
            self._transport.write(b":\n\n")
            self._last = now

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()


def path_of(*names: str) -> str:
    return PATH + "/".join(quote(name, safe="") for name in names)


def _read_number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 16 else 0
