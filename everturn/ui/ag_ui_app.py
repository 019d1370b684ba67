"""An ASGI app through which AG-UI clients talk with durable conversations."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from everturn.agent import Agent
from everturn.client.client import Client
from everturn.errors import InvalidSetting, NotFound, Refused
from everturn.ui.ag_ui_request import RunAsked, RunInput, read_run
from everturn.ui.ag_ui_stream import AgUiRun
from everturn.ui.chats import KEEP_OPEN, MAX_THREAD_BODY_BYTES, Chat, Chats
from everturn.ui.http import ERRORS, event_stream, or_failed
from everturn.ui.narrator import Narrator
from everturn.ui.visitors import Authorize
from everturn.validation.spelling import known_options


@known_options("ui.ag_ui", InvalidSetting)
def ag_ui(
    client: Client,
    *,
    agent: Agent | str,
    authorize: Authorize,
    keep_open: timedelta = KEEP_OPEN,
    max_body_bytes: int = MAX_THREAD_BODY_BYTES,
    show_causes: bool = False,
) -> ASGIApp:
    """The app that `HttpAgent` of `@ag-ui/client` talks to, 1.0 and 0.0.x: each is answered in its own version. Mount
    it, and give its address with the final slash: `new HttpAgent({ url: "/ag-ui/" })`.

    | | |
    |---|---|
    | `POST /` | takes what is new in the client's messages, or its decisions, and streams the answer |
    | `POST /THREAD/stop` | cancels the answer in progress. Disconnecting cancels nothing |

    A run that brings nothing new gets the whole thread first, and then whatever still happens: this is how a client
    reconnects. The options are those of `ai_sdk`; a thread is a chat, which a client sends whole each time. The front
    end runs the agent's tools that have
    `runs_on="client"`, and those that a run declares itself; the model reads a run's `context` and `state`. Raises
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
    endpoint = _AgUi(chats)
    return Starlette(
        routes=[
            Route("/", endpoint.run_agent, methods=["POST"]),
            Route("/{thread_id}/stop", endpoint.stop_answer, methods=["POST"]),
        ],
        exception_handlers=dict(ERRORS),
    )


async def _decide_on_calls(chat: Chat, run: RunAsked) -> tuple[bool, list[str]]:
    """As `Chat.decide`. Of a conversation that is no more, nothing is left to decide; a client that still has the old
    thread sends its answers again with each run, and what is new begins another conversation."""
    if not run.decides:
        return False, []
    try:
        return await chat.decide(run.choices, run.outputs)
    except NotFound:
        if not run.messages:
            raise
        return False, []


class _AgUi:
    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    async def run_agent(self, request: Request) -> Response:
        run = RunInput.model_validate_json(await self._chats.body_of(request))
        chat = await self._chats.open_chat(request, run.threadId)
        run_asked = read_run(run)
        decided, refused = await _decide_on_calls(chat, run_asked)
        for message in run_asked.messages:
            try:
                await chat.send_message(message)
            except Refused:
                if message is run_asked.messages[-1]:
                    raise  # else it was refused before, and is sent again with each run
        message_id = None
        if run_asked.messages:
            message_id = run_asked.messages[-1].message_id
        answer = chat.follow_answer(message_id=message_id, seen=run_asked.seen)

        narrates = Narrator(run_asked.seen, decides=chat.visitor.decides)
        show_causes = self._chats.show_causes
        stream = AgUiRun(
            run.threadId,
            run.runId,
            narrates,
            shown_call_ids=run_asked.shown_call_ids,
            version=run.version,
            show_causes=show_causes,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(answer)
            # If the client's decisions were taken before, it is reconnecting, and any part may be missing there.
            events = stream.stream_events(answer, comes_back=not (decided or run_asked.messages), refused=refused)
            return event_stream(or_failed(events, stream.fail, stack.pop_all()), headers={})

    async def stop_answer(self, request: Request) -> Response:
        await self._chats.body_of(request)
        chat: Chat = await self._chats.open_chat(request, request.path_params["thread_id"])
        await chat.stop()
        return Response(status_code=204)
