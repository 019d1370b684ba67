"""All size limits: what Temporal takes, how much of it each thing that we send may have, and how we measure that.

Sizes are bytes of JSON as written, escapes included, unless a name says otherwise: a control character takes six bytes.
The parts of a payload add up to less than Temporal takes, even if each is as large as it may be
(tests/unit/test_payload_sizes.py); cutting.py makes it so. The SDK would send a payload that is too large again and
again, in silence, and its conversation would stand still.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from everturn.errors import Refused
from everturn.records import Document, Image, Message, Part, Text, ToolResult

# ---------------------------------------------------------------- what Temporal takes

TEMPORAL_PAYLOAD_BYTES = 2 * 1024 * 1024
TEMPORAL_MESSAGE_BYTES = 4 * 1024 * 1024
"""One gRPC message, such as all that a workflow task brings."""

TEMPORAL_BUFFERED_BYTES = 2 * 1024 * 1024
"""Signals that come while a workflow task runs. At the signal that exceeds this, the server begins the task anew."""

TEMPORAL_RUN_BYTES = 50 * 1024 * 1024
"""A run's history: the server terminates a run that has more."""

MAX_PAYLOAD_BYTES = 2_000_000
"""Temporal's 2 MiB, less its metadata and what a codec adds."""

MAX_KEY_ID_CHARS = 40
"""The id of an encryption key: each payload holds it."""

CODEC_BYTES = 160
"""What encryption adds to a payload, at most: a nonce, a tag, the key's id, and names for all of it."""

MARGIN_BYTES = MAX_PAYLOAD_BYTES // 20
"""The part of a payload that is kept for small things: ids, names, counts, reasons."""

# ---------------------------------------------------------------- what people send

MAX_INPUT_BYTES = MAX_PAYLOAD_BYTES // 5
"""One message, decision or answer. A payload has to hold some together: edited arguments come twice in a tool's input,
and a message beside what waited in a conversation that it revives."""

MAX_INPUT_PARTS = 1_000
"""Of one message or answer. Ten thousand small ones take a workflow task more time than Temporal gives it."""

MAX_UNREAD_BYTES = 25_000_000
"""A run whose history has so many takes no long messages until it has answered. Each message is written once more when
the model is shown it."""

LONG_MESSAGE_BYTES = 10_000
"""Shorter messages are sent without that check."""

MAX_INBOX_BYTES = MAX_PAYLOAD_BYTES * 3 // 10
"""The messages that go into one model turn together, or on to the next run."""

MAX_REASON_BYTES = 4_000
"""A person's reason and name. They are written into each call that is cut short for it, and into the outcome."""

MAX_CAUSE_BYTES = 8_000
"""Why a conversation is stalled; the cure; and what is wrong with a reply."""

# ---------------------------------------------------------------- a model turn

MAX_NAMED_BYTES = MAX_PAYLOAD_BYTES * 3 // 20
"""The ids of the calls whose results a delta leaves out. A reply has 2,048 calls at most, with ids of 128 bytes."""

MAX_DELTA_BYTES = MAX_PAYLOAD_BYTES - MAX_NAMED_BYTES - MARGIN_BYTES
"""The messages since the last model turn."""

INLINE_BYTES = 2_048
"""A larger tool result is not written into the history a second time: the delta names it (decision 0003)."""

MAX_BESIDE_REPLY_BYTES = MAX_PAYLOAD_BYTES // 5
"""The plan of a reply's calls, or the output that was read from it: a reply never has both."""

MAX_REPLY_BYTES = MAX_PAYLOAD_BYTES - MAX_BESIDE_REPLY_BYTES - MARGIN_BYTES
"""The model's message."""

MAX_STORED_REPLY_BYTES = 32 * 1024 * 1024
"""The model's message with external storage. The conversation reads it in one workflow task, which has 2 s."""

