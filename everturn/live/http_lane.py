"""Text straight from the worker that runs the turn, over HTTP.

The turn's request has the address of the worker that scheduled the turn, which usually runs it, too. If another worker
runs it, that one says its address in its heartbeats.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from temporalio.converter import DataConverter

from everturn.errors import InvalidReply, InvalidSetting
from everturn.heartbeats.details import LiveAt, StreamedText
from everturn.http.headers import read_media_type
from everturn.http.sse import EventDecoder
from everturn.live.followed_turns import Channel, Channels
from everturn.live.lane import Lane, LaneDown, TurnKey, decode_text
from everturn.live.text_server import ALIVE_SECONDS, TextServer, path_of
from everturn.live.turn_text import TurnText
from everturn.logs import get_logger
from everturn.settings import Settings

CONNECT_SECONDS: Final = 2.0
"""After this time, an address that does not answer counts as out of reach."""

SILENT_SECONDS: Final = 2.5 * ALIVE_SECONDS
"""After this time without a sign of life, a connection counts as lost."""

FIRST_PAUSE_SECONDS: Final = 0.05
"""The first pause before the next attempt: a client may learn of a turn before its worker has begun it."""

LONGEST_PAUSE_SECONDS: Final = 2.0

MOST_EVENT_BYTES: Final = 4_000_000

ANYWHERE: Final = ("0.0.0.0", "::", "[::]", "*")

_log = get_logger("everturn.live")


class HttpLane(Lane):
    def __init__(self, settings: Settings, converter: DataConverter) -> None:
        """Raises InvalidSetting."""
        host, _, port = settings.live_listen.rpartition(":")
        if host in ANYWHERE and settings.live_address is None:
            raise InvalidSetting(
                f"EVERTURN_LIVE_LISTEN={settings.live_listen} does not say how clients reach the worker.",
                cure="Set EVERTURN_LIVE_ADDRESS, such as http://10.0.0.5:7879; in Kubernetes, with the pod's IP.",
            )
        self._host = host.strip("[]")
        self._port = int(port)
        self._url = (settings.live_address or "").rstrip("/")
        self._converter = converter
        self._server: TextServer | None = None
        self._channels = Channels(self._read_turn)

    # ------------------------------------------------------------ workers

    async def open(self) -> None:
        server = TextServer(self._host, self._port)
        port = await server.open()
        self._url = self._url or _base_url(self._host, port)
        self._server = server
        _log.info("live.listening", host=self._host, port=port, address=self._url)

    def announced_address(self) -> LiveAt | None:
        if self._server is None:
            return None
        return LiveAt(url=self._url, token=secrets.token_urlsafe(16))

    def begin_try(self, key: TurnKey, attempt: int, announced: LiveAt | None) -> LiveAt | None:
        if self._server is None:
            return None
        live_at = announced
        if live_at is None or live_at.url != self._url:
            live_at = self.announced_address()
        assert live_at is not None
        self._server.begin_turn(_path_of_turn(key), live_at.token, TurnText(self._converter, attempt))
        if live_at is announced:
            return None
        return live_at

    async def write_text(self, key: TurnKey, streamed: StreamedText) -> None:
        if text := self._text_of_try(key, streamed.attempt):
            await text.add_text(streamed)
            self._tell_readers(text)

    async def end_try(self, key: TurnKey, attempt: int) -> None:
        if text := self._text_of_try(key, attempt):
            text.ended = True
            self._tell_readers(text)

    def is_followed(self, key: TurnKey) -> bool:
        if self._server is None:
            return False
        text = self._server.text_at(_path_of_turn(key))
        return text is not None and bool(self._server.count_followers(text))

    def _text_of_try(self, key: TurnKey, attempt: int) -> TurnText | None:
        """The text of this try; None if a later try has replaced it."""
        if self._server is None:
            return None
        text = self._server.text_at(_path_of_turn(key))
        if text is None or text.attempt != attempt:
            return None
        return text

    def _tell_readers(self, text: TurnText) -> None:
        if self._server:
            self._server.text_has_grown(text)

    async def close(self) -> None:
        if self._server:
            await self._server.close()

    async def check(self) -> str:
        listen = f"straight from the workers: they listen at {self._host}, port {self._port or 'any free one'}"
        if self._url:
            return f"{listen}, and clients reach that at {self._url}"
        return (
            f"{listen}, which clients on other machines may not reach; see "
            "EVERTURN_LIVE_LISTEN and EVERTURN_LIVE_ADDRESS"
        )

    # ------------------------------------------------------------ clients

    @property
    def has_addresses(self) -> bool:
        return True

    def follow(self, key: TurnKey, live_at: LiveAt | None = None) -> AsyncGenerator[StreamedText]:
        return self._channels.follow(key, live_at)

    def hear_of(self, key: TurnKey, live_at: LiveAt) -> None:
        self._channels.hear_of(key, live_at)

    def is_silent(self, key: TurnKey) -> bool:
        channel = self._channels.find_channel(key)
        return channel is not None and (channel.silent or channel.live_at is None)

    async def so_far(self, key: TurnKey, live_at: LiveAt | None = None) -> list[StreamedText]:
        channel = self._channels.find_channel(key)
        if channel and channel.live_at:
            live_at = channel.live_at
        if live_at is None:
            raise LaneDown("It is not known which worker runs the turn.")
        async with self._open_text(live_at, key, {"once": "1"}) as texts:
            return [streamed async for streamed in texts]

    async def _read_turn(self, key: TurnKey, channel: Channel) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            live_at = channel.live_at
            channel.moved.clear()
            if live_at is not None:
                query = {"attempt": str(channel.attempt), "at": str(channel.position)}
                try:
                    async with self._open_text(live_at, key, query) as texts:
                        channel.silent = False
                        async for streamed in texts:
                            channel.add_text(streamed)
                            pause = FIRST_PAUSE_SECONDS
                except LaneDown as error:
                    channel.silent = True
                    _log.debug("live.unreachable", error=str(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(channel.moved.wait(), None if live_at is None else pause)
                pause = FIRST_PAUSE_SECONDS
                continue
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    @asynccontextmanager
    async def _open_text(
        self, live_at: LiveAt, key: TurnKey, query: dict[str, str]
    ) -> AsyncGenerator[AsyncGenerator[StreamedText]]:
        """Opens the text that the worker at this address sends, up to the end of the try. Raises LaneDown."""
        import httpx  # imported only by clients that follow a turn

        timeout = httpx.Timeout(CONNECT_SECONDS, read=SILENT_SECONDS)
        headers = {
            "Authorization": f"Bearer {live_at.token}",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
        }
        try:
            # Without proxies and redirects: the token goes to this address only.
            async with (
                httpx.AsyncClient(
                    verify=_ssl_context(live_at.url), timeout=timeout, trust_env=False, follow_redirects=False
                ) as client,
                client.stream("GET", live_at.url + _path_of_turn(key), params=query, headers=headers) as response,
            ):
                kind = read_media_type(response.headers)
                if response.status_code != 200 or kind != "text/event-stream":
                    raise LaneDown(f"{live_at.url} answers {response.status_code}.")
                yield self._read_text(response.aiter_raw())
        except (httpx.HTTPError, httpx.InvalidURL, OSError, InvalidReply) as error:
            raise LaneDown(f"{live_at.url}: {type(error).__name__}: {error}") from error

    async def _read_text(self, data: AsyncIterator[bytes]) -> AsyncGenerator[StreamedText]:
        decoder = EventDecoder(MOST_EVENT_BYTES)
        async for some in data:
            for event in decoder.feed(some):
                if event.name == "end":
                    return
                if (streamed := await decode_text(self._converter, _decode_data(event.data))) is not None:
                    yield streamed
        raise LaneDown("It broke off.")


def _decode_data(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError:
        return b"\xff"  # not a payload: `decode_text` gives None for it


def _path_of_turn(key: TurnKey) -> str:
    return path_of(key.namespace, key.run_id, key.activity_id)


def _base_url(host: str, port: int) -> str:
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


def _ssl_context(url: str) -> ssl.SSLContext:
    """Certificates for https only: loading those that the system trusts takes 20 ms."""
    if url.startswith("https:"):
        return ssl.create_default_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
