"""Which reply of a scripted model's answers a request."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any

from pydantic_core import to_json

from everturn.testing.script import Cut, Fail, Garbage, Messages, Order, Reply, Script, script_error


class ReplyPicker:
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
