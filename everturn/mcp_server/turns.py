"""Asks an agent and waits a while: for its answer, for a person, or until the caller should not wait any longer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.errors import Ended, Refused, Unreachable
from everturn.payloads import Status, WaitingCall
from everturn.sizes import MAX_REASON_BYTES, shortened
from everturn.text.utf8 import mend

FIRST_LOOK_SECONDS = 0.1
LONGEST_LOOK_SECONDS = 2.0

SHOWN_CHARS = 1_000
"""Of the arguments of a call that waits."""

_SEPARATOR = " "
"""Separates a conversation's id from a call's in a question's name; a call's id does not contain it."""


@dataclass(frozen=True)
class Reached:
    """How far a conversation has come."""

    conversation_id: str
    status: Status
    text: str | None = None
    """Its final reply."""
    output: Any = None

    @property
    def as_json(self) -> dict[str, Any]:
        status = self.status.as_json()
        facts = {name: status[name] for name in ("state", "turn", "waiting", "cause", "cure", "cost_usd")}
        said = {} if self.text is None else {"text": self.text}
        made = {} if self.output is None else {"output": self.output}
        return {"conversation_id": self.conversation_id, **facts, **said, **made}

    @property
    def in_words(self) -> str:
        """What a model reads about it."""
        if self.text is not None:
            return self.text
        told = f"Conversation {self.conversation_id} is {self.status.state.replace('_', ' ')}"
        waiting = "; ".join(f"call {one.call_id}: {one.why}" for one in self.status.waiting)
        why = waiting or self.status.cause or ""
        return f"{told}{f' ({why})' if why else ''}. It goes on by itself. Ask for its `status` later."


def id_for(agent: str, key: str | None) -> str:
    """The conversation's id: the same for the same key."""
    return f"{agent}-{hashlib.sha256(key.encode()).hexdigest()[:16] if key else uuid4().hex[:12]}"


async def begin(client: Client, agent: str, message: str, *, conversation_id: str | None, key: str | None) -> str:
    """Starts a conversation, once for the same id or key; returns its id."""
    name = conversation_id or id_for(agent, key)
    await client.send(agent, message, id=name, message_id=f"start:{key or ''}")
    return name


async def look(conversation: Conversation) -> Reached:
    """How far it has come now."""
    status = await conversation.status()
    if status.state != "done":
        return Reached(conversation.id, status)
    try:
        outcome = await conversation.outcome()
    except Ended as error:
        return Reached(conversation.id, status.model_copy(update={"cause": str(error)}), text=str(error))
    return Reached(conversation.id, status, text=outcome.text or outcome.reason or "", output=outcome.output)


async def settled(conversation: Conversation, *, seconds: float, say: Any = None) -> Reached:
    """How far it has come once it is done, waits for a person or is stalled; or when the time is up.

    `say`: called for each turn, such as to report progress to the caller."""
    until, delay, turn = time.monotonic() + seconds, FIRST_LOOK_SECONDS, 0
    while True:
        try:
            reached = await look(conversation)
        except Unreachable as error:  # no worker to ask: it goes on once there is one
            reached = Reached(conversation.id, Status(state="running", cause=error.message))
        if reached.status.state != "running" or time.monotonic() >= until:
            return reached
        if say and reached.status.turn > turn:
            turn = reached.status.turn
            await say(turn, None, f"turn {turn} of {conversation.id}")
        await asyncio.sleep(min(delay, max(0.0, until - time.monotonic())))
        delay = min(2 * delay, LONGEST_LOOK_SECONDS)


# ---------------------------------------------------------------- questions, for callers that put them to a person


def question_name(conversation_id: str, one: WaitingCall) -> str:
    """The name leads the answer to its call: no server remembers anything between the two."""
    return f"{conversation_id}{_SEPARATOR}{one.call_id}"


def question(agent: str, one: WaitingCall) -> tuple[str, dict[str, Any]]:
    """The question to a person about a waiting call, and the form for the answer."""
    written = json.dumps(one.arguments, ensure_ascii=False)
    shown = shortened(mend(written), max_bytes=MAX_REASON_BYTES, max_chars=SHOWN_CHARS)
    if one.needs == "answer":
        fields: dict[str, Any] = {"answer": {"type": "string"}}
        return f"{agent} asks: {one.why}", {"type": "object", "properties": fields, "required": ["answer"]}
    fields = {
        "decision": {"type": "string", "enum": ["approve", "deny"]},
        "note": {"type": "string", "description": "why, for the model"},
    }
    text = f"{agent}: {one.why}: {one.tool}({shown})"
    return text, {"type": "object", "properties": fields, "required": ["decision"]}


async def take_answer(client: Client, name: str, action: str, content: dict[str, Any]) -> None:
    """Carries out a person's answer. If somebody else has decided meanwhile, that decision stays."""
    conversation_id, _, call_id = name.rpartition(_SEPARATOR)
    conversation = client.conversation(conversation_id)
    note = str(content.get("note") or "") or None
    try:
        if action != "accept":
            await conversation.deny(call_id, "The caller declined to decide.")
        elif "answer" in content:
            await conversation.answer(call_id, content["answer"])
        elif content.get("decision") == "approve":
            await conversation.approve(call_id, note=note)
        else:
            await conversation.deny(call_id, note)
    except (Refused, Ended):
        return
