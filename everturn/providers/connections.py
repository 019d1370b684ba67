"""The connections to models, shared within one process and event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

import httpx

from everturn.providers.event_loops import of_this_loop

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 120.0
"""The longest silence between two pieces of an answer."""

_GROUP: Final = 2
"""Requests at a time for one httpx client. Its pool looks at each of its connections for every request, some with a
system call: measured with 50 requests at a time, 2.9 ms of CPU each from one client, 1.4 ms from groups of ten; later,
with 20 and 100 at a time, groups of two took 0.87 of what groups of ten took, and single ones no less."""


@dataclass(slots=True)
class _Group:
    client: httpx.AsyncClient
    busy: int = 0


class _NoCookies(httpx.Cookies):
    def extract_cookies(self, response: httpx.Response) -> None:
        pass


class _Client(httpx.AsyncClient):
    """Keeps no cookies: one answer's cookies would go out with the requests of all other conversations and keys. And
    looking for cookies takes a tenth of a request's time."""

    _none = _NoCookies()

    @property
    def cookies(self) -> httpx.Cookies:
        return self._none

    @cookies.setter
    def cookies(self, _: object) -> None:
        raise AttributeError("connections to models keep no cookies")


class _Connections:
    def __init__(self) -> None:
        self._tls = httpx.create_ssl_context()  # reading the certificates takes 20 ms: once for all groups
        self._groups: list[_Group] = []

    @contextlib.contextmanager
    def lend_client(self) -> Iterator[httpx.AsyncClient]:
        # The first that has room, so that few requests share few connections and keep them warm.
        group = next((group for group in self._groups if group.busy < _GROUP), None) or self._add_group()
        group.busy += 1
        try:
            yield group.client
        finally:
            group.busy -= 1

    async def aclose(self) -> None:
        for group in self._groups:
            await group.client.aclose()

    def _add_group(self) -> _Group:
        client = _Client(
            verify=self._tls,
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=2 * _GROUP, keepalive_expiry=30),
            # A proxy from the environment can't reach what runs on this machine.
            mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
        )
        self._groups.append(_Group(client))
        return self._groups[-1]


_of_loop: dict[asyncio.AbstractEventLoop, _Connections] = {}


def lend_client() -> contextlib.AbstractContextManager[httpx.AsyncClient]:
    """A client for one request. Give it back when the answer is read."""
    return of_this_loop(_of_loop, _Connections).lend_client()


@contextlib.asynccontextmanager
async def open_answer(
    client: httpx.AsyncClient, method: str, url: str, *, headers: httpx.Headers, content: bytes = b""
) -> AsyncIterator[httpx.Response]:
    """The answer to a request, to be read inside the block. The headers are sent as given, plus host and length."""
    # Not client.stream(): for each request, that parses the address again, and merges headers, cookies and
    # parameters.
    request = httpx.Request(method, _url(url), headers=headers, content=content)
    answer = await client.send(request, stream=True)
    try:
        yield answer
    finally:
        await answer.aclose()


_url: Final = functools.lru_cache(maxsize=256)(httpx.URL)


async def aclose() -> None:
    """Closes this event loop's connections. The next request opens new ones."""
    if connections := _of_loop.pop(asyncio.get_running_loop(), None):
        await connections.aclose()
