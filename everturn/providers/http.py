"""The transport: one request, sent once, over connections that a process shares. Temporal does the retries."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

from everturn.errors import FAULTS, InvalidReply, InvalidSetting, ProviderError
from everturn.http import sse
from everturn.http.content_encoding import ACCEPTED, PIECE_BYTES, UnknownEncoding, UnreadableBody, decoder_of
from everturn.providers import failures, output_limits, provider_clock
from everturn.providers.base import OnDelta, Request
from everturn.providers.catalog import ModelEndpoint, protocol_of, resolve_endpoint
from everturn.providers.connections import aclose, lend_client, open_answer
from everturn.providers.encoded_messages import body_in_json
from everturn.providers.json_values import TooManyValues, a_dict, parse_json
from everturn.providers.rate_limits import limit_queue
from everturn.providers.wire_protocol import Assembler, ProtocolName, WireProtocol
from everturn.records import Reply, Usage

__all__ = ["aclose", "ask"]

OnStart = Callable[[Callable[[], Usage]], None]

MAX_HTTP_REPLY_BYTES: Final = 64 * 1024 * 1024
"""Of a provider's answer, streamed or not. Images come in it as text; a longer one would fill the worker's memory."""
MAX_HTTP_ERROR_BYTES: Final = 1024 * 1024
"""So much is read of an answer that says what went wrong. Providers say it in some hundred bytes, proxies in a page."""
EXTRA_HEADERS: Final = "extra_headers"
"""In ModelSettings(extra=): headers, such as anthropic-beta. Histories store them, so they must not hold a key."""
_COMMON: Final = {
    "Accept": "*/*",
    "Connection": "keep-alive",
    "User-Agent": f"python-httpx/{httpx.__version__}",
    "Content-Type": "application/json",
}
_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]{1,200}", re.ASCII)
_OURS: Final = frozenset({"content-length", "transfer-encoding"})
_END_SECONDS: Final = 1.0
"""How long a stream may take to end after its last event, so that its connection can be used again."""


def protocol_by_name(name: ProtocolName) -> WireProtocol:
    """Imported when a request needs it: most workers speak one."""
    match name:
        case "openai_chat":
            from everturn.providers import openai_chat

            return openai_chat
        case "openai_responses":
            from everturn.providers import openai_responses

            return openai_responses
        case "gemini":
            from everturn.providers import gemini

            return gemini
        case "anthropic_messages":
            from everturn.providers import anthropic_messages

            return anthropic_messages


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request, encoded and ready to be sent."""

    endpoint: ModelEndpoint
    protocol: WireProtocol
    path: str
    content: bytes
    headers: httpx.Headers

    @property
    def url(self) -> str:
        return self.endpoint.url_of(self.path)


def prepare_request(request: Request, *, most_output_tokens: int | None = None) -> PreparedRequest:
    """Raises InvalidModel, InvalidSetting and what encoding raises."""
    endpoint = resolve_endpoint(request.model)
    named = protocol_of(request)
    protocol = protocol_by_name(named) if isinstance(named, str) else named
    path, body = protocol.encode(replace(request, now=provider_clock.now_at(endpoint)))
    extra_headers = _extra_headers(body.pop(EXTRA_HEADERS, None))
    headers = request_headers(tuple(extra_headers.items()), tuple(endpoint.key_headers().items()))
    content = body_in_json(body)
    most = most_output_tokens
    if most is None:
        most = output_limits.known_limit(endpoint.base_url, endpoint.model, body_bytes=len(content))
    if most is not None and (output_limits.asked_for(body) or 0) > most:
        content = body_in_json(output_limits.lower_limits(body, most))
    return PreparedRequest(endpoint, protocol, path, content, headers)


@functools.lru_cache(maxsize=256)
def request_headers(extra: tuple[tuple[str, str], ...], provider_headers: tuple[tuple[str, str], ...]) -> httpx.Headers:
    """The headers, shared by requests: nobody may change them; each request gets a copy."""
    headers = httpx.Headers({**_COMMON, **dict(extra)})
    headers.update({**dict(provider_headers), "Accept-Encoding": ACCEPTED})  # last: the key's is ours
    return headers


