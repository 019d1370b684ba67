"""What is too large is cut to what fits, as it is written; and what fits is left alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everturn
from everturn.records import (
    Decision,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from everturn.size_estimates import fits, how_many_fit, is_larger
from everturn.sizes import LEAST_PART_BYTES, size_of
from everturn.text.shortening import clipped, shortened, shortened_line
from everturn.truncation import cut_messages, cut_part, without_content

# Each of these is one character: of one byte as JSON, of two, three, four and six.
WORDS = st.builds(
    lambda word, times: word * times, st.sampled_from(["x", '"', "語", "🔥", "\x00", "x\x00"]), st.integers(0, 2_000)
)
EXTRAS = st.one_of(st.just({}), st.builds(lambda text: {"signature": text}, WORDS))
IDS = st.integers(0, 10**6).map(lambda number: f"call_{number}")
DECISIONS = st.none() | st.builds(Decision, verdict=st.just("answer"), by=WORDS, note=WORDS, arguments=st.none())
TEXTS = st.builds(Text, text=WORDS, extra=EXTRAS)
FILES: st.SearchStrategy[Any] = st.builds(Document, url=WORDS, name=WORDS) | st.builds(
    Image, data=WORDS, media_type=st.sampled_from(["image/png", "x" * 3_000])
)
RESULTS = st.builds(
    ToolResult,
    call_id=IDS,
    name=WORDS,
    content=st.lists(TEXTS | FILES, max_size=4).map(tuple),
    decision=DECISIONS,
    extra=EXTRAS,
)
PARTS: st.SearchStrategy[Any] = (
    TEXTS
    | FILES
    | RESULTS
    | st.builds(Thinking, text=WORDS)
    | st.builds(ToolCall, call_id=IDS, name=st.just("save"), arguments=EXTRAS)
    | st.builds(Opaque, data=EXTRAS)
    | st.builds(ServerToolUse, name=WORDS, data=EXTRAS)
)
MESSAGES = st.lists(
    st.builds(
        lambda role, parts: Message(role=role, parts=tuple(parts)),
        st.sampled_from(["user", "tool"]),
        st.lists(PARTS, max_size=6),
    ),
    max_size=5,
)


@settings(max_examples=200)
@given(MESSAGES, st.integers(15_000, 100_000))
def test_messages_that_are_cut_fit_and_each_is_still_there(messages: list[Message], room: int) -> None:
    cut = cut_messages(messages, room)
    assert size_of(cut) <= room
    assert [(message.role, len(message.parts)) for message in cut] == [
        (message.role, len(message.parts)) for message in messages
    ]
    assert [result.call_id for message in cut for result in message.tool_results] == [
        result.call_id for message in messages for result in message.tool_results
    ]
    if size_of(messages) <= room:
        assert list(cut) == messages


@settings(max_examples=200)
@given(PARTS, st.integers(LEAST_PART_BYTES, 20_000))
def test_a_part_that_is_cut_fits(part: Part, room: int) -> None:
    made = cut_part(part, room)
    assert size_of(made) <= room
    if size_of(part) <= room:
        assert made == part


@given(MESSAGES, st.integers(2, 30_000))
def test_the_quick_measure_says_what_the_exact_one_says(messages: list[Message], room: int) -> None:
    assert fits(messages, room) == (size_of(messages) <= room)
    assert [is_larger(part, room) for message in messages for part in message.parts] == [
        size_of(part) > room for message in messages for part in message.parts
    ]
    count = how_many_fit(messages, room)
    assert count == 0 or size_of(messages[:count]) <= room
    assert count == len(messages) or size_of(messages[: count + 1]) > room


def test_what_comes_first_stays_whole() -> None:
    messages = [Message.user("first " * 100), Message.user("語" * 10_000), Message.user("last")]
    first, second, last = cut_messages(messages, 5_000)
    assert first == messages[0]
    assert last == messages[2]
    assert second.text.endswith("of 10,000 characters are shown.]")
    assert 4_500 < size_of((first, second, last)) <= 5_000


@pytest.mark.parametrize("letter", ["x", "\x00", "語", '"'])
def test_a_text_is_cut_to_bytes_as_written(letter: str) -> None:
    text = shortened(letter * 1_000, max_bytes=500, notice="Ask for less.")
    assert size_of(text) - 2 <= 500
    assert text.startswith(letter * 40)
    assert text.endswith(" of 1,000 characters are shown. Ask for less.]")
    assert shortened(letter * 80, max_bytes=500) == letter * 80


def test_a_line_for_a_model_says_how_much_of_it_is_shown() -> None:
    assert shortened_line("abcdef", 6) == "abcdef"
    assert shortened_line("x" * 5_000, 3) == "xxx [Cut: 3 of 5,000 characters are shown.]"


@pytest.mark.parametrize(
    ("line", "most", "shown"),
    [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abcde…"), ("ab", 1, "…"), ("ab", 0, "…"), ("ab", -3, "…")],
)
def test_a_line_for_people_ends_in_dots_that_count(line: str, most: int, shown: str) -> None:
    assert clipped(line, most) == shown


def test_no_module_but_shortening_cuts_a_line_by_itself() -> None:
    by_hand = re.compile(r"\[[^\]]*:[^\]]*\](?:\}| \+ f?\")…")
    package = Path(everturn.__file__).parent
    found = {file.name for file in package.rglob("*.py") if by_hand.search(file.read_text())}
    assert found == {"shortening.py"}


def test_a_result_that_is_cut_keeps_who_decided() -> None:
    decision = Decision(verdict="approve", by="ada", at="now", note="n" * 1_000, arguments={"x": "y" * 1_000})
    result = ToolResult(call_id="c1", name="save", content=(Text(text="z" * 5_000),), decision=decision)
    made = cut_part(result, 1_000)
    assert isinstance(made, ToolResult)
    assert (made.name, made.decision) == ("save", Decision(verdict="approve", by="ada", at="now"))
    assert made.text.startswith("z" * 500)


def test_very_many_results_keep_their_ids() -> None:
    results = [
        ToolResult(call_id=f"{number:0128}", name="n" * 256, content=(Text(text="No."),)) for number in range(99)
    ]
    (message,) = cut_messages([Message(role="tool", parts=tuple(results))], 30_000)
    assert [result.call_id for result in message.tool_results] == [result.call_id for result in results]
    assert size_of([message]) <= 30_000


def test_a_result_without_its_content_is_its_id_and_whether_it_failed() -> None:
    results = (ToolResult(call_id="c1", name="a", content=(Text(text="x"),), is_error=True), ToolResult(call_id="c2"))
    (message,) = without_content([Message(role="tool", parts=results)], ["c1"])
    assert message.parts == (ToolResult(call_id="c1", is_error=True), results[1])
