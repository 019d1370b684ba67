"""Ids and keywords as Temporal takes them: what is too long is cut, or a digest of it is in its place."""

from __future__ import annotations

import json
from hashlib import blake2b

from everturn import names
from everturn.sizes import MAX_ID_BYTES, MAX_KEYWORD_BYTES, MAX_KEYWORD_CHARS, MAX_KNOWN_ID_BYTES, size_of


def known_id(message_id: str) -> str:
    """A message's id as it is remembered, so that the same message is taken once."""
    written = message_id.encode("utf-8", "replace")
    if size_of(message_id) <= MAX_KNOWN_ID_BYTES:
        return message_id
    return f"blake2b:{blake2b(written, digest_size=16).hexdigest()}"


def keyword(text: str) -> str:
    """The text, cut to what Temporal takes in a search attribute."""
    text = text[:MAX_KEYWORD_CHARS]
    while (size := len(json.dumps(text))) > MAX_KEYWORD_BYTES:
        text = text[: len(text) * MAX_KEYWORD_BYTES // size]
    return text


def child_id(parent: str, call_id: str) -> str:
    """The id of the conversation that answers a call: `parent.call_id`. If that is too long, its end is replaced by a
    digest."""
    whole = f"{parent}.{call_id}"
    written = whole.encode("utf-8", "replace")
    if len(written) <= MAX_ID_BYTES:
        return whole
    digest = blake2b(written, digest_size=12).hexdigest()
    return f"{written[: MAX_ID_BYTES - len(digest) - 1].decode('utf-8', 'ignore')}.{digest}"


def possible_parents(conversation_id: str) -> list[str]:
    """The ids of conversations that might give this id to a conversation that answers one of their calls."""
    pieces = conversation_id.split(".")
    return [parent for count in range(1, len(pieces)) if (parent := ".".join(pieces[:count]))]


def webhook_workflow_id(conversation_id: str, message_id: str) -> str:
    """The id of a message's delivery."""
    return f"{webhooks_prefix(conversation_id)}{message_id}"


def webhooks_prefix(conversation_id: str) -> str:
    """How the ids of the deliveries begin that a conversation began. What follows has no colon."""
    written = conversation_id.encode("utf-8", "replace")
    if len(written) > MAX_ID_BYTES - 200:
        conversation_id = f"blake2b:{blake2b(written, digest_size=16).hexdigest()}"
    return f"{names.WEBHOOK_OF}{conversation_id}:"


def id_problem(conversation_id: str, *, ours: str = "") -> str:
    """Why this can't be the id of a conversation that is started; empty if it can. `ours`: a reserved beginning that it
    may have."""
    reserved = next((prefix for prefix in names.RESERVED_IDS if conversation_id.startswith(prefix)), "")
    if reserved != ours:
        return f"The id {conversation_id!r:.200} begins with {reserved!r}: everturn's own workflows have such ids."
    if conversation_id.startswith("-"):
        return f"The id {conversation_id!r:.200} begins with '-': commands would take it for an option."
    size = len(conversation_id.encode("utf-8", "replace"))
    if not conversation_id:
        return "A conversation's id can't be empty."
    if size > MAX_ID_BYTES:
        return f"The id has {size:,} bytes; the limit is {MAX_ID_BYTES:,}."
    return ""