@contextlib.contextmanager
def explain_errors(endpoint: ModelEndpoint) -> Iterator[None]:
    """Turns an error raised inside the block into a ProviderError."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise failures.of_exception(endpoint, error) from None
    except InvalidReply as error:
        error.provider = error.provider or endpoint.provider
        raise


async def ask(request: Request, *, on_delta: OnDelta | None = None, on_start: OnStart | None = None) -> Reply:
    """One reply, from one answer. A request that asks for more tokens than the server's error says it may is sent once
    more, with that number. `on_delta` is called with each piece of text as it comes, if settings.stream is on.
    `on_start` is called when the stream begins, with a function that returns the usage so far.

    Raises InvalidModel, InvalidSetting and every kind of ProviderError; none of their messages holds the key.
    """
    prepared = prepare_request(request)
    try:
        return await _send_prepared(prepared, request, on_delta=on_delta, on_start=on_start)
    except ProviderError as error:
        if error.most_output_tokens is None:
            raise
        # It was refused, and cost nothing.
        again = prepare_request(request, most_output_tokens=error.most_output_tokens)
        if again.content == prepared.content:
            raise
        return await _send_prepared(again, request, on_delta=on_delta, on_start=on_start)


async def _send_prepared(
    prepared: PreparedRequest, request: Request, *, on_delta: OnDelta | None, on_start: OnStart | None
) -> Reply:
    endpoint = prepared.endpoint
    with explain_errors(endpoint), lend_client() as client:
        async with open_answer(
            client, "POST", prepared.url, content=prepared.content, headers=prepared.headers
        ) as answer:
            return await _read_reply(answer, request, prepared.protocol, endpoint, on_delta=on_delta, on_start=on_start)


def _extra_headers(given: object) -> dict[str, str]:
    headers = {str(name): str(value) for name, value in a_dict(given).items()}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            raise InvalidSetting(
                f"{EXTRA_HEADERS} has {name!r:.100}, which can't be set as a header.", cure="Take it out."
            )
        if not (value.isascii() and value.isprintable()):
            raise InvalidSetting(
                f"{EXTRA_HEADERS} has a value for {name!r:.100} that can't be sent in an HTTP header.",
                cure="Write it in printable ASCII.",
            )
    return headers


async def check_answer(answer: httpx.Response, endpoint: ModelEndpoint) -> None:
    """Raises a ProviderError if the answer is a refusal or a failure."""
    provider_clock.note_time(endpoint, answer.headers)
    limit_queue.record_answer(endpoint, answer.headers, success=answer.is_success)
    if not answer.is_success:
        body = await read_body(answer, endpoint, limit=MAX_HTTP_ERROR_BYTES, cut=True)
        raise failures.of_response(endpoint, status=answer.status_code, headers=answer.headers, body=body)


async def _read_reply(
    answer: httpx.Response,
    request: Request,
    protocol: WireProtocol,
    endpoint: ModelEndpoint,
    *,
    on_delta: OnDelta | None,
    on_start: OnStart | None,
) -> Reply:
    await check_answer(answer, endpoint)
    try:
        if _is_stream(answer, request):
            assembler = protocol.Assembler(request)
            if on_start:
                on_start(lambda: assembler.usage_so_far)
            await assemble_reply(answer, assembler, endpoint, on_delta=on_delta)
            with guard_reading(answer, endpoint):
                return assembler.finish()
        whole = await json_of(answer, endpoint)
        with guard_reading(answer, endpoint):
            return protocol.decode(whole, request)
    except failures.ErrorInReply as error:
        raise failures.of_response(endpoint, status=200, headers=answer.headers, body=error.body) from None


async def assemble_reply(
    answer: httpx.Response, assembler: Assembler, endpoint: ModelEndpoint, *, on_delta: OnDelta | None
) -> None:
    """Feeds the stream to the assembler, until the reply is done or the stream ends."""
    decoder = sse.EventDecoder()
    async with contextlib.aclosing(_bounded_chunks(answer, endpoint, limit=MAX_HTTP_REPLY_BYTES)) as chunks:
        try:
            with guard_reading(answer, endpoint):
                async for chunk in chunks:
                    _feed_events(assembler, decoder.feed(chunk), on_delta=on_delta)
                    if assembler.done:
                        break
                else:
                    _feed_events(assembler, decoder.end(), on_delta=on_delta)
        except httpx.TransportError:
            if not assembler.complete:
                raise
        else:
            await _drain_chunks(chunks)


@contextlib.contextmanager
def guard_reading(answer: httpx.Response, endpoint: ModelEndpoint) -> Iterator[None]:
    """Turns an unexpected exception into an error for a reply that can't be read. Any other kind would be retried,
    and paid for, for ever."""
    try:
        yield
    except FAULTS as error:
        what = f"reading it failed ({type(error).__name__}: {error!s:.200})"
        raise failures.not_the_protocol(endpoint, what, status=answer.status_code) from error


async def _drain_chunks(chunks: AsyncGenerator[bytes]) -> None:
    """Reads the last bytes after the reply: a connection that is not read to its end can't be used again."""
    with contextlib.suppress(TimeoutError, httpx.TransportError, InvalidReply):
        async with asyncio.timeout(_END_SECONDS):
            async for _ in chunks:
                pass


