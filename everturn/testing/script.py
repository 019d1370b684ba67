"""What a scripted model may say."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Say:
    text: str
    thinking: str = ""
    usage: Mapping[str, Any] | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Garbage:
    data: bytes
    content_type: str = "application/json"


Content = str | Say | Call
Whole = Content | Sequence[Content]
"""A reply that a model can really give: a text, a call, or several of these together."""


@dataclass(frozen=True, slots=True)
class Cut:
    reply: Whole
    after: int
    until: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    reply: Whole
    seconds: float = 0.0
    per_chunk: float = 0.0
    after: int = 0
    until: threading.Event | None = None


Reply = Whole | Cut | Slow | Fail | Garbage
Script = Sequence[Reply] | Callable[..., Reply | Awaitable[Reply]]
Order = Literal["position", "arrival"]


def say(text: str, *, thinking: str = "", usage: Mapping[str, Any] | None = None, finish: str | None = None) -> Say:
    """A text. `usage` is the usage object as the wire has it; `finish` the finish_reason, such as "length"."""
    return Say(text, thinking, usage, finish)


def call(tool: str, arguments: Mapping[str, Any] | str | None = None, *, id: str | None = None) -> Call:  # noqa: A002 - the wire's own word
    """A tool call. If `arguments` is a str, it is sent as it is, valid or not. A call without an id gets one from its
    position."""
    return Call(tool, {} if arguments is None else arguments, id)


def fail(
    status: int,
    message: str = "scripted failure",
    *,
    code: str | None = None,
    body: bytes | str | Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Fail:
    """An HTTP error, with OpenAI's error body unless `body` is another."""
    if body is None:
        body = {"error": {"message": message, "type": "scripted", "param": None, "code": code}}
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = to_json(body)
    return Fail(status, body, dict(headers or {}))


def cut(
    reply: Whole = "This sentence will never be finished.", *, after: int = 1, until: threading.Event | None = None
) -> Cut:
    """A reply whose connection breaks after `after` events of the stream (not streamed: in the middle), and not before
    `until` is set."""
    return Cut(reply, after, until)


def garbage(data: bytes = b"<html>not the protocol</html>", *, content_type: str = "application/json") -> Garbage:
    """A 200 whose body is `data`."""
    return Garbage(data, content_type)


def slow(
    reply: Whole,
    *,
    seconds: float = 0.0,
    per_chunk: float = 0.0,
    after: int = 0,
    until: threading.Event | None = None,
) -> Slow:
    """A reply after `seconds`, and with `per_chunk` seconds before each event of the stream. After `after` events it
    waits until `until` is set."""
    return Slow(reply, seconds, per_chunk, after, until)


def contents_of(reply: Whole) -> list[Say | Call]:
    """The texts and calls of a reply."""
    items = [reply] if isinstance(reply, str | Say | Call) else reply
    for item in items:
        if not isinstance(item, str | Say | Call):
            raise TypeError(f"{item!r} is not a text, say(...) or call(...)")
    return [Say(item) if isinstance(item, str) else item for item in items]


def script_error(message: str, *, code: str) -> Fail:
    """The answer if the script itself has an error."""
    # Asking again can't help: the header keeps a test from waiting through its patience.
    return fail(500, f"scripted model: {message}", code=code, headers={"x-should-retry": "false"})
