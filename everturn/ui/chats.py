"""A page's chat as a conversation: who may open it, its new messages, what people decide in it, and its end."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from everturn.agent import Agent
from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.client.followed_reply import FollowedReply
from everturn.errors import Ended, InvalidSetting, NotFound, Refused
from everturn.events import Replied, TurnStarted
from everturn.http.headers import read_media_type
from everturn.records import Message, Part
from everturn.ui.narrator import SeenByPage
from everturn.ui.page_decisions import PageDecision, PageDecisions, PageResult, WaitingForPage
from everturn.ui.page_fields import with_message_id
from everturn.ui.visitors import CHAT_ID, MAX_VISITOR_CHARS, Authorize, Visitor

MAX_CHAT_BODY_BYTES: Final = 4_000_000
"""By default a page sends all messages of its chat each time. Only the new one is taken, of 400 KB at the most."""
MAX_THREAD_BODY_BYTES: Final = 40_000_000
"""An AG-UI client sends its whole thread with each run, what the agent said included, and can't send less."""
KEEP_OPEN: Final = timedelta(hours=1)

OWN_ID: Final = "everturn-"
"""The prefix of the message ids that the server makes. A message with such an id is known here: it isn't sent again."""


@dataclass(frozen=True)
class NewMessage:
    """What the person at the page says. `message_id`: the page's id for it."""

    message_id: str
    parts: list[Part]
    reader: str = ""
    """The provider that reads the parts' `extra`."""


@dataclass(frozen=True)
class Chats:
    """The chats of one agent. `keep_open`: as in `Client.start`; a new message continues a chat that has ended."""

    client: Client
    agent: str
    authorize: Authorize
    keep_open: timedelta
    max_body_bytes: int
    show_causes: bool

    @classmethod
    def from_options(
        cls,
        client: Client,
        *,
        agent: Agent | str,
        authorize: Authorize,
        keep_open: timedelta,
        max_body_bytes: int,
        show_causes: bool,
    ) -> Chats:
        if not isinstance(client, Client):
            raise InvalidSetting(
                f"The front end was given {client!r:.100} as its client.", cure="Give await Client.connect()."
            )
        if not callable(authorize):
            raise InvalidSetting(
                "The front end was not told who may open which chat.",
                cure="Give authorize= a function of the request and the chat's id that returns a Visitor, or None. To "
                "try things out: authorize=everturn.ui.anybody.",
            )
        name = agent.name if isinstance(agent, Agent) else agent
        return cls(client, name, authorize, keep_open, max_body_bytes, show_causes)

    async def open_chat(self, request: Request, chat_id: str) -> Chat:
        """The chat that the request is about. Raises HTTPException if this visitor may not open it."""
        if not CHAT_ID.fullmatch(chat_id):
            raise HTTPException(400, "A chat's id has 1 to 128 letters, digits, _ and -.")
        visitor = self.authorize(request, chat_id)
        if inspect.isawaitable(visitor):
            visitor = await visitor
        if visitor is None:
            raise HTTPException(403, "This chat is not yours to open.")
        if len(visitor.name) > MAX_VISITOR_CHARS:
            raise HTTPException(403, f"A visitor's name has at most {MAX_VISITOR_CHARS} characters.")
        client = self.client.acting_as(visitor.name or self.client.by)
        return Chat(self, visitor, client, client.conversation(visitor.conversation_id(self.agent, chat_id)))

    async def body_of(self, request: Request) -> bytes:
        """Raises HTTPException for a body that is too large or no JSON. A form on another site can't send JSON."""
        if read_media_type(request.headers) != "application/json":
            raise HTTPException(415, "The body is to be application/json.")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.max_body_bytes:
                raise HTTPException(413, f"The body is larger than {self.max_body_bytes:,} bytes.")
        return bytes(body)


