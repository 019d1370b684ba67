"""The recorded traffic beside the repository, for the tests that read it: `RECORDINGS=` names another folder of them.

A recording is one exchange: `protocol`, `provider`, `case` and `turn`, `request` (url, body), `response` (status,
headers, and `body` or `sse` or `events`). None of them is part of the repository.
"""

from __future__ import annotations

import bisect
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from everturn import formats
from everturn.http import sse
from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.providers.http import WireProtocol, protocol_by_name
from everturn.records import Message, Reply

READERS = {
    "openai_chat": (formats.from_openai_chat, formats.to_openai_chat, "messages"),
    "openai_responses": (formats.from_openai_responses, formats.to_openai_responses, "input"),
    "anthropic_messages": (formats.from_anthropic, formats.to_anthropic, "messages"),
    "gemini_generate_content": (formats.from_gemini, formats.to_gemini, "contents"),
}
"""By protocol: what reads and writes its messages, and the field of a request that has them."""

HERE = Path(os.environ.get("RECORDINGS") or Path(__file__).parents[3] / "shared" / "recordings")

needs_recordings = pytest.mark.skipif(not HERE.exists(), reason="no recordings here")

Recording = dict[str, Any]

_PROVIDERS = {
    "openai_chat": ("openai-chat", "deepseek groq mistral moonshot openrouter huggingface ollama"),
    "openai_responses": ("openai", "xai"),
    "anthropic_messages": ("anthropic", ""),
    "gemini_generate_content": ("google", ""),
}

READERS = {
    "openai_chat": (formats.from_openai_chat, formats.to_openai_chat, "messages"),
    "openai_responses": (formats.from_openai_responses, formats.to_openai_responses, "input"),
    "anthropic_messages": (formats.from_anthropic, formats.to_anthropic, "messages"),
    "gemini_generate_content": (formats.from_gemini, formats.to_gemini, "contents"),
}
"""By protocol: what reads a conversation as it was sent, what writes it, and where it stands in a request."""


@cache
def everything() -> dict[str, Recording]:
    """All recordings by their names: paths under the folder."""
    return {str(path.relative_to(HERE)): json.loads(path.read_text()) for path in sorted(HERE.rglob("*.json"))}


def recorded(protocol: str) -> dict[str, Recording]:
    return {name: one for name, one in everything().items() if one.get("protocol") == protocol}


def protocol_of(one: Recording) -> WireProtocol:
    return protocol_by_name("gemini" if one["protocol"] == "gemini_generate_content" else one["protocol"])


def model_of(one: Recording) -> Model:
    """Our name for the model that was asked."""
    default, others = _PROVIDERS[one["protocol"]]
    provider = one["provider"] if one["provider"] in others.split() else default
    request = one.get("request") or {}
    named = re.search(r"/models/([^:]+):", request.get("url", ""))
    body = request.get("body")
    model = named[1] if named else body.get("model") if isinstance(body, dict) else None
    return Model(f"{provider}:{model or 'gemini-3-pro-preview'}")


def asked(one: Recording, *messages: Message) -> Request:
    return Request(model=model_of(one), messages=messages or [Message.user("?")], settings=ModelSettings(stream=False))


def stream_of(one: Recording) -> bytes:
    """A recorded stream, as it came; empty where it did not come as one."""
    response = one["response"]
    if "sse" in response:
        return response["sse"].encode()  # type: ignore[no-any-return]
    if "events" not in response:
        return b""
    lines = [(event.get("type", ""), event.get("_raw") or json.dumps(event)) for event in response["events"]]
    chat = b"data: [DONE]\n\n" if one["protocol"] == "openai_chat" else b""
    return (
        "".join(f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n" for name, data in lines).encode()
        + chat
    )


def read(one: Recording, *messages: Message) -> Reply:
    """What we make of a recorded answer. Raises what the protocol raises."""
    protocol, request = protocol_of(one), asked(one, *messages)
    if "body" in one["response"]:
        return protocol.decode(one["response"]["body"], request)
    return assembled(protocol.Assembler, request, stream_of(one))


def assembled(assembler_of: Callable[[Request], Any], request: Request, *pieces: bytes) -> Reply:
    """The reply in a stream that comes in these pieces."""
    assembler = assembler_of(request)
    for event in events_of(*pieces):
        assembler.feed(event)
    reply: Reply = assembler.finish()
    return reply


def events_of(*pieces: bytes) -> Iterator[sse.Event]:
    decoder = sse.EventDecoder()
    for piece in pieces:
        yield from decoder.feed(piece)
    yield from decoder.end()


def check_every_split(data: bytes, assemble: Callable[..., Reply], expected: Reply) -> None:
    """The reply is `expected` however the bytes come.

    An assembler sees whole events only: so wherever the bytes are split, the events must be the same; and all bytes
    one by one give the same reply. An empty line ends whatever was before it, so a split can only matter to the events
    around it: these are read, and not the whole stream each time.
    """
    ends = [0, *(match.end() for match in re.finditer(rb"(?:\r\n){2}|\n{2}|\r{2}", data)), len(data)]
    known: dict[int, list[sse.Event]] = {}
    for place in splits(data):
        after = bisect.bisect_right(ends, place)
        start, end = ends[max(0, after - 2)], ends[min(len(ends) - 1, after + 1)]
        around, cut = data[start:end], place - start
        if after not in known:
            known[after] = [*events_of(around)]
        assert list(events_of(around[:cut], around[cut:])) == known[after], place
    size = 1 + len(data) // 50_000
    assert assemble(data) == expected
    assert assemble(*(data[place : place + size] for place in range(0, len(data), size))) == expected


def splits(data: bytes) -> list[int]:
    """Where to split: at every byte of a short stream; in a long one around ends of events and of lines, and at some
    places (always the same) elsewhere."""
    if len(data) <= 2_000:
        return list(range(len(data)))
    seeded = random.Random(len(data))
    ends = [match.end() for match in re.finditer(rb"\r\n|\n|\r", data)]
    if len(ends) > 120:
        ends = [*ends[:20], *seeded.sample(ends[20:-20], 80), *ends[-20:]]
    near = {place + off for place in ends for off in range(-3, 4)}
    return sorted(place for place in near | {*seeded.sample(range(len(data)), 200)} if 0 <= place < len(data))
