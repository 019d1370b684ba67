"""Server-sent events come out whole, however the network cuts them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.errors import InvalidReply
from everturn.http.sse import Event, EventDecoder

STREAM = (
    "\ufeffdata: first\n\n"
    ": a comment\r\n\r\n"
    'event: ping\r\ndata: {"text": "a\u2028b\u0085c\x0b\x0cd – 😊"}\r\n\r\n'
    "id: 7\rdata: one\rdata:two\rretry: 5\rdata\r\r"
    "data:  two spaces\n\n"
    "data: the last"
).encode()
EVENTS = [
    Event("first"),
    Event('{"text": "a\u2028b\u0085c\x0b\x0cd – 😊"}', "ping"),
    Event("one\ntwo\n"),
    Event(" two spaces"),
    Event("the last"),
]


def decode(pieces: list[bytes]) -> list[Event]:
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("place", range(len(STREAM) + 1))
def test_a_cut_at_any_byte_changes_nothing(place: int) -> None:
    assert decode([STREAM[:place], STREAM[place:]]) == EVENTS


def test_one_byte_at_a_time_changes_nothing() -> None:
    assert decode([bytes([byte]) for byte in STREAM]) == EVENTS


@given(
    texts=st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30), max_size=6),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    places=st.lists(st.integers(min_value=0), max_size=8),
)
def test_any_json_survives_any_line_end_and_any_cuts(texts: list[str], newline: str, places: list[int]) -> None:
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    data = "".join(f"data: {line}{newline}{newline}" for line in lines).encode()
    assert [event.data for event in decode(cut(data, places))] == lines


@given(data=st.binary(max_size=60), places=st.lists(st.integers(min_value=0), max_size=4))
def test_no_bytes_crash_it_and_no_cut_shows(data: bytes, places: list[int]) -> None:
    assert decode(cut(data, places)) == decode([data])


def test_an_event_is_out_as_soon_as_its_empty_line_is_there() -> None:
    assert EventDecoder().feed(b"data: x\n\n") == [Event("x")]


def test_an_event_without_data_is_no_event() -> None:
    assert decode([b"event: ping\n\nid: 1\n\ndata: x\n\n"]) == [Event("x")]


def test_an_error_in_a_field_of_its_own_is_an_event() -> None:
    """As llama.cpp's server sends it until 2025-09, and [DONE] after it."""
    stream = b'data: a\n\nerror: {"code":400}\n\ndata: [DONE]\n\n'
    assert decode([stream]) == [Event("a"), Event('{"code":400}', "error"), Event("[DONE]")]


@pytest.mark.parametrize("data", [b"data: " + b"x" * 200, b"data: xxxx\n" * 40], ids=["a line", "many lines"])
def test_an_event_over_the_limit_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidReply, match="more than 100 bytes"):
        EventDecoder(max_event_bytes=100).feed(data)


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    decoder = EventDecoder()
    for _ in range(20_000):
        decoder.feed(b"x" * 100)
    assert decoder.feed(b"\n\n") == []


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b'error: {"code":400}\n\ndata: [DONE]\n\n', [Event('{"code":400}', "error"), "[DONE]"]),
        (b"error: no JSON at all\r\n\r\n", [Event("no JSON at all", "error")]),
        (b'{"error":{"message":"x"}}', [Event('{"error":{"message":"x"}}')]),
        (b'{"error":{"message":"x"}}\ndata: [DONE]\n\n', [Event('{"error":{"message":"x"}}'), "[DONE]"]),
        (b'data: [1,\n{"a": 2}]\n\n', ["[1,"]),
    ],
)
def test_an_error_in_a_field_of_its_own_or_in_none_is_an_event(data: bytes, events: list[Event | str]) -> None:
    expected = [Event(event) if isinstance(event, str) else event for event in events]
    assert decode([data]) == decode([bytes([byte]) for byte in data]) == expected