MAX_DETAILS_BYTES = 64_000
"""What a provider says about a whole reply: a part of the margin."""

MAX_PROMPT_BYTES = 16_000
"""What one turn was asked with, packed, if it was decided at run time: a part of the margin (decision 0026)."""
MAX_PROMPTS_BYTES = 48_000
"""All such prompts in a run's history together."""
MAX_ACTIONS_BYTES = 12_000
"""What hooks did to a turn or a result, as its record says: a part of the margin."""

# ---------------------------------------------------------------- tool calls

MAX_RESULT_BYTES = MAX_PAYLOAD_BYTES - MAX_INPUT_BYTES - MARGIN_BYTES
"""A result's texts, images and documents together. A person's decision comes beside them."""

MAX_EDIT_BYTES = 20_000
"""What the model is told, before a result, of the arguments and the note of the person who approved the call."""

RUN_BYTES = 40_000_000
"""Of a run's 50 MB. The rest is for what people send and the turn that follows."""

MOST_LOCAL, LOCAL_BYTES = 16, 32_000
"""Of what a workflow task brings, this is kept for each of so many calls that run within it: such a result is whole."""

TASK_BYTES = 1_600_000
"""What a workflow task brings, with all that it starts and all that ran within it. The server writes it down together
with the signals that came meanwhile, and terminates a run if that is more than 4 MB."""

# ---------------------------------------------------------------- from run to run

MAX_PACKED_BYTES = 48_000
"""A transcript that packs into this travels with each run; a longer one stays in the histories of the earlier runs.
What travels is written once a run, so this bounds what a run costs beyond its own events."""

MAX_HANDED_BYTES = 32_000
"""Results that no model has seen: what is handed on is written into three events more."""

MAX_OPEN_BYTES = MAX_PAYLOAD_BYTES // 2
"""All that is handed on while calls wait for people. If it is more, they wait in the run that they began in."""

MAX_OPEN_INBOX_BYTES = MAX_OPEN_BYTES * 2 // 5
"""The inbox in that, if messages that came while calls waited have made the run full."""

MAX_UNSEEN_BYTES = MAX_PAYLOAD_BYTES // 5
"""What no model has seen, in the start of a fork or of a conversation that is revived. If it is more, it becomes a part
of the prefix, and costs the next model turn a look into the history."""

MAX_PACKED_AT_START_BYTES = MAX_PAYLOAD_BYTES // 5
"""The transcript in such a start: a new message, the inbox and what no model has seen come beside it."""

MAX_PACKED_ALONE_BYTES = MAX_PAYLOAD_BYTES - MARGIN_BYTES
"""A transcript that is a payload by itself."""

MAX_LAST_TEXT_BYTES = 20_000
"""What the model said last, as it is handed on."""

MAX_KNOWN_ID_BYTES = 64
"""A message's id as it is remembered; of a longer one, a digest is. 1,000 are handed on."""

# ---------------------------------------------------------------- the end, and what others see

MAX_OUTCOME_BYTES = MAX_PAYLOAD_BYTES - MARGIN_BYTES
"""An outcome's text, output and tail together."""

MAX_PAGE_BYTES = 300_000
"""The messages in one answer to the `transcript` query; one that is larger comes alone."""

MAX_ID_BYTES = 1_000
"""Of a workflow's id. A child workflow with a longer one would fail its parent's task, again and again."""

MAX_KEYWORD_CHARS = 255
"""Of a search attribute's text: the columns of SQL databases hold so many."""

MAX_KEYWORD_BYTES = 2_000
"""Of a search attribute's text as the SDK writes it: with six bytes for each letter that is not ASCII, and twelve for a
picture. Temporal takes 2,048, and turns down the whole workflow task that brings more."""

MAX_KEYWORD_INT = 2**63 - 1

MAX_NAME_CHARS = 500
"""Of a model's or a tenant's name."""

MAX_METADATA_BYTES = 4_096
"""What a conversation is started with beside its message: it is in the input of each model turn and each tool call."""

