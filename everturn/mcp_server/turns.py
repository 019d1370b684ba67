"""Asks an agent and waits a while: for its answer, for a person, or until the caller should not wait any longer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.errors import AlreadyStarted, Ended, Refused, Unreachable
from everturn.mcp_server.reachable_conversations import ReachableConversations
from everturn.payloads import Status, WaitingCall
from everturn.sizes import MAX_REASON_BYTES
from everturn.subagents.call_addresses import in_words
from everturn.subagents.results import with_notice
from everturn.text.shortening import shortened
from everturn.text.utf8 import mend

if TYPE_CHECKING:
    from mcp.types import ElicitResult

FIRST_LOOK_SECONDS = 0.1
LONGEST_LOOK_SECONDS = 2.0

SHOWN_CHARS = 1_000
"""Of the arguments of a call that waits."""

DIGEST_CHARS = 32

_SEPARATOR = " "
"""Separates the conversation's id, the call's and the digest in a question's name; only the first may contain it."""


@dataclass(frozen=True)
class ConversationProgress:
    """How far a conversation has come."""

    conversation_id: str
    status: Status
    text: str | None = None
    """Its final reply."""
    output: Any = None
    notice: str = ""
    """The text as a model reads it, if it is not the whole answer."""

    @property
    def as_json(self) -> dict[str, Any]:
        status = self.status.as_json()
        facts: dict[str, Any] = {"conversation_id": self.conversation_id}
        facts |= {name: status[name] for name in ("state", "turn", "waiting", "cause", "cure", "cost_usd")}
        if self.text is not None:
            facts["text"] = self.text
        if self.output is not None:
            facts["output"] = self.output
        return facts

    @property
    def in_words(self) -> str:
        """What a model reads about it."""
        if self.text is not None:
            return self.notice or self.text
        state = f"Conversation {self.conversation_id} is {self.status.state.replace('_', ' ')}"
        waiting = "; ".join(f"call {_call_in_words(call)}: {call.why}" for call in self.status.waiting)
        if cause := waiting or self.status.cause:
            state = f"{state} ({cause})"
        return f"{state}. It goes on by itself. Ask for its `status` later."


def _call_in_words(call: WaitingCall) -> str:
    if not call.path:
        return call.call_id
    return f"{call.call_id} of {in_words(call)}"


def id_for(agent: str, key: str | None) -> str:
    """The conversation's id: the same for the same key."""
    if not key:
        return f"{agent}-{uuid4().hex[:12]}"
    return f"{agent}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


async def begin_conversation(
    client: Client, agent: str, message: str, *, conversation_id: str | None, key: str | None
) -> str:
    """Starts a conversation, once for the same id or key; returns its id. Raises AlreadyStarted if another message, or
    another agent's, has begun under it."""
    try:
        return (await client.start(agent, message, id=conversation_id or id_for(agent, key))).id
    except AlreadyStarted as error:
        raise AlreadyStarted(
            error.message, cure="Use another id, or `send` the message to that conversation."
        ) from None


async def look_at(conversation: Conversation) -> ConversationProgress:
    """How far it has come now."""
    status = await conversation.status()
    if status.state != "done":
        return ConversationProgress(conversation.id, status)
    try:
        outcome = await conversation.outcome()
    except Ended as error:
        return ConversationProgress(conversation.id, status.model_copy(update={"cause": str(error)}), text=str(error))
    notice = with_notice(outcome.text, status.agent, outcome)
    return ConversationProgress(conversation.id, status, outcome.text or outcome.reason or "", outcome.output, notice)


async def wait_until_settled(conversation: Conversation, *, seconds: float, say: Any = None) -> ConversationProgress:
    """How far it has come once it is done, waits for a person or is stalled; or when the time is up.

    `say`: called for each turn, such as to report progress to the caller."""
    until = time.monotonic() + seconds
    delay = FIRST_LOOK_SECONDS
    turn = 0
    while True:
        try:
            reached = await look_at(conversation)
        except Unreachable as error:  # no worker to ask: it goes on once there is one
            reached = ConversationProgress(conversation.id, Status(state="running", cause=error.message))
        if reached.status.state != "running" or reached.status.waiting or time.monotonic() >= until:
            return reached
        if say and reached.status.turn > turn:
            turn = reached.status.turn
            await say(turn, None, f"turn {turn} of {conversation.id}")
        await asyncio.sleep(min(delay, max(0.0, until - time.monotonic())))
        delay = min(2 * delay, LONGEST_LOOK_SECONDS)


# ---------------------------------------------------------------- questions, for callers that put them to a person


