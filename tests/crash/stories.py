"""What happens in each conversation of the crash test: made from the seed, the same on every run."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic_core import to_json

from everturn.testing import Reply, call, cut, fail, garbage, slow

TOOLS = ["look", "look_async", "note", "note_async", "pay", "pay_async", "sign", "refund", "screen"]
WEIGHTS = [4, 4, 4, 4, 3, 3, 4, 4, 1]
FAULTS: list[tuple[str, Reply]] = [
    ("429", fail(429, "slow down", headers={"retry-after": "0"})),
    ("429 with Retry-After", fail(429, "slow down", headers={"retry-after": "1"})),
    ("500", fail(500)),
    ("503", fail(503, body="<html>upstream is away</html>", headers={"content-type": "text/html"})),
    ("529", fail(529, code="overloaded")),
    ("HTML", garbage(b"<html>maintenance</html>", content_type="text/html")),
    ("garbage", garbage(b"data: {]\n\ndata: \xff\xfe\n\n", content_type="text/event-stream")),
    ("empty", garbage(b"", content_type="text/event-stream")),
    ("cut at once", cut("never said", after=0)),
    ("cut", cut("This sentence will never be finished, for its connection breaks.", after=2)),
    ("401", fail(401, "no such key")),
]
BURST = 6
"""So many messages come without waiting for a reply: some wait in the inbox when a run goes on as a new one."""
BATCHED_SHARE = 0.2
"""Of the stories without a burst."""
LONG_CHARS = 2_500
"""Two of them are more than `short_runs.TURN_CHARS`."""
FAULT_WEIGHTS = [4, 1, 4, 2, 4, 2, 2, 1, 2, 4, 1]


@dataclass(frozen=True)
class Turn:
    reply: Any
    seconds: float = 0.0
    faults: tuple[tuple[str, Reply], ...] = ()


@dataclass(frozen=True)
class Story:
    """Messages of a user, and the turns that answer them, one after the other."""

    number: int
    messages: tuple[str, ...]
    turns: tuple[Turn, ...]
    revived: bool
    """The last message comes when the conversation is over."""
    id: str
    burst: bool = False
    """Its messages are long, and come one after the other without waiting for a reply."""
    is_batched: bool = False
    """Its turns wait for batches, two seconds and more each."""

    @property
    def agent(self) -> str:
        return "batch-teller" if self.is_batched else "teller"

    @classmethod
    def make(cls, seed: int, number: int, prefix: str) -> Story:
        rng = random.Random(f"{seed}/{number}")
        messages = rng.choice([1, 1, 2, 3, BURST])
        turns = []
        for message in range(messages):
            turns += [_turn(rng) for _ in range(rng.choice([0, 1, 2, 2, 3, 4]))]
            turns.append(Turn(f"Answer {message} of story {number}.", *_trouble(rng)))
        burst = messages == BURST
        revived = 1 < messages < BURST and rng.random() < 0.3
        texts = tuple(said(number, message, burst=burst) for message in range(messages))
        # Drawn beside the others, which stay as they were for each seed.
        is_batched = not burst and random.Random(f"{seed}/{number}/batched").random() < BATCHED_SHARE
        return cls(number, texts, tuple(turns), revived, f"{prefix}-{number}", burst, is_batched)


def said(story: int, message: int, *, burst: bool = False) -> str:
    return f"story {story} message {message}" + " and more of it" * (LONG_CHARS // 15 if burst else 0)


def _turn(rng: random.Random) -> Turn:
    return Turn([_call(rng) for _ in range(rng.choice([1, 1, 1, 2, 3, 4]))], *_trouble(rng))


def _call(rng: random.Random) -> Any:
    name = rng.choices(TOOLS, WEIGHTS)[0]
    if name == "screen":
        return call(name)
    # Some results are so large that the history holds them once only.
    size = rng.choice([0, 0, 0, 500, 3_000, 20_000])
    return call(name, {"before": _seconds(rng), "after": _seconds(rng), "size": size})


def _seconds(rng: random.Random) -> float:
    return round(rng.choice([0, 0, 0.05, 0.3, 1.0]) * rng.random(), 3)


def _trouble(rng: random.Random) -> tuple[float, tuple[tuple[str, Reply], ...]]:
    faults = tuple(rng.choices(FAULTS, FAULT_WEIGHTS, k=rng.choice([1, 1, 2]) if rng.random() < 0.2 else 0))
    return round(rng.choice([0, 0.1, 0.5, 1.5]) * rng.random(), 3), faults


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that reached the model."""

    at: float
    story: int
    turn: int
    """How many replies the request holds."""
    told: tuple[str, ...]
    """A digest of each of its messages."""
    served: str
    """'reply', or the fault."""


class Author:
    """The scripted model's script: plays each story's faults once, in order, and then its reply. Logs what is asked."""

    def __init__(self, stories: list[Story]) -> None:
        self._stories = stories
        self._lock = threading.Lock()
        self._arrivals: Counter[tuple[int, int]] = Counter()
        self.asked: list[Asked] = []

    def __call__(self, messages: list[dict[str, Any]]) -> Reply:
        first = next(message for message in messages if message["role"] == "user")
        story = self._stories[int(_text(first["content"]).split()[1])]
        position = sum(message["role"] == "assistant" for message in messages)
        if position >= len(story.turns):
            return fail(500, f"story {story.number} has ended", headers={"x-should-retry": "false"})
        turn = story.turns[position]
        told = tuple(blake2b(to_json(message), digest_size=8).hexdigest() for message in messages)
        with self._lock:
            arrival = self._arrivals[story.number, position]
            self._arrivals[story.number, position] += 1
            name, reply = turn.faults[arrival] if arrival < len(turn.faults) else ("reply", turn.reply)
            self.asked.append(Asked(time.time(), story.number, position, told, name))
        if name != "reply" or not turn.seconds:
            return reply
        return slow(reply, seconds=turn.seconds / 2, per_chunk=turn.seconds / 10)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
