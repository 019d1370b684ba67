"""Streams text by Redis: one stream for each turn. A reader that comes late reads it from the beginning."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from temporalio.converter import DataConverter

from everturn.errors import InvalidSetting
from everturn.heartbeats.details import LiveAt, StreamedText
from everturn.live.followed_turns import Channel, Channels
from everturn.live.lane import Lane, LaneDown, TurnKey, decode_text, encode_text
from everturn.logs import get_logger
from everturn.system import extras

KEPT_SECONDS: Final = 3600
"""How long a turn's text is kept after its last piece, if the turn never ended."""

ENDED_SECONDS: Final = 60
"""How long it is kept after the turn's end: later readers find the reply in the history."""

MOST_STORED_PIECES: Final = 50_000
"""The most pieces of a turn. Longer turns lose their beginnings; a reader that comes late then waits for the reply."""

ANSWER_SECONDS: Final = 2.0
BLOCK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0

FIELD: Final = b"p"

Entries = list[tuple[bytes, dict[bytes, bytes]]]
"""Entries with their ids, as XRANGE returns them."""

StreamEntries = list[tuple[bytes, Entries]]
"""Entries by the name of their stream, as XREAD returns them."""

_log = get_logger("everturn.live")


class RedisLane(Lane):
    def __init__(self, url: str, converter: DataConverter) -> None:
        """Raises InvalidSetting."""
        try:
            from redis.asyncio import Redis
            from redis.exceptions import RedisError
        except ImportError:
            raise InvalidSetting(
                "EVERTURN_LIVE names Redis, but its client library is not installed.",
                cure=f"Run {extras.install('redis')}.",
            ) from None
        self._down: tuple[type[BaseException], ...] = (RedisError, OSError, TimeoutError)
        self._converter = converter
        options: dict[str, Any] = {"protocol": 2, "socket_connect_timeout": ANSWER_SECONDS, "health_check_interval": 30}
        try:
            self._writes = Redis.from_url(url, socket_timeout=ANSWER_SECONDS, **options)
        except ValueError:  # its message may hold the password
            raise InvalidSetting(
                "EVERTURN_LIVE is not the address of a Redis server.",
                cure="Write redis://HOST:PORT, or rediss:// for TLS.",
            ) from None
        self._reader = partial(Redis.from_url, url, socket_timeout=BLOCK_SECONDS + ANSWER_SECONDS, **options)
        """Makes a Redis client for each channel, closed with it: nobody closes Temporal's clients, nor their lanes."""
        self._channels = Channels(self._read_turn)

    # ------------------------------------------------------------ workers

    async def write_text(self, key: TurnKey, streamed: StreamedText) -> None:
        written = await encode_text(self._converter, streamed)
        name = _stream_name(key)

        async def send_entry() -> None:
            async with self._writes.pipeline(transaction=False) as both:
                both.xadd(name, {FIELD: written}, maxlen=MOST_STORED_PIECES, approximate=True)
                both.expire(name, KEPT_SECONDS)
                await both.execute()

        await self._ask_redis(send_entry)

    async def end_try(self, key: TurnKey, attempt: int) -> None:  # noqa: ARG002 - its tries share a stream
        await self._ask_redis(lambda: self._writes.expire(_stream_name(key), ENDED_SECONDS))

    async def check(self) -> str:
        await self._ask_redis(self._writes.ping)
        return "Redis answers: streamed text goes there and needs no extra heartbeats"

    async def close(self) -> None:
        with suppress(*self._down):
            await self._writes.aclose()

    async def _ask_redis(self, request: Callable[[], Awaitable[Any]]) -> Any:
        """Redis's answer. Raises LaneDown."""
        try:
            return await request()
        except self._down as error:
            raise LaneDown(f"{type(error).__name__}: {error}") from error

    # ------------------------------------------------------------ clients

    def follow(self, key: TurnKey, live_at: LiveAt | None = None) -> AsyncGenerator[StreamedText]:
        return self._channels.follow(key, live_at)

    def is_silent(self, key: TurnKey) -> bool:
        channel = self._channels.find_channel(key)
        return channel is not None and channel.silent

    async def so_far(self, key: TurnKey, live_at: LiveAt | None = None) -> list[StreamedText]:  # noqa: ARG002
        async def read_entries() -> Any:
            async with self._reader() as reads:
                return await reads.xrange(_stream_name(key))

        entries: Entries = await self._ask_redis(read_entries)
        return [
            streamed
            for _, fields in entries
            if (streamed := await decode_text(self._converter, fields.get(FIELD, b"\xff"))) is not None
        ]

    async def _read_turn(self, key: TurnKey, channel: Channel) -> None:
        name = _stream_name(key)
        last = b"0"
        async with self._reader() as reads:
            while True:
                try:
                    streams = await reads.xread({name: last}, count=1000, block=int(BLOCK_SECONDS * 1000))
                except self._down as error:
                    channel.silent = True
                    _log.debug("live.unreachable", error=type(error).__name__)
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                channel.silent = False
                for _, entries in cast("StreamEntries", streams):
                    for entry, fields in entries:
                        last = entry
                        if (streamed := await decode_text(self._converter, fields.get(FIELD, b"\xff"))) is not None:
                            channel.add_text(streamed)


def _stream_name(key: TurnKey) -> str:
    return f"everturn:live:{key.namespace}:{key.run_id}:{key.activity_id}"
