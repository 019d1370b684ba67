"""Starts a conversation from a transcript that another library, store or conversation has made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError

from everturn.carryover import Beginning, CarryOver, PackedTranscript
from everturn.errors import Refused
from everturn.formats.any_format import read_any
from everturn.packed_messages import pack
from everturn.payloads import Start
from everturn.records import Message
from everturn.sizes import MAX_PACKED_AT_START_BYTES
from everturn.vendors.lone_results import find_unanswerable


def read_transcript(transcript: Iterable[Any]) -> tuple[Message, ...]:
    """Raises Refused."""
    try:
        return read_any(transcript)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"The transcript can't be read: {error}.".replace("..", "."),
            cure="Give Messages, or messages as OpenAI Chat, Responses, Anthropic or Gemini write them; "
            "everturn.formats has a reader for each.",
        ) from None


def said_after(start: Start, messages: Sequence[Message]) -> Start:
    """The start of a conversation that has these messages in its carry-over: they are a part of what it begins with."""
    assert start.carry is not None
    began = Beginning.from_message(start.agent, start.as_message(), transcript=messages)
    return start.model_copy(update={"carry": start.carry.model_copy(update={"began": began})})


def begun_with(messages: Sequence[Message]) -> CarryOver | None:
    """The carry-over that starts a conversation after these messages; None if there are none. Raises Refused."""
    if not messages:
        return None
    if any(message.role == "system" for message in messages):
        raise Refused(
            "The transcript has a system message, and a conversation takes its instructions from its Agent.",
            cure="Leave it out, or put its text into Agent(instructions=).",
        )
    if lone := find_unanswerable(messages):
        place, call_id, name = lone
        raise Refused(
            f"The transcript's message {place} has the result of the call {call_id!r:.100}"
            f"{f' of {name}' if name else ''}, but no earlier message has that call.",
            cure="Begin the transcript with the message that has the call, or leave the result out.",
        )
    try:
        packed = pack(messages)
    except PydanticSerializationError as error:  # half of a surrogate pair
        raise Refused(f"The transcript can't be written as UTF-8: {error}.", cure="Give text in UTF-8.") from None
    if len(packed) > MAX_PACKED_AT_START_BYTES:
        raise Refused(
            f"The transcript has {len(packed):,} bytes, compressed; the limit is {MAX_PACKED_AT_START_BYTES:,}.",
            cure="Leave out its oldest messages, or replace its images by links.",
        )
    return CarryOver(earlier=PackedTranscript(data=packed), length=len(messages))
