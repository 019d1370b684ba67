"""Responses that OpenAI works on in the background (decision 0028): begun once, read on after a broken connection, and
picked up by the next try, which knows the id.

A broken stream is resumed after the last event that came. OpenAI streams no response that is more than five minutes
old: then, as with a server that can't stream such responses, the response is polled until it is final.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import httpx

from everturn.errors import InvalidReply, ProviderError, Unavailable
from everturn.http.sse import Event
from everturn.logs import get_logger
from everturn.models import Model
from everturn.providers import failures, http
from everturn.providers.base import Delta, OnDelta, Request
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.connections import lend_client, open_answer
from everturn.providers.http import OnStart
from everturn.providers.json_values import a_dict, a_str
from everturn.providers.openai_responses.reply import UNFINISHED, Assembler
from everturn.providers.openai_responses.tools import included_fields
from everturn.records import Reply, Usage

POLL_SECONDS: Final = 2.0
LONGEST_POLL_SECONDS: Final = 30.0
POLL_AFTER: Final = "openai-poll-after-ms"
"""The header in which OpenAI says when to poll again."""

MOST_SILENT: Final = 3
"""After this many streams in a row that broke without a new event, the response is polled. As many polls may fail."""

BROKEN_SECONDS: Final = 0.5
"""The pause after a stream that broke without a new event."""

CANCEL_SECONDS: Final = 5.0

_NO_STREAM: Final = frozenset({400, 405, 406, 409, 415, 422, 501})
"""Status codes of a server that can't stream this response (any more), but may return it whole."""

_ID: Final = re.compile(r"[\w:=-]{1,500}", re.ASCII)

_log = get_logger("everturn.turn")


class KeptId(Protocol):
    """The id of the current response, kept in a place where the next try finds it."""

    @property
    def response_id(self) -> str:
        """Empty if no response was begun."""

    async def keep(self, response_id: str) -> None: ...
    def forget(self) -> None: ...


class _InMemory:
    """For callers that ask once, without another try."""

    def __init__(self) -> None:
        self.response_id = ""

    async def keep(self, response_id: str) -> None:
        self.response_id = response_id

    def forget(self) -> None:
        self.response_id = ""


async def ask_in_background(
    request: Request, *, kept: KeptId | None = None, on_delta: OnDelta | None = None, on_start: OnStart | None = None
) -> Reply:
    """The reply of a response that is begun here, or picked up if `kept` has an id. Raises as `http.ask`."""
    if kept is None:
        kept = _InMemory()
        try:
            return await _read_reply(request, kept, on_delta, on_start)
        except BaseException:
            await cancel_response(request.model, kept.response_id)
            raise
    return await _read_reply(request, kept, on_delta, on_start)


async def cancel_response(model: Model, response_id: str) -> None:
    """Cancels a response that nobody waits for, so that nobody pays for the rest. Raises nothing: the caller loses
    only money if it fails. Cancelling a response twice, or one that has ended, changes nothing."""
    if not response_id:
        return
    try:
        endpoint = resolve_endpoint(model)
        url = endpoint.url_of(f"/responses/{quote(response_id, safe='')}/cancel")
        async with asyncio.timeout(CANCEL_SECONDS):
            with lend_client() as client:
                answer = await client.post(url, headers={**endpoint.key_headers(), "Content-Type": "application/json"})
        _log.info("response.cancelled", response=response_id, status=answer.status_code)
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("response.not_cancelled", response=response_id, error=type(error).__name__)


async def _read_reply(request: Request, kept: KeptId, on_delta: OnDelta | None, on_start: OnStart | None) -> Reply:
    following = _ResponseFollower(request, kept, on_delta)
    if on_start:
        on_start(lambda: following.usage_so_far)
    with http.explain_errors(following.prepared.endpoint):
        try:
            if not kept.response_id:
                await following.begin_response()
            await following.to_its_end()
            return following.finish()
        except failures.ErrorInReply as error:
            await following.forget_id()
            endpoint = following.prepared.endpoint
            raise failures.of_response(endpoint, status=200, headers={}, body=error.body) from None
        except InvalidReply:
            if following.is_over:  # it can't be read, however often it is fetched
                await following.forget_id()
            raise
        finally:
            await following.kept_by_now()


