"""The requests that a page can post: one model for each request body, with what the request does."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.client.many_decisions import AT_ONCE, decide_one
from everturn.client.strangers_ids import check_strangers_id
from everturn.payloads import WaitingCall
from everturn.records import ApproveOrDeny
from everturn.system.bounded_concurrency import in_order
from everturn.text.browser_values import is_same_in_browser, survives_browser, with_exact_values

MOST_CALLS_AT_ONCE: Final = 1_000
"""How many calls one request may decide on."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
AnyId = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
"""Any characters: the conversation may have been started elsewhere, with an id that Name forbids."""
Arguments = dict[str, JsonValue] | None
By = Annotated[str, StringConstraints(max_length=200, strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[str, StringConstraints(min_length=1)]


class RequestBody(BaseModel):
    """`by`: the person who does it; empty for the one who runs `everturn web`. `exact_numbers`: the page sends whole
    numbers beyond 2^53 as they are."""

    model_config = ConfigDict(extra="forbid", strict=True)

    by: By = ""
    exact_numbers: bool = False

    async def carry_out(self, client: Client) -> dict[str, Any]:
        raise NotImplementedError


class StartRequest(RequestBody):
    agent: Name
    message: Text
    id: Name | None = None
    message_id: Name | None = None

    async def carry_out(self, client: Client) -> dict[str, Any]:
        if self.id:
            await check_strangers_id(client, self.id)
        started = await client.start(self.agent, self.message, id=self.id, message_id=self.message_id, stream=True)
        return {"id": started.id}


class ConversationRequest(RequestBody):
    """A post about the conversation with this id."""

    conversation: AnyId

    async def carry_out(self, client: Client) -> dict[str, Any]:
        return {"call_ids": await self.tell_conversation(client.conversation(self.conversation)) or ()}

    async def tell_conversation(self, conversation: Conversation) -> tuple[str, ...] | None:
        raise NotImplementedError


class MessageRequest(ConversationRequest):
    """A message to a conversation. It revives one that is over."""

    text: Text
    message_id: Name

    async def carry_out(self, client: Client) -> dict[str, Any]:
        conversation = client.conversation(self.conversation)
        await conversation.send(self.text, message_id=self.message_id, stream=True, revive=True)
        return {"id": self.conversation}


class DecisionRequest(ConversationRequest):
    """A decision on a call that waits. `question`: of the call as the page showed it; `children`: as in
    `Conversation.approve`."""

    call_id: Name
    question: AnyId | None = None
    children: bool = True

    def seen_call(self, arguments: Arguments = None) -> WaitingCall | None:
        return _seen_call(self.call_id, self.question, arguments)


class ApproveRequest(DecisionRequest):
    arguments: dict[str, JsonValue] | None = None
    expected: dict[str, JsonValue] | None = None
    """The arguments that the page showed; always beside a `question`."""
    note: str | None = None

    @model_validator(mode="after")
    def _check_both(self) -> Self:
        if self.question and self.expected is None:
            raise ValueError("a question goes with the arguments that were shown, in expected")
        return self

    async def tell_conversation(self, conversation: Conversation) -> tuple[str, ...]:
        arguments = self.arguments
        expected = self.expected
        if not self.exact_numbers and not survives_browser([arguments, expected]):
            arguments, expected = await _with_exact_arguments(conversation, self.call_id, arguments, expected)
        more: dict[str, Any] = {"expected": self.seen_call(expected) or expected, "children": self.children}
        return await conversation.approve(self.call_id, arguments, self.note, **more)


class DenyRequest(DecisionRequest):
    reason: str | None = None

    async def tell_conversation(self, conversation: Conversation) -> tuple[str, ...]:
        return await conversation.deny(self.call_id, self.reason, expected=self.seen_call(), children=self.children)


class AnswerRequest(DecisionRequest):
    content: JsonValue
    is_error: bool = False

    async def tell_conversation(self, conversation: Conversation) -> tuple[str, ...]:
        more: dict[str, Any] = {"is_error": self.is_error, "expected": self.seen_call(), "children": self.children}
        return await conversation.answer(self.call_id, self.content, **more)


class OneCall(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    conversation: AnyId
    call_id: Name
    expected: dict[str, JsonValue]
    """The arguments that the page showed."""
    question: AnyId | None = None


class DecideManyRequest(RequestBody):
    """Decides on the calls that the page showed. A call that has changed since is not decided on."""

    verdict: ApproveOrDeny
    calls: Annotated[tuple[OneCall, ...], Field(min_length=1, max_length=MOST_CALLS_AT_ONCE, strict=False)]
    words: str | None = None
    """For the model: a note with an approval, or the reason for a denial."""

    async def carry_out(self, client: Client) -> dict[str, Any]:
        async def decide_call(call: OneCall) -> dict[str, str]:
            conversation = client.conversation(call.conversation)
            expected = call.expected
            if not self.exact_numbers and not survives_browser(expected):
                _, exact = await _with_exact_arguments(conversation, call.call_id, None, expected)
                if exact is not None:
                    expected = exact
            seen = _seen_call(call.call_id, call.question, expected)
            refused = await decide_one(
                conversation, self.verdict, call.call_id, words=self.words, expected=seen or expected
            )
            return {"conversation": call.conversation, "call_id": call.call_id, "refused": refused}

        return {"calls": await in_order(self.calls, decide_call, max_running=AT_ONCE)}


class ForkRequest(ConversationRequest):
    """A new conversation with the first turns of this one. After `at_turn`, it can get another message, another model,
    or other results of that turn's calls. With 0 and a `text`, it starts afresh."""

    at_turn: Annotated[int, Field(ge=0, le=1_000_000_000)]
    text: Text | None = None
    model: Name | None = None
    results: dict[str, str] = Field(default_factory=dict)

    async def carry_out(self, client: Client) -> dict[str, Any]:
        conversation = client.conversation(self.conversation)
        fork = await conversation.fork(self.at_turn, message=self.text, model=self.model, results=self.results)
        return {"id": fork.id}


class PauseRequest(ConversationRequest):
    reason: str | None = None

    async def tell_conversation(self, conversation: Conversation) -> None:
        await conversation.pause(self.reason)


class ResumeRequest(ConversationRequest):
    model: Name | None = None

    async def tell_conversation(self, conversation: Conversation) -> None:
        await conversation.resume(model=self.model)


class CancelTurnRequest(ConversationRequest):
    reason: str | None = None

    async def tell_conversation(self, conversation: Conversation) -> None:
        await conversation.cancel_turn(self.reason)


class CloseRequest(ConversationRequest):
    reason: str | None = None

    async def tell_conversation(self, conversation: Conversation) -> None:
        await conversation.close(self.reason)


def _seen_call(call_id: str, question: str | None, arguments: Arguments) -> WaitingCall | None:
    """The call as the page showed it; None if the page did not say which question that was."""
    if not question:
        return None
    return WaitingCall(call_id=call_id, tool="", arguments=arguments or {}, question=question)


async def _with_exact_arguments(
    conversation: Conversation, call_id: str, arguments: Arguments, expected: Arguments
) -> tuple[Arguments, Arguments]:
    """A decision's arguments with the call's own values for everything that the page left as it was: browsers older
    than 2024 round long numbers. Raises Refused."""
    waiting = (await conversation.status()).waiting
    call = next((call for call in waiting if call.call_id == call_id), None)
    if call is None:
        return arguments, expected
    if expected is not None and is_same_in_browser(call.arguments, expected):
        expected = call.arguments
    if arguments is None:
        return None, expected
    edited = with_exact_values(call.arguments, arguments)
    assert isinstance(edited, dict)
    return edited, expected


POSTS: Final[dict[str, type[RequestBody]]] = {
    "start": StartRequest,
    "message": MessageRequest,
    "approve": ApproveRequest,
    "deny": DenyRequest,
    "answer": AnswerRequest,
    "decide_many": DecideManyRequest,
    "fork": ForkRequest,
    "pause": PauseRequest,
    "resume": ResumeRequest,
    "cancel_turn": CancelTurnRequest,
    "close": CloseRequest,
}
