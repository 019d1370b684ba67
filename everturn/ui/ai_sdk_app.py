"""An ASGI app through which pages of Vercel's AI SDK talk with durable conversations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from everturn.agent import Agent
from everturn.client.client import Client
from everturn.client.followed_reply import FollowedReply
from everturn.errors import InvalidSetting, NotFound, Refused
from everturn.http.json_response import JsonResponse
from everturn.ui.ai_sdk_messages import ui_messages
from everturn.ui.ai_sdk_request import AskedAgain, DecidedOnPage, PostedChat, read_post
from everturn.ui.ai_sdk_stream import HEADERS, LAST, UIMessageStream
from everturn.ui.chats import KEEP_OPEN, MAX_CHAT_BODY_BYTES, OWN_ID, Chat, Chats, NewMessage
from everturn.ui.http import ERRORS, event_stream, or_failed
from everturn.ui.narrator import Narrator, SeenByPage
from everturn.ui.visitors import Authorize
from everturn.validation.spelling import known_options


@known_options("ui.ai_sdk", InvalidSetting)
def ai_sdk(
    client: Client,
    *,
    agent: Agent | str,
    authorize: Authorize,
    keep_open: timedelta = KEEP_OPEN,
    max_body_bytes: int = MAX_CHAT_BODY_BYTES,
    show_causes: bool = False,
) -> ASGIApp:
    """The app that `useChat` of Vercel's AI SDK 6 talks to (AI SDK 5, too, if no call waits for an approval). Mount it,
    and give its address with the final slash to `new DefaultChatTransport({ api: "/api/chat/" })`.

    | | |
    |---|---|
    | `POST /` | takes what is new in the page's messages, and streams the answer. `regenerate` asks for a new one |
    | `GET /CHAT/stream` | streams the answer in progress, from its beginning; 204 if there is none |
    | `GET /CHAT` | the chat so far, as the JSON of `UIMessage[]` |
    | `POST /CHAT/stop` | cancels the answer in progress. A page that only disconnects cancels nothing |

    `agent`: the agent that answers; a worker hosts it. `authorize`: your function that says who is asking, given the
    request and the chat's id; see Visitor. `keep_open`: as in `Client.start`; a new message continues a chat that has
    ended. `max_body_bytes`: by default, a page sends all its messages each time; its transport can be set to send only
    the last. `show_causes`: whether pages see why a conversation stalled, which may name models and settings. Raises
    InvalidSetting.
    """
    chats = Chats.from_options(
        client,
        agent=agent,
        authorize=authorize,
        keep_open=keep_open,
        max_body_bytes=max_body_bytes,
        show_causes=show_causes,
    )
    endpoint = _AiSdk(chats)
    return Starlette(
        routes=[
            Route("/", endpoint.post_messages, methods=["POST"]),
            Route("/{chat_id}", endpoint.read_messages),
            Route("/{chat_id}/stream", endpoint.resume_stream),
            Route("/{chat_id}/stop", endpoint.stop_answer, methods=["POST"]),
        ],
        exception_handlers=dict(ERRORS),
    )


async def _send_refusing_none(chat: Chat, messages: Sequence[NewMessage]) -> None:
    """Sends what the page may have sent before. What is refused was refused then, too."""
    for message in messages:
        with suppress(Refused):
            await chat.send_message(message)


class _AiSdk:
    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    async def post_messages(self, request: Request) -> Response:
        posted = PostedChat.model_validate_json(await self._chats.body_of(request))
        chat = await self._chats.open_chat(request, posted.id)
        what = read_post(posted)
        if isinstance(what, DecidedOnPage):
            await _send_refusing_none(chat, what.messages)  # it can't keep the person from deciding
            any_open, refused = await chat.decide(what.choices, what.outputs)
            continued: dict[str, Any] = {
                "seen": what.seen,
                "message_id": what.message_id,
                "repeats": not (any_open or what.messages),
            }
            return await self._stream_answer(chat, chat.follow_answer(seen=what.seen), **continued, refused=refused)
        if isinstance(what, AskedAgain):
            again = await chat.ask_again(what.message, answer_id=what.answer_id)
            return await self._stream_answer(chat, chat.follow_answer(message_id=again))
        *earlier, message = what.messages
        await _send_refusing_none(chat, earlier)
        if message.message_id.startswith(OWN_ID):
            return await self._stream_answer(chat, chat.follow_answer())
        await chat.send_message(message)
        return await self._stream_answer(chat, chat.follow_answer(message_id=message.message_id))

    async def resume_stream(self, request: Request) -> Response:
        chat = await self._open_chat(request)
        try:
            return await self._stream_answer(chat, chat.follow_answer(), only_running=True)
        except NotFound:
            return Response(status_code=204)  # the chat has no message yet

    async def read_messages(self, request: Request) -> Response:
        chat = await self._open_chat(request)
        try:
            async with chat.follow_answer() as answer:
                return JsonResponse(
                    ui_messages(await answer.transcript(), answer), headers={"cache-control": "no-store"}
                )
        except NotFound:
            return JsonResponse([], headers={"cache-control": "no-store"})

    async def stop_answer(self, request: Request) -> Response:
        await self._chats.body_of(request)
        await (await self._open_chat(request)).stop()
        return Response(status_code=204)

    async def _open_chat(self, request: Request) -> Chat:
        return await self._chats.open_chat(request, request.path_params["chat_id"])

    async def _stream_answer(
        self,
        chat: Chat,
        answer: FollowedReply,
        *,
        seen: SeenByPage | None = None,
        message_id: str = "",
        repeats: bool = False,
        refused: list[str] | None = None,
        only_running: bool = False,
    ) -> Response:
        narrates = Narrator(seen or SeenByPage(), decides=chat.visitor.decides)
        show_causes = self._chats.show_causes
        stream = UIMessageStream(narrates, message_id=message_id, repeats=repeats, show_causes=show_causes)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(answer)
            if only_running and answer.rest is not None:
                return Response(status_code=204)
            chunks = or_failed(stream.chunks(answer, refused=refused or []), stream.fail, stack.pop_all())
            return event_stream(chunks, headers=HEADERS, last=LAST)
