"""What a model says, as the heartbeats of its turn carry it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from everturn.heartbeats import heartbeat
from everturn.heartbeats.details import SeenReply, StreamedText, chars_of, last_bytes
from everturn.heartbeats.heartbeat import Heartbeat
from everturn.live.heartbeat_text import HeartbeatText
from everturn.providers import Delta
from everturn.sizes import MAX_STREAMED_BYTES, RECENT_BYTES, size_of


def speaking(loop: asyncio.AbstractEventLoop, *, every: float | None = None, **bounds: int) -> HeartbeatText:
    return HeartbeatText(Heartbeat(b"token", loop), attempt=1, every=every, **bounds)


@pytest.fixture
async def heartbeat_text() -> HeartbeatText:
    return speaking(asyncio.get_running_loop())


async def test_pieces_of_one_kind_are_one_piece_and_their_order_stays(heartbeat_text: HeartbeatText) -> None:
    for kind, text in (("thinking", "a"), ("thinking", "b"), ("text", "c"), ("text", "d"), ("thinking", "e")):
        heartbeat_text.take_delta(Delta(kind, text))  # type: ignore[arg-type]
    expected = (("thinking", "ab"), ("text", "cd"), ("thinking", "e"))
    assert heartbeat_text.next_streamed() == StreamedText(every=heartbeat.INTERVAL_SECONDS, pieces=expected)


async def test_who_has_said_nothing_beats_as_ever(heartbeat_text: HeartbeatText) -> None:
    assert heartbeat_text.next_streamed() is None
    assert heartbeat_text._beat.details == ()


async def test_a_beat_is_bounded_and_says_what_came_before_it() -> None:
    heartbeat_text = speaking(asyncio.get_running_loop(), recent_bytes=20, max_bytes=44)
    for text in ("one two ", "three four "):
        heartbeat_text.take_delta(Delta("thinking", "?"))
        heartbeat_text.take_delta(Delta("text", text))
    whole = heartbeat_text.next_streamed()
    assert whole is not None
    assert (whole.at, whole.pieces) == (9, (("thinking", "?"), ("text", "three four ")))
    recent = heartbeat_text.next_streamed()
    assert recent is not None
    assert (recent.at, recent.pieces) == (14, (("text", "e four "),))
    assert heartbeat_text._pieces == list(whole.pieces), "what no beat can hold any more is forgotten"


@pytest.mark.parametrize("letter", ["x", "\x00", "語", "🔥", '"'])
async def test_a_beat_is_measured_in_bytes_as_written(letter: str) -> None:
    heartbeat_text, chars = speaking(asyncio.get_running_loop()), 0
    for number in range(100):
        heartbeat_text.take_delta(Delta("text", letter * (number * 20)))
        heartbeat_text.take_delta(Delta("thinking", "why " + letter))
        chars += number * 20 + 5
    whole, recent = heartbeat_text.next_streamed(), heartbeat_text.next_streamed()
    assert whole is not None
    assert recent is not None
    for beat, most in ((whole, MAX_STREAMED_BYTES), (recent, RECENT_BYTES)):
        assert most - 50 < size_of(beat.pieces) <= most
        assert beat.at + chars_of(beat.pieces) == chars
    seen = SeenReply.from_streamed(whole.model_copy(update={"turn": 1}))
    assert seen is not None
    assert seen.text.startswith("[Cut: what came before these ")


@given(
    st.lists(st.tuples(st.sampled_from(["text", "thinking"]), st.text("x\x00語🔥", max_size=300)), max_size=9),
    st.integers(0, 3_000),
)
def test_the_end_of_what_was_said_is_as_long_as_fits(pieces: list[Any], room: int) -> None:
    at, kept = last_bytes(pieces, room, 7)
    assert not kept or size_of(kept) <= room
    whole, end = ("".join(text for _, text in texts) for texts in (pieces, kept))
    assert whole.endswith(end)
    assert at == 7 + len(whole) - len(end)
    if size_of(pieces) <= room:
        assert end == whole


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
    assert StreamedText(every=1, at=3, pieces=(("text", "abc"), ("thinking", "de"))).after(position) == rest


@pytest.mark.parametrize("every", [0.1, None], ids=["followed", "not"])
async def test_the_first_words_are_beaten_out_at_once_and_the_next_at_the_pace(every: float | None) -> None:
    env, heartbeats = ActivityEnvironment(), list[tuple[float, Any]]()

    async def turn() -> None:
        loop = asyncio.get_running_loop()
        env.on_heartbeat = lambda *details: heartbeats.append((loop.time(), details[1].pieces[0][1]))
        own = Heartbeat(b"token", loop)
        own.start()
        spoken = HeartbeatText(own, attempt=1, every=every)
        until = loop.time() + 0.28
        while loop.time() < until:
            spoken.take_delta(Delta("text", "x"))
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