class _ResponseFollower:
    """One try: follows a response until it ends."""

    def __init__(self, request: Request, kept: KeptId, on_delta: OnDelta | None) -> None:
        self.request = request
        self.prepared = http.prepare_request(request)
        self.assembler = Assembler(request)
        self._kept = kept
        self._on_delta = on_delta
        self._keeping: asyncio.Task[None] | None = None
        self._streams = request.settings.stream
        self._silent = 0
        """How many streams in a row broke without a new event."""
        self._unanswered = 0
        self._is_final = False
        self._include = ["reasoning.encrypted_content", *included_fields(request)]

    # ------------------------------------------------------------ an assembler, which also sees the response's id

    @property
    def done(self) -> bool:
        return self.assembler.done

    @property
    def complete(self) -> bool:
        return self.assembler.complete

    @property
    def usage_so_far(self) -> Usage:
        return self.assembler.usage_so_far

    def feed(self, event: Event) -> list[Delta]:
        deltas = self.assembler.feed(event)
        self._keep_id(self.assembler.response_id)
        return deltas

    def finish(self) -> Reply:
        return self.assembler.finish()

    # ------------------------------------------------------------ what is asked

    async def begin_response(self) -> None:
        """Starts the response; once more, with what the error names, if it asks for more tokens than it may. Raises as
        http.ask if it fails before the response has an id."""
        try:
            await self._send_first()
        except ProviderError as error:
            if error.most_output_tokens is None or self._known_id:
                raise
            again = http.prepare_request(self.request, most_output_tokens=error.most_output_tokens)
            if again.content == self.prepared.content:
                raise
            self.prepared = again
            await self._send_first()

    async def _send_first(self) -> None:
        it = self.prepared
        try:
            with lend_client() as client:
                async with open_answer(client, "POST", it.url, content=it.content, headers=it.headers) as answer:
                    await http.check_answer(answer, it.endpoint)
                    await self._take_answer(answer, stream=self._streams)
        except httpx.TransportError as error:
            if not self._known_id:
                raise
            _log.info("response.stream_broke", response=self._known_id, error=type(error).__name__)
        if not (self._known_id or self.done):
            raise failures.not_the_protocol(it.endpoint, "it has no response id", status=200)

    async def to_its_end(self) -> None:
        while not self.done:
            if self._streams:
                await self._stream_on()
            else:
                await self._poll_once()

    async def kept_by_now(self) -> None:
        if self._keeping:
            await self._keeping

    async def forget_id(self) -> None:
        """Drops the id of a response that has ended: the next try begins another one."""
        await self.kept_by_now()
        self._kept.forget()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come, no matter if the response could be read."""
        return self.done or self._is_final

    @property
    def _known_id(self) -> str:
        return self.assembler.response_id or self._kept.response_id

    async def _stream_on(self) -> None:
        """Resumes the stream after its last event; if another try began the response, from its first event."""
        last_sequence = self.assembler.sequence
        self.assembler.resumed_after = last_sequence
        query: dict[str, Any] = {"stream": "true"}
        if last_sequence >= 0:
            query["starting_after"] = last_sequence
        try:
            async with self._fetched_response(**query) as answer:
                if answer.status_code in _NO_STREAM:
                    _log.info("response.polled", response=self._known_id, status=answer.status_code)
                    self._streams = False
                    return
                await http.check_answer(answer, self.prepared.endpoint)
                await self._take_answer(answer, stream=True)
        except httpx.TransportError as error:
            _log.info("response.stream_broke", response=self._known_id, error=type(error).__name__)
        if self.done:
            return
        if self.assembler.sequence > last_sequence:
            self._silent = 0
            return
        self._silent += 1
        self._streams = self._streams and self._silent < MOST_SILENT
        await asyncio.sleep(BROKEN_SECONDS)

    async def _poll_once(self) -> None:
        wait = POLL_SECONDS
        try:
            async with self._fetched_response() as answer:
                await http.check_answer(answer, self.prepared.endpoint)
                wait = _poll_after(answer.headers)
                await self._take_answer(answer, stream=False)
        except httpx.TransportError:
            self._unanswered += 1
            if self._unanswered >= MOST_SILENT:
                raise
        else:
            self._unanswered = 0
        if not self.done:
            await asyncio.sleep(wait)

    @contextlib.asynccontextmanager
    async def _fetched_response(self, **query: Any) -> AsyncIterator[httpx.Response]:
        """Raises Unavailable if the response is gone."""
        endpoint = self.prepared.endpoint
        response_id = self._known_id
        wanted = [*query.items(), *(("include[]", name) for name in self._include)]
        path = f"/responses/{quote(response_id, safe='')}?{urlencode(wanted)}"
        with lend_client() as client:
            async with open_answer(client, "GET", endpoint.url_of(path), headers=self.prepared.headers) as answer:
                if answer.status_code == httpx.codes.NOT_FOUND:
                    await self.forget_id()
                    raise _gone_error(endpoint.model, endpoint.provider, response_id)
                yield answer

    # ------------------------------------------------------------ what is answered

    async def _take_answer(self, answer: httpx.Response, *, stream: bool) -> None:
        """Reads an answer's events, or the response that it holds. `stream`: events were asked for."""
        endpoint = self.prepared.endpoint
        content_type = answer.headers.get("content-type", "").lower()
        if "event-stream" in content_type or (stream and "json" not in content_type):
            try:
                await http.assemble_reply(answer, self, endpoint, on_delta=self._on_delta)
            except failures.ErrorInReply:
                if not self._known_id:
                    raise
                self._streams = False  # of the stream, perhaps: the response itself says how it ended
            return
        self._streams = False
        body = a_dict(await http.json_of(answer, endpoint))
        self._keep_id(a_str(body.get("id")))
        if a_str(body.get("status")) not in UNFINISHED:
            self._is_final = True
            with http.guard_reading(answer, endpoint):
                self.assembler.take_response(body)

    def _keep_id(self, response_id: str) -> None:
        if not _ID.fullmatch(response_id):
            self.assembler.response_id = ""
        elif not self._keeping and response_id != self._kept.response_id:
            self.assembler.response_id = response_id
            self._keeping = asyncio.create_task(self._kept.keep(response_id))


def _poll_after(headers: httpx.Headers) -> float:
    try:
        return min(max(float(headers.get(POLL_AFTER, "")) / 1000, 0.01), LONGEST_POLL_SECONDS)
    except ValueError:
        return POLL_SECONDS


def _gone_error(model: str, provider: str, response_id: str) -> ProviderError:
    return Unavailable(
        f"{model}: the background response {response_id!r:.100} no longer exists.",
        cure="The model is asked again, which is paid again: providers keep such responses for some minutes only.",
        provider=provider,
        status=404,
    )
