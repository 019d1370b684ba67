"""What a model says, as the heartbeats of its turn carry it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from everturn.activities import heartbeat
from everturn.activities.heartbeat import Heartbeat
from everturn.activities.streaming import ReplyStream
from everturn.providers import Delta
from everturn.streamed import Streamed


def speaking(loop: asyncio.AbstractEventLoop, *, every: float | None = None, **bounds: int) -> ReplyStream:
    return ReplyStream(Heartbeat(b"token", loop), attempt=1, every=every, **bounds)


@pytest.fixture
async def said() -> ReplyStream:
    return speaking(asyncio.get_running_loop())


async def test_pieces_of_one_kind_are_one_piece_and_their_order_stays(said: ReplyStream) -> None:
    for kind, text in (("thinking", "a"), ("thinking", "b"), ("text", "c"), ("text", "d"), ("thinking", "e")):
        said.take(Delta(kind, text))  # type: ignore[arg-type]
    expected = (("thinking", "ab"), ("text", "cd"), ("thinking", "e"))
    assert said.streamed() == Streamed(every=heartbeat.INTERVAL_SECONDS, pieces=expected)


async def test_who_has_said_nothing_beats_as_ever(said: ReplyStream) -> None:
    assert said.streamed() is None
    assert said._beat.details == ()


async def test_a_beat_is_bounded_and_says_what_came_before_it() -> None:
    said = speaking(asyncio.get_running_loop(), recent_chars=5, max_chars=12)
    for text in ("one two ", "three four "):
        said.take(Delta("thinking", "?"))
        said.take(Delta("text", text))
    whole = said.streamed()
    assert whole is not None
    assert (whole.at, whole.pieces) == (9, (("thinking", "?"), ("text", "three four ")))
    recent = said.streamed()
    assert recent is not None
    assert (recent.at, recent.pieces) == (16, (("text", "four "),))
    assert said._pieces == list(whole.pieces), "what no beat can hold any more is forgotten"


@pytest.mark.parametrize(
    ("position", "rest"),
    [
        (2, []),
        (3, [("text", "abc"), ("thinking", "de")]),
        (5, [("text", "c"), ("thinking", "de")]),
        (6, [("thinking", "de")]),
        (8, []),
        (99, []),
    ],
)
def test_what_comes_after_a_position(position: int, rest: list[Any]) -> None:
    assert Streamed(every=1, at=3, pieces=(("text", "abc"), ("thinking", "de"))).after(position) == rest


@pytest.mark.parametrize("every", [0.1, None], ids=["followed", "not"])
async def test_the_first_words_are_beaten_out_at_once_and_the_next_at_the_pace(every: float | None) -> None:
    env, heartbeats = ActivityEnvironment(), list[tuple[float, Any]]()

    async def turn() -> None:
        loop = asyncio.get_running_loop()
        env.on_heartbeat = lambda *details: heartbeats.append((loop.time(), details[1].pieces[0][1]))
        own = Heartbeat(b"token", loop)
        own.start()
        spoken = ReplyStream(own, attempt=1, every=every)
        until = loop.time() + 0.28
        while loop.time() < until:
            spoken.take(Delta("text", "x"))
            await asyncio.sleep(0.002)
        own.stop()

    await env.run(turn)
    if every is None:
        assert heartbeats == []
    else:
        assert len(heartbeats) > 1
        assert heartbeats[0][1] == "x"
        gaps = [after - before for (before, _), (after, _) in pairwise(heartbeats)]
        assert all(gap >= 0.095 for gap in gaps)