MAX_DEPTH = 100
"""Levels of objects and lists. JSON of 200 levels can't be read, and payloads add some levels of their own."""

# ---------------------------------------------------------------- how it is measured


def size_of(value: Any) -> int:
    """Bytes as JSON: what the value takes in a payload."""
    return len(to_json(value, inf_nan_mode="constants", fallback=str))


def fits(messages: Sequence[Message], room: int) -> bool:
    """Whether the messages fit into so many bytes of JSON. Mostly their number of characters says enough, and they need
    not be written for it."""
    return sum(map(_at_most, messages)) <= room or size_of(messages) <= room


def how_many_fit(messages: Sequence[Message], room: int) -> int:
    """How many messages, from the first on, have no more than so many bytes together."""
    if fits(messages, room):
        return len(messages)
    left = room - len("[")
    for count, message in enumerate(messages):
        left -= size_of(message) + len(",")
        if left < 0:
            return count
    return len(messages)


def larger(part: Part, size: int) -> bool:
    """Whether the part has more than so many bytes; as quickly as `fits`."""
    return _part_at_most(part) > size and (_part_at_least(part) > size or size_of(part) > size)


_ESCAPED_BYTES = 6
"""The most that one character takes: `\\u0000`."""

_RECORD_BYTES = 200
"""What a record itself takes: the names of its fields, and the fields with few values."""


def _at_most(message: Message) -> int:
    beside = _ESCAPED_BYTES * (len(message.author) + len(message.provider))
    return _RECORD_BYTES + beside + sum(map(_part_at_most, message.parts))


def _part_at_most(part: Part) -> int:
    """The most bytes that the part takes: a quick bound for texts, the exact size for anything else."""
    if part.extra:
        return size_of(part)
    match part:
        case Text(text=text):
            return _RECORD_BYTES + _ESCAPED_BYTES * len(text)
        case ToolResult(decision=None, hooks=()):
            names = _ESCAPED_BYTES * (len(part.call_id) + len(part.name))
            return _RECORD_BYTES + names + sum(map(_part_at_most, part.content))
        case _:
            return size_of(part)


def _part_at_least(part: Part) -> int:
    match part:
        case Text(text=text):
            return len(text)
        case Image() | Document():
            return len(part.data or part.url or "")
        case ToolResult(content=content):
            return sum(map(_part_at_least, content))
        case _:
            return 0


def check_input(what: str, value: Any) -> None:
    """Raises Refused for what a conversation would not take for its size, before it is sent."""
    deep = Refused(f"The {what} is nested more than {MAX_DEPTH} levels deep.", cure="Flatten it, or send it as text.")
    if too_deep(value):
        raise deep
    try:
        written = to_json(value, inf_nan_mode="constants", fallback=str)
    except PydanticSerializationError as error:  # half of a surrogate pair, such as bytes of a command line become
        raise Refused(f"The {what} can't be written as UTF-8: {error}.", cure="Send text in UTF-8.") from None
    if written.count(b"{") + written.count(b"[") > MAX_DEPTH and too_deep(json.loads(written)):
        raise deep
    if (size := len(written)) > MAX_INPUT_BYTES:
        raise Refused(
            f"The {what} has {size:,} bytes of JSON; the limit is {MAX_INPUT_BYTES:,}.",
            cure="Put it where a tool can read it, and send its name or a link.",
        )


def too_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than a payload may be."""
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


# ---------------------------------------------------------------- ids


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


def id_problem(conversation_id: str) -> str:
    """Why Temporal does not take this as a conversation's id; empty if it does."""
    size = len(conversation_id.encode("utf-8", "replace"))
    if not conversation_id:
        return "A conversation's id can't be empty."
    return f"The id has {size:,} bytes; the limit is {MAX_ID_BYTES:,}." if size > MAX_ID_BYTES else ""