@dataclass(frozen=True)
class Chat:
    """A conversation as one visitor may use it."""

    chats: Chats
    visitor: Visitor
    client: Client
    conversation: Conversation

    async def send_message(self, message: NewMessage) -> None:
        """Sends the message. A message that is sent again, with the same id, counts once."""
        await self.client.send(
            self.chats.agent,
            Message(role="user", parts=tuple(message.parts), provider=message.reader),
            id=self.conversation.id,
            message_id=message.message_id,
            keep_open=self.chats.keep_open,
            tenant=self.visitor.tenant,
            metadata=self.visitor.metadata,
            stream=True,
        )

    async def ask_again(self, message: NewMessage, *, answer_id: str) -> str | None:
        """Gets another answer to the message. Returns the id of the message sent for it; None if none had to be sent.

        An answer that still runs or waits goes on, and a stalled one is resumed. Otherwise the message is sent again,
        as a new one: the transcript keeps the first. For the same `answer_id`, it is sent again only once.
        """
        try:
            async with self.follow_answer() as answer:
                why_at_rest = answer.rest
                turns = [event for event in answer.events if isinstance(event, TurnStarted | Replied)]
        except NotFound:  # the message never arrived
            await self.send_message(message)
            return message.message_id
        # After its final reply, a turn runs for another moment; or until a worker is there, if none is.
        is_whole = bool(turns) and isinstance(turns[-1], Replied) and turns[-1].final
        if not is_whole and (why_at_rest is None or why_at_rest.why == "waiting"):
            return None
        if why_at_rest is not None and why_at_rest.why == "stalled":
            with suppress(Refused, Ended):
                await self.conversation.resume()
            return None
        instead_of = answer_id or str(turns[-1].turn if turns else 0)
        digest = hashlib.sha256(f"{message.message_id} {instead_of}".encode(errors="replace")).hexdigest()
        message_id = f"again-{digest[:32]}"
        await self.send_message(
            replace(message, message_id=message_id, parts=with_message_id(message.parts, message_id))
        )
        return message_id

    def follow_answer(self, *, message_id: str | None = None, seen: SeenByPage | None = None) -> FollowedReply:
        """`seen`: what the page has of it."""
        shown_calls: Collection[str] = ()
        if seen:
            shown_calls = seen.calls - seen.results
        return FollowedReply(
            self.conversation, message_id=message_id, decides=self.visitor.decides, shown_addresses=shown_calls
        )

    async def decide(self, choices: Sequence[PageDecision], outputs: Sequence[PageResult]) -> tuple[bool, list[str]]:
        """Carries out what the person decided, as far as it is still asked for. Returns whether there was anything, and
        why it was refused. Raises HTTPException, NotFound and Unreachable."""
        decisions = PageDecisions(self.conversation, self._read_waiting, may_decide=self.visitor.decides)
        return await decisions.carry_out(choices, outputs)

    async def _read_waiting(self) -> WaitingForPage:
        async with self.follow_answer() as answer:
            return WaitingForPage.from_calls(answer.waiting)

    async def stop(self) -> None:
        """Cancels the answer in progress, if there is one. That denies the calls that wait in it, so who may not decide
        on them may not stop it either, while they wait."""
        try:
            if self.visitor.decides:
                await self.conversation.cancel_turn()
            else:
                await self._stop_without_deciding()
        except (Refused, Ended, NotFound):
            return

    async def _stop_without_deciding(self) -> None:
        """The conversation refuses it while a call of its own waits. A sub-agent's call is looked for here. One that
        begins to wait between this look and the stop is stopped as if it had been a moment earlier: nobody has decided
        on it, it has not run, and the visitor might have stopped it then."""
        await self._check_nothing_waits()
        try:
            await self.conversation._cancel_turn_without_deciding()
        except Refused:  # a call may wait since
            await self._check_nothing_waits()

    async def _check_nothing_waits(self) -> None:
        if (await self._read_waiting()).questions:
            raise HTTPException(403, "A call waits for somebody's decision, and you may not decide on it.")
