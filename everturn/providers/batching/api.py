"""What each provider's batches have in common. No Temporal in here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import httpx

from everturn.errors import InvalidReply, ProviderError
from everturn.providers import failures, http
from everturn.providers.catalog import ModelEndpoint
from everturn.providers.connections import lend_client, open_answer
from everturn.providers.json_values import a_dict

MAX_LISTED: Final = 1000
"""So many of the newest batches are looked through for one whose creation was not answered."""
MAX_RESULTS_BYTES: Final = 512 * 1024 * 1024
"""Of a batch's results. A batch of everturn's has some hundred lines of some kilobytes each."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch."""

    id: str
    content: bytes
    """The body, as a live request would have it, but for the stream."""


@dataclass(frozen=True, slots=True)
class LineResult:
    """What became of a line. `refused` has `status` and `body` of an error; `missing` may have the reason as `body`."""

    state: Literal["replied", "refused", "expired", "cancelled", "missing"]
    body: Any = None
    status: int = 200


@dataclass(frozen=True, slots=True)
class LineResults:
    """A batch that is over: what its results say, by line."""

    raw: Mapping[str, bytes] = field(default_factory=dict)
    """Each line's result, as JSON."""
    whole: LineResult | None = None
    """What became of all lines that have no result of their own; None: they are missing."""
    by_number: Mapping[int, LineResult] = field(default_factory=dict)
    """What is said of lines by their number, from 1 on, if the batch was refused as a whole."""
    unreadable: int = 0
    """How many results can't be read, so that nobody knows whose they are."""


class BatchApi(Protocol):
    """The batches of one provider, at one endpoint with its key. Every method raises ProviderError."""

    most_bytes: int
    """Of a batch."""

    async def create(self, name: str, lines: Sequence[BatchRequest]) -> str:
        """Creates a batch and returns its id. `name` is kept with it, if the provider has a place for that."""

    async def find(self, name: str, lines: Sequence[str], *, since: float) -> str:
        """The id of the batch of this name, which was perhaps created after `since` (seconds since 1970); empty if
        there is none. Raises Undecided if that can't be known yet."""

    async def is_over(self, batch_id: str) -> bool: ...
    async def cancel(self, batch_id: str) -> None: ...
    async def results(self, batch_id: str) -> LineResults: ...
    def read(self, raw: bytes) -> LineResult:
        """One line's result."""


class UnknownCreation(Exception):
    """Whether a batch was created can't be known yet. The message says why."""


@dataclass(frozen=True, slots=True)
class BatchEndpoint:
    """HTTP to the batches of an endpoint."""

    endpoint: ModelEndpoint
    headers: httpx.Headers

    async def json(self, method: str, path: str, *, content: bytes = b"", content_type: str = "") -> dict[str, Any]:
        """The answer's JSON object. Raises ProviderError."""
        async with self.answer(method, path, content=content, content_type=content_type) as answer:
            return a_dict(await http.json_of(answer, self.endpoint))

    @asynccontextmanager
    async def answer(
        self, method: str, path: str, *, content: bytes = b"", content_type: str = ""
    ) -> AsyncIterator[httpx.Response]:
        """An answer that is no refusal. Raises ProviderError."""
        headers = self.headers.copy()
        if content_type:
            headers["content-type"] = content_type
        url = self.endpoint.url_of(path)
        with http.explain_errors(self.endpoint), lend_client() as client:
            async with open_answer(client, method, url, content=content, headers=headers) as answer:
                if not answer.is_success:
                    body = await http.read_body(answer, self.endpoint, limit=http.MAX_HTTP_ERROR_BYTES, cut=True)
                    raise failures.of_response(
                        self.endpoint, status=answer.status_code, headers=answer.headers, body=body
                    )
                yield answer

    async def lines(self, path: str) -> tuple[list[dict[str, Any]], int]:
        """The objects of a file with one on each line, and how many lines are none. Raises ProviderError, also if no
        line can be read."""
        async with self.answer("GET", path) as answer:
            body = await http.read_body(answer, self.endpoint, limit=MAX_RESULTS_BYTES)
        written = [line for line in body.splitlines() if line.strip()]
        objects: list[dict[str, Any]] = []
        fault: Exception | None = None
        for line in written:
            try:
                objects.append(a_dict(json.loads(line)))
            except (ValueError, RecursionError) as error:
                fault = error
        with self.reading():
            if fault and not objects:
                raise fault
        return objects, len(written) - len(objects)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turns what reading an unexpected answer raises into InvalidReply."""
        try:
            yield
        except ProviderError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidReply(
                f"What {self.endpoint.provider!r} says of a batch can't be read ({type(error).__name__}).",
                provider=self.endpoint.provider,
            ) from error
