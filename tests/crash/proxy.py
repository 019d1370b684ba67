"""A TCP proxy that can drop, delay and refuse."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

CHUNK_BYTES = 65_536


@dataclass
class Network:
    """What becomes of the data of all proxies in it."""

    delay_seconds: float = 0.0
    """Before each piece of data goes on."""
    refusing: bool = False
    """New connections are broken at once."""


class Proxy:
    """Stands between the workers and the model server; `base_url` is the model's, seen through it."""

    def __init__(self, base_url: str, network: Network, *, host: str = "127.0.0.1") -> None:
        """`host`: this machine's address, as the workers know it."""
        self._network = network
        self._host = host
        self._target = urlsplit(base_url)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.dropped = 0

    @property
    def base_url(self) -> str:
        assert self._server is not None
        return self._target._replace(netloc=f"{self._host}:{self._server.sockets[0].getsockname()[1]}").geturl()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, 0, backlog=512)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Breaks every connection, in the middle of whatever it carries."""
        for writer in [*self._connections]:
            writer.transport.abort()
            self.dropped += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._network.refusing:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError, asyncio.CancelledError):
            back, forth = await asyncio.open_connection(self._target.hostname, self._target.port)
            ends = {writer, forth}
            self._connections |= ends
            try:
                await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))
            finally:
                self._connections -= ends
                for end in ends:
                    end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            if self._network.delay_seconds:
                await asyncio.sleep(self._network.delay_seconds)
            sink.write(data)
            await sink.drain()
        sink.close()
