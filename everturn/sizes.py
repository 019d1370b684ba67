"""What Temporal takes, and how things are made to fit. In bytes as written, unless the name says something else."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

MAX_ID_BYTES = 1_000
"""Of a workflow's id. A child workflow with a longer one would fail its parent's task, again and again."""

MAX_KEYWORD_CHARS = 255
"""Of a search attribute's text: the columns of SQL databases hold so many."""

MAX_KEYWORD_INT = 2**63 - 1

MAX_NAME_CHARS = 500
"""Of a model's or a tenant's name."""


MAX_DEPTH = 100
"""Levels of objects and lists. JSON of 200 levels can't be read, and payloads add some levels of their own."""


def too_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than can cross."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inside = [item for item in level if isinstance(item, dict | list | tuple)]
        if not inside:
            return False
        level = [one for item in inside for one in (item.values() if isinstance(item, dict) else item)]
    return True


def flat(value: Any) -> Any:
    """For a record's validator. Raises ValueError."""
    if too_deep(value):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return value


def child_id(parent: str, call_id: str) -> str:
    """The id of the conversation that answers a call: `parent.call_id`. If that is too long, its end is replaced by a
    digest."""
    whole = f"{parent}.{call_id}"
    written = whole.encode("utf-8", "replace")
    if len(written) <= MAX_ID_BYTES:
        return whole
    digest = blake2b(written, digest_size=12).hexdigest()
    return f"{written[: MAX_ID_BYTES - len(digest) - 1].decode('utf-8', 'ignore')}.{digest}"


def id_problem(conversation_id: str) -> str:
    """Why Temporal does not take this as a conversation's id; empty if it does."""
    size = len(conversation_id.encode("utf-8", "replace"))
    if not conversation_id:
        return "A conversation's id is never empty."
    return f"The id has {size:,} bytes; the limit is {MAX_ID_BYTES:,}." if size > MAX_ID_BYTES else ""
