"""Messages in little room: JSON, compressed, as text. For what a run hands to the next."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence

from pydantic import TypeAdapter

from everturn.records import Message

_MESSAGES: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...])

MAX_UNPACKED_BYTES = 64 * 1024 * 1024
MAX_OBJECTS = 500_000
"""More than any transcript has, and fewer than a crafted payload could unpack to. A message takes 27 bytes and more
of JSON, and a kilobyte of memory."""


def pack(messages: Sequence[Message]) -> str:
    return b64encode(zlib.compress(_MESSAGES.dump_json(tuple(messages)))).decode()


def unpack(data: str) -> tuple[Message, ...]:
    """The messages again; raises ValueError if `data` is not what `pack` made."""
    try:
        inflate = zlib.decompressobj()
        written = inflate.decompress(b64decode(data, validate=True), MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise ValueError(f"packed messages can't be read: {error}") from None
    if not inflate.eof:
        raise ValueError("packed messages are cut off, or larger than any transcript")
    if written.count(b"{") > MAX_OBJECTS:
        raise ValueError("there are more packed messages than any transcript has")
    return _MESSAGES.validate_json(written)
