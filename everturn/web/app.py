"""The inbox as an ASGI application: its page, its event stream, and the requests that the page sends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.errors import AlreadyStarted, Ended, EverturnError, NotFound, Refused, Unreachable
from everturn.events import CURSOR
from everturn.http.json_response import JsonResponse
from everturn.web.auth import Auth, proxied_name
from everturn.web.children import status_with_children
from everturn.web.earlier_messages import EarlierMessages
from everturn.web.listing import ConversationLists, ListFilter
from everturn.web.requests import POSTS
from everturn.web.stream import STUCK_SECONDS, Stream
from everturn.web.waiting_calls import waiting_calls

PAGE: Final = Path(__file__).parent / "page"

MAX_INBOX_BODY_BYTES: Final = 2_000_000
"""The largest are decisions on MOST_CALLS_AT_ONCE calls, with ids of up to 1,000 characters, and messages of 400 KB
(MAX_INPUT_BYTES), which escapes make longer."""

MAX_STREAMS: Final = 256
"""How many pages can be open at once: each costs a waiting request at Temporal, and up to some megabytes."""

_STATUS: Final[dict[type[Exception], int]] = {
    NotFound: 404,
    Refused: 409,
    Ended: 409,
    AlreadyStarted: 409,
    Unreachable: 503,
}


class _EarlierQuery(BaseModel):
    """Asks for messages from before a run: the last `limit` ones before the position `before`."""

    conversation: str
    run: str
    before: int = Field(ge=0)
    limit: int = Field(default=100, ge=1, le=1000)


class Inbox:
    """`app` is the ASGI app to serve. `by_header`: the header in which a trusted reverse proxy names people; without
    it, people type their names, and anybody can type any name. `temporal_ui`: the address of Temporal's Web UI, for
    links to it. `end_streams` ends the pages' streams, so that a server can stop."""

    def __init__(
        self,
        client: Client,
        *,
        token: str | None = None,
        by_header: str | None = None,
        temporal_ui: str | None = None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self._client = client
        self._by_header = by_header
        self._temporal_ui = ""
        if temporal_ui:
            self._temporal_ui = f"{temporal_ui.rstrip('/')}/namespaces/{quote(client.temporal.namespace)}"
        self._stuck_seconds = stuck_seconds
        self._lists = ConversationLists(client)
        self._earlier_messages = EarlierMessages(client)
        self._streams: set[Stream] = set()
        self.app: ASGIApp = Auth(self._routes(), token=token)

    def end_streams(self) -> None:
        for stream in self._streams:
            stream.end()
        self._lists.stop()

    def _routes(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._send_page),
                Route("/api/stream", self._open_stream),
                Route("/api/status", self._read_status),
                Route("/api/waiting", self._list_waiting),
                Route("/api/earlier", self._read_earlier),
                Route("/api/{verb}", self._carry_out_post, methods=["POST"]),
                Mount("/page", StaticFiles(directory=PAGE)),
            ],
            exception_handlers={
                HTTPException: _plain_response,
                ValidationError: _invalid_response,
                ClientDisconnect: _disconnected_response,
                EverturnError: _refused_response,
                RPCError: _temporal_refused_response,
            },
        )

    # ------------------------------------------------------------ looking

    async def _send_page(self, _: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    async def _open_stream(self, request: Request) -> Response:
        # When a browser reconnects, the last event that it saw counts, not the one where its page began.
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        if since and not CURSOR.fullmatch(since):
            raise HTTPException(400, "since= is not a cursor: use the id of an event of this stream.")
        name = proxied_name(request, self._by_header)
        if len(self._streams) >= MAX_STREAMS:
            raise HTTPException(503, f"{MAX_STREAMS} pages are already open. Close some, or start another inbox.")
        stream = Stream(
            self._client,
            self._lists,
            hello={"by": name or self._client.by, "fixed": name is not None, "temporal_ui": self._temporal_ui},
            conversation_id=request.query_params.get("conversation", ""),
            since=since,
            wanted=None if "alone" in request.query_params else _filter_of(request),
            stuck_seconds=self._stuck_seconds,
        )

        self._streams.add(stream)
        return _EventStream(stream, on_end=lambda: self._streams.discard(stream))

    async def _read_status(self, request: Request) -> Response:
        return JsonResponse(await status_with_children(self._client, _conversation_of(request)))

    async def _list_waiting(self, request: Request) -> Response:
        return JsonResponse(await waiting_calls(self._client, _filter_of(request)))

    async def _read_earlier(self, request: Request) -> Response:
        wanted = _EarlierQuery.model_validate({**request.query_params})
        before = (await self._earlier_messages.messages_before(wanted.conversation, wanted.run))[: wanted.before]
        start = max(0, len(before) - wanted.limit)
        messages = [message.model_dump(mode="json") for message in before[start:]]
        return JsonResponse({"from": start, "messages": messages})

    # ------------------------------------------------------------ deciding

    async def _carry_out_post(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        if verb not in POSTS:
            raise HTTPException(404, f"Nothing can be posted to {verb!r}: there are {', '.join(POSTS)}.")
        post = POSTS[verb].model_validate_json(await _body_of(request))
        person = proxied_name(request, self._by_header) or post.by or self._client.by
        return JsonResponse(await post.carry_out(self._client.acting_as(person)))


class _EventStream(StreamingResponse):
    """Calls `on_end` in any case, even if the page disconnects before the first byte."""

    def __init__(self, stream: Stream, *, on_end: Callable[[], None]) -> None:
        # Otherwise proxies such as nginx would buffer the stream.
        super().__init__(stream.chunks(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def _conversation_of(request: Request) -> str:
    if conversation_id := request.query_params.get("conversation"):
        return conversation_id
    raise HTTPException(400, "Which one? Say ?conversation=ID.")


def _filter_of(request: Request) -> ListFilter:
    return ListFilter.model_validate(
        {name: given for name in ListFilter.model_fields if (given := request.query_params.get(name))}
    )


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_INBOX_BODY_BYTES:
            raise HTTPException(413, f"The body is larger than {MAX_INBOX_BODY_BYTES:,} bytes.")
    return bytes(body)


# ---------------------------------------------------------------- answers to what went wrong


def _plain_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JsonResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)


def _invalid_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    problems = [".".join(map(str, detail["loc"])) + ": " + detail["msg"] for detail in error.errors(include_url=False)]
    return JsonResponse({"error": "; ".join(problem.removeprefix(": ") for problem in problems[:5])}, status_code=400)


def _disconnected_response(_: Request, __: Exception) -> Response:
    """Nobody reads the answer: the page disconnected before it had sent everything."""
    return Response(status_code=400)


def _refused_response(_: Request, error: Exception) -> Response:
    # The error's own cure is for programs; on the page, a person types into the message box.
    text = str(error)
    if isinstance(error, Ended):
        text = f"{error.message} Your next message continues it."
    return JsonResponse({"error": text}, status_code=_STATUS.get(type(error), 400))


def _temporal_refused_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, RPCError)
    return JsonResponse({"error": f"Temporal said no: {error.message}."}, status_code=503)
