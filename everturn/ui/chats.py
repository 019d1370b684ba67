"""A page's chat as a conversation: who may open it, its new messages, and what people decide in it."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request

from everturn.agent import Agent
from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.client.followed_reply import FollowedReply
from everturn.errors import Ended, InvalidSetting, NotFound, Refused
from everturn.events import Replied, TurnStarted
from everturn.payloads import WaitingCall
from everturn.records import Message, Part
from everturn.sizes import shortened
from everturn.text.browser_values import is_same_in_browser, with_exact_values
from everturn.text.json_text import json_text
from everturn.ui.narrator import SeenByPage, question_id
from everturn.ui.page_fields import with_message_id
from everturn.ui.visitors import CHAT_ID, MAX_VISITOR_CHARS, Authorize, Visitor

MAX_CHAT_BODY_BYTES: Final = 4_000_000
"""By default a page sends all messages of its chat each time. Only the new one is taken, of 400 KB at the most."""
MAX_THREAD_BODY_BYTES: Final = 40_000_000
"""An AG-UI client sends its whole thread with each run, what the agent said included, and can't send less."""
KEEP_OPEN: Final = timedelta(hours=1)

MAX_SHOWN_BYTES: Final = 500
"""Of arguments, in an error that a page shows."""

Said = TypeVar("Said", "PageDecision", "PageResult")

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
class PageDecision:
    """A person's answer to one question: whether a call may run, perhaps with other arguments."""

    question_id: str
    call_id: str
    """The call at which the page answers the question; empty if it does not say."""
    approved: bool
    reason: str | None = None
    arguments: dict[str, JsonValue] | None = None
    expected: dict[str, JsonValue] | None = None
    """The arguments that the page showed."""


@dataclass(frozen=True)
class PageResult:
    """The result of a call that the page has run."""

    call_id: str
    content: JsonValue
    is_error: bool = False


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
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
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
        """Carries out the person's decisions, as far as they are still asked for. Returns whether there were any such,
        and why decisions were refused.

        A call that was decided meanwhile, by this person's first attempt or by somebody else, keeps that decision:
        the answer shows its result. What a page sends together is checked together: if one thing in it does not fit
        what is asked, nothing of it is carried out. Raises HTTPException, NotFound and Unreachable.
        """
        waiting = await self._read_waiting()
        open_choices = [choice for choice in choices if choice.question_id in waiting.questions]
        open_outputs = [output for output in outputs if output.call_id in waiting.answers]
        if open_choices and not self.visitor.decides:
            raise HTTPException(403, "You may not decide on this call.")
        if problems := [*_find_contradictions(open_choices, open_outputs), *waiting.find_misfits(open_choices)]:
            return True, problems
        try:
            todo: list[tuple[str, Awaitable[str]]] = [
                *[(choice.question_id, self._decide_call(choice, waiting)) for choice in _each_once(open_choices)],
                *[(output.call_id, self._answer_call(output, waiting)) for output in _each_once(open_outputs)],
            ]
        except Refused as error:
            return True, [f"{error.message} {error.cure}"]
        refusals = await asyncio.gather(*(doing for _, doing in todo))
        if any(refusals):  # somebody else may have decided a moment earlier
            waiting = await self._read_waiting()
        still_asked = {*waiting.questions, *waiting.answers}
        named = zip((name for name, _ in todo), refusals, strict=True)
        return bool(todo), [refusal for name, refusal in named if refusal and name in still_asked]

    async def _read_waiting(self) -> _Waiting:
        async with self.follow_answer() as answer:
            return _Waiting(
                {question_id(call): call for call in answer.waiting if call.needs == "approval"},
                {call.call_id: call for call in answer.waiting if call.needs == "answer"},
            )

    def _decide_call(self, choice: PageDecision, waiting: _Waiting) -> Awaitable[str]:
        """The decision, to be awaited. It is about the call of the question, and about the arguments that this call
        has. Raises Refused for an edit that a browser may have changed."""
        conversation = self.conversation
        call = waiting.questions[choice.question_id]
        is_of_sub_agent = bool(call.path)
        if not choice.approved:
            return _unless_refused(
                lambda: conversation.deny(call.call_id, choice.reason, expected=call, children=is_of_sub_agent)
            )
        edited = choice.arguments
        if edited is not None:
            edited = _arguments_with_exact_values(call, edited)
        return _unless_refused(
            lambda: conversation.approve(
                call.call_id, edited, note=choice.reason, expected=call, children=is_of_sub_agent
            )
        )

    def _answer_call(self, output: PageResult, waiting: _Waiting) -> Awaitable[str]:
        conversation = self.conversation
        is_of_sub_agent = bool(waiting.answers[output.call_id].path)
        return _unless_refused(
            lambda: conversation.answer(
                output.call_id, output.content, is_error=output.is_error, children=is_of_sub_agent
            )
        )

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


@dataclass(frozen=True)
class _Waiting:
    """What waits for people."""

    questions: Mapping[str, WaitingCall]
    """The calls that wait for an approval, by the id of the question about each."""
    answers: Mapping[str, WaitingCall]
    """The calls that wait for a result, by call_id."""

    def find_misfits(self, choices: Iterable[PageDecision]) -> Iterator[str]:
        """What the page showed beside a question, if that is not what the question is about."""
        for choice in choices:
            call = self.questions[choice.question_id]
            if choice.call_id not in ("", call.call_id):
                yield (
                    f"The page answers the question about the call {call.call_id!r} at the call "
                    f"{choice.call_id!r:.200}. Nothing was decided: load the page again."
                )
            elif choice.expected is not None and not is_same_in_browser(call.arguments, choice.expected):
                yield (
                    f"The page shows other arguments of the call {call.call_id!r} than it has: "
                    f"{shortened(json_text(call.arguments), max_bytes=MAX_SHOWN_BYTES)}. Nothing was decided: load "
                    "the page again."
                )


def _find_contradictions(choices: Iterable[PageDecision], outputs: Iterable[PageResult]) -> Iterator[str]:
    """What the page says in two ways at once."""
    decisions_by_name: dict[str, PageDecision | PageResult] = {}
    named: list[tuple[str, PageDecision | PageResult]] = [
        *((choice.question_id, choice) for choice in choices),
        *((output.call_id, output) for output in outputs),
    ]
    for name, decision in named:
        if decisions_by_name.setdefault(name, decision) != decision:
            yield f"The page sends two different answers for the call {decision.call_id!r:.200}. Nothing was decided."


def _each_once(decisions: Iterable[Said]) -> list[Said]:
    """The same thing may stand in two parts of a message."""
    distinct: list[Said] = []
    for thing in decisions:
        if thing not in distinct:
            distinct.append(thing)
    return distinct


def _arguments_with_exact_values(call: WaitingCall, edited: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raises Refused."""
    exact = with_exact_values(call.arguments, edited)
    assert isinstance(exact, dict)
    return exact


async def _unless_refused(decide: Callable[[], Any]) -> str:
    try:
        await decide()
    except Refused as error:
        return error.message
    except Ended:
        return ""
    return ""