def question_about(agent: str, call: WaitingCall) -> tuple[str, dict[str, Any]]:
    """The question to a person about a waiting call, and the form for the answer."""
    if call.path:
        agent = f"{agent} › {in_words(call)}"
    written = json.dumps(call.arguments, ensure_ascii=False)
    arguments_text = shortened(mend(written), max_bytes=MAX_REASON_BYTES, max_chars=SHOWN_CHARS)
    if call.needs == "answer":
        fields: dict[str, Any] = {"answer": {"type": "string"}}
        return f"{agent} asks: {call.why}", {"type": "object", "properties": fields, "required": ["answer"]}
    fields = {
        "decision": {"type": "string", "enum": ["approve", "deny"]},
        "note": {"type": "string", "description": "why, for the model"},
    }
    text = f"{agent}: {call.why}: {call.tool}({arguments_text})"
    return text, {"type": "object", "properties": fields, "required": ["decision"]}


@dataclass(frozen=True)
class AskingCall:
    """The call of an agent's tool that puts questions to a person. Its answers come in a call with the same agent and
    message, and no server remembers anything between the two: a question's name leads its answer to the waiting call,
    and says what was asked."""

    agent: str
    message: str

    def question_name(self, conversation_id: str, call: WaitingCall) -> str:
        return _SEPARATOR.join((conversation_id, _name_of(call), self._question_digest(conversation_id, call)))

    def _question_digest(self, conversation_id: str, call: WaitingCall) -> str:
        """Of all that the person is shown, and of the time since when the call waits: one that waits again, such as
        after its worker was lost, is another question."""
        details = call.model_dump(mode="json", exclude={"expires_at"})
        written = json.dumps([self.agent, self.message, conversation_id, details], sort_keys=True)
        return hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()[:DIGEST_CHARS]

    async def take_answers(self, reach: ReachableConversations, answers: Mapping[str, ElicitResult]) -> str:
        """Carries out a person's answers to questions of this call; returns the id of the conversation. An answer to a
        call that waits no more, or again, decides nothing: if somebody else has decided meanwhile, that decision
        stays. Raises NotFound and Refused, before anything is decided."""
        asking: set[str] = set()
        decisions: list[Callable[[], Awaitable[Any]]] = []
        for name, answer in answers.items():
            conversation_id, call_name = _read_question_name(name)
            asking.add(await reach.asked_by_tool(conversation_id, self.agent))
            conversation = await reach.open_conversation(conversation_id)
            for call in (await conversation.status()).waiting:
                is_asked = hmac.compare_digest(self.question_name(conversation_id, call).encode(), name.encode())
                if _name_of(call) == call_name and is_asked:
                    decisions.append(_decision_from(conversation, call, answer))
        if len(asking) > 1:
            raise Refused("These answers are to questions of several conversations.", cure="Send them one by one.")
        for decide in decisions:
            with suppress(Refused, Ended):
                await decide()
        return asking.pop()


def _name_of(call: WaitingCall) -> str:
    """Its id; of a sub-agent's call, its address."""
    return call.address if call.path else call.call_id


def _read_question_name(question_name: str) -> tuple[str, str]:
    """The id of the conversation and the name of the call. Raises Refused."""
    match question_name.rsplit(_SEPARATOR, 2):
        case [conversation_id, call_name, _]:
            return conversation_id, call_name
    raise Refused(f"No question was asked here with the name {question_name!r:.300}.")


def _decision_from(conversation: Conversation, call: WaitingCall, answer: ElicitResult) -> Callable[[], Awaitable[Any]]:
    """Carries out the answer. Raises Refused if it says nothing that the question's form asks for."""
    content = answer.content or {}
    note = str(content.get("note") or "") or None
    place = conversation.where(call)
    options: dict[str, Any] = {"expected": call, "children": False}
    match answer.action, call.needs:
        case "cancel", _:  # a person who closes the question has decided nothing
            return _do_nothing
        case "decline", _:
            return partial(place.deny, call.call_id, "The caller declined to decide.", **options)
        case "accept", "answer" if isinstance(text := content.get("answer"), str):
            return partial(place.answer, call.call_id, text, **options)
        case "accept", "approval" if content.get("decision") == "approve":
            return partial(place.approve, call.call_id, note=note, **options)
        case "accept", "approval" if content.get("decision") == "deny":
            return partial(place.deny, call.call_id, note, **options)
    raise Refused(
        f"The answer to the question about call {call.call_id} does not fit.",
        cure="Write an answer." if call.needs == "answer" else "Write the decision: approve or deny.",
    )


async def _do_nothing() -> None:
    return
