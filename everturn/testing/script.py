"""What a scripted model says: the replies, and which of them answers a request."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
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


class Picker:
    """Finds the reply to a request.

    A list is indexed by the number of assistant messages in the request, not by arrival: a durable engine may ask
    the same thing twice, and many conversations may share one script. What is no reply (fail, cut, garbage) comes
    before the next reply at its position: once each per identical request, and then that reply for good. At the
    end of a list the last of them repeats for ever.
    """

    def __init__(self, script: Script, *, order: Order = "position") -> None:
        self._ask: Callable[..., Reply | Awaitable[Reply]] | None = None
        self._steps: list[Reply] = []
        if callable(script):
            self._ask = script
            self._takes_body = _takes_two(script)
        else:
            self._steps = list(script)
        self._order = order
        self._positions = _by_position(self._steps)
        self._arrivals: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def pick(self, body: dict[str, Any]) -> Reply:
        """The reply to a request's body; the script's end, or its exception, is a `fail(500)`."""
        messages: Messages = body["messages"]
        if self._ask is None:
            return self._next_reply(messages)
        try:
            reply = self._ask(messages, body) if self._takes_body else self._ask(messages)
            return asyncio.run(_await_reply(reply)) if inspect.isawaitable(reply) else reply
        except Exception as error:  # noqa: BLE001 - whatever the script raises, its user has to see
            return script_error(f"the script raised {type(error).__name__}: {error}", code="script_failed")

    def _next_reply(self, messages: Messages) -> Reply:
        if self._order == "arrival":
            index = self._count_arrival(b"")
            if index >= len(self._steps):
                return _script_ended(len(self._steps), index)
            return self._steps[index]
        position = turn_of(messages)
        if position >= len(self._positions):
            return _script_ended(len(self._positions), position)
        choices = self._positions[position]
        if len(choices) == 1:
            return choices[0]
        seen = self._count_arrival(blake2b(to_json(messages), digest_size=16).digest())
        return choices[min(seen, len(choices) - 1)]

    def _count_arrival(self, key: bytes) -> int:
        with self._lock:
            self._arrivals[key] += 1
            return self._arrivals[key] - 1


def turn_of(messages: Messages) -> int:
    """How many replies the conversation has so far."""
    return sum(message.get("role") == "assistant" for message in messages)


def contents_of(reply: Whole) -> list[Say | Call]:
    """The texts and calls of a reply."""
    items = [reply] if isinstance(reply, str | Say | Call) else reply
    for item in items:
        if not isinstance(item, str | Say | Call):
            raise TypeError(f"{item!r} is not a text, say(...) or call(...)")
    return [Say(item) if isinstance(item, str) else item for item in items]


def _by_position(steps: Sequence[Reply]) -> list[list[Reply]]:
    positions: list[list[Reply]] = []
    hitches: list[Reply] = []
    for step in steps:
        hitches.append(step)
        if not isinstance(step, Cut | Fail | Garbage):
            positions.append(hitches)
            hitches = []
    if hitches:
        positions.append(hitches)
    return positions


def script_error(message: str, *, code: str) -> Fail:
    """The answer if the script itself has an error."""
    # Asking again can't help: the header keeps a test from waiting through its patience.
    return fail(500, f"scripted model: {message}", code=code, headers={"x-should-retry": "false"})


def _script_ended(replies: int, index: int) -> Fail:
    return script_error(
        f"the script has ended: it holds {replies} replies, and this request asks for number {index + 1}",
        code="script_ended",
    )


def _takes_two(function: Callable[..., Any]) -> bool:
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    positional = sum(
        kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD} for kind in kinds
    )
    return positional >= 2 or inspect.Parameter.VAR_POSITIONAL in kinds


async def _await_reply(reply: Awaitable[Reply]) -> Reply:
    return await reply