def _feed_events(assembler: Assembler, events: list[sse.Event], *, on_delta: OnDelta | None) -> None:
    for event in events:
        for delta in assembler.feed(event):
            if on_delta:
                on_delta(delta)


async def read_body(answer: httpx.Response, endpoint: ModelEndpoint, *, limit: int, cut: bool = False) -> bytes:
    """The whole body; or with `cut`, at most `limit` bytes of it."""
    body = bytearray()
    async with contextlib.aclosing(_bounded_chunks(answer, endpoint, limit=limit)) as chunks:
        try:
            async for chunk in chunks:
                body += chunk
        except InvalidReply:
            if not cut:
                raise
    return bytes(body)


async def _bounded_chunks(answer: httpx.Response, endpoint: ModelEndpoint, *, limit: int) -> AsyncGenerator[bytes]:
    """The answer's bytes, decompressed. Raises InvalidReply after `limit` of them, on the wire or decompressed."""
    received = size = 0
    try:
        decoder = decoder_of(answer.headers)
        async for data in answer.aiter_raw():
            received += len(data)
            for piece in decoder.decode_pieces(data):
                size += len(piece)
                if max(size, received) > limit:
                    raise _too_long(endpoint, answer, limit)
                yield piece
                if len(piece) == PIECE_BYTES:
                    await asyncio.sleep(0)  # what came in one piece may be a thousand of these
            if received > limit:
                raise _too_long(endpoint, answer, limit)
    except (UnknownEncoding, UnreadableBody) as error:
        raise failures.not_the_protocol(endpoint, str(error), status=answer.status_code) from None


def _too_long(endpoint: ModelEndpoint, answer: httpx.Response, limit: int) -> InvalidReply:
    return failures.not_the_protocol(endpoint, f"it is longer than {limit} bytes", status=answer.status_code)


def _is_stream(answer: httpx.Response, request: Request) -> bool:
    """Whether to read events: by the answer's content type, else by the request."""
    content_type = answer.headers.get("content-type", "").lower()
    if "event-stream" in content_type:
        return True
    return request.settings.stream and not ("json" in content_type or "html" in content_type)


async def json_of(answer: httpx.Response, endpoint: ModelEndpoint) -> Any:
    """Raises InvalidReply if the answer holds no JSON."""
    body = await read_body(answer, endpoint, limit=MAX_HTTP_REPLY_BYTES)
    try:
        return parse_json(body)
    except TooManyValues as error:
        raise failures.not_the_protocol(endpoint, str(error), status=answer.status_code) from None
    except ValueError:
        content_type = answer.headers.get("content-type", "nothing")
        what = f"it is {content_type!r:.100}, not JSON" if body else "it is empty"
        raise failures.not_the_protocol(endpoint, what, status=answer.status_code, body=body) from None
