"""A worker's memory of prefixes, against a model that remembers everything."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from everturn.activities.prefix_cache import Prefix, PrefixCache, digest_of
from everturn.records import Image, Message, Opaque, Text, ToolCall, ToolResult

MESSAGES = st.lists(st.text("ab", max_size=3).map(Message.user), min_size=1, max_size=3).map(tuple)


def test_what_was_remembered_is_found_by_its_digest() -> None:
    prefixes = PrefixCache()
    hello = (Message.user("hello"),)
    digest = prefixes.remember("", (), hello)
    assert prefixes.find(digest, 1) == list(hello)
    assert digest == digest_of(hello)
    assert prefixes.find("another", 1) is None
    assert prefixes.find("", 0) == ()


def test_a_retried_turn_starts_from_the_prefix_before_it() -> None:
    prefixes = PrefixCache()
    start = prefixes.remember("", (), (Message.user("hello"),))
    found = prefixes.find(start, 1)
    assert found is not None
    prefixes.remember(start, found, (Message.user("first try"),))
    second = prefixes.remember(start, found, (Message.user("second try"),))
    assert prefixes.find(start, 1) == [Message.user("hello")]
    assert prefixes.find(second, 2) == [Message.user("hello"), Message.user("second try")]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), MESSAGES), max_size=40), st.integers(0, 4000))
def test_whatever_is_found_is_right_and_the_bound_holds(
    steps: list[tuple[int, tuple[Message, ...]]], bound: int
) -> None:
    """Branches grow from any earlier state, as retries, resets and forks do."""
    prefixes, known = PrefixCache(max_bytes=bound), [("", ())]
    for which, new in steps:
        digest, messages = known[which % len(known)]
        found = prefixes.find(digest, len(messages))
        assert found is None or tuple(found) == messages
        longer = messages + new
        assert prefixes.remember(digest, messages, new) == digest_of(longer)
        known.append((digest_of(longer), longer))
        assert prefixes.bytes <= bound or prefixes.bytes == 0
    for digest, messages in known:
        found = prefixes.find(digest, len(messages))
        assert found is None or tuple(found) == messages


def test_conversations_that_are_alike_are_remembered_once() -> None:
    prefixes, digest, messages = PrefixCache(), "", ()
    for word in "abc":
        new = (Message.user(word),)
        digest, before = prefixes.remember(digest, messages, new), digest
        alone = prefixes.bytes
        for _ in range(50):
            assert prefixes.remember(before, messages, new) == digest
        assert prefixes.bytes == alone
        messages += new
    assert prefixes.find(digest, 3) == list(messages)


def test_the_branch_that_was_not_asked_for_longest_goes_first_and_leaves_what_is_shared() -> None:
    prefixes = PrefixCache()
    start = prefixes.remember("", (), (Message.user("hello"),))
    old = prefixes.remember(start, (Message.user("hello"),), (Message.user("old"),))
    new = prefixes.remember(start, (Message.user("hello"),), (Message.user("new"),))
    assert prefixes.find(old, 2)
    prefixes.max_bytes = prefixes.bytes
    newest = prefixes.remember(old, [Message.user("hello"), Message.user("old")], (Message.user("!"),))
    assert prefixes.find(new, 2) is None
    found = prefixes.find(newest, 3)
    assert found is not None
    assert [message.text for message in found] == ["hello", "old", "!"]


def test_a_result_is_known_only_as_it_is() -> None:
    prefixes = PrefixCache()
    first, second = (ToolResult(call_id="a", content=(Text(text=f"by try {number}"),)) for number in (1, 2))
    prefixes.remember_result("run", first)
    assert prefixes.has_result("run", first)
    assert not prefixes.has_result("run", second)
    assert not prefixes.has_result("another run", first)


def test_results_that_are_in_a_prefix_are_not_kept_twice() -> None:
    prefixes = PrefixCache()
    for _ in range(2):
        prefixes.remember_result("run", ToolResult(call_id="a", content=(Text(text="x" * 50),)))
    prefixes.forget_results("run", ["a", "b"])
    assert prefixes.bytes == 0
    assert prefixes.find_results("run", ("a",)) is None


def test_results_are_found_for_their_run_only_and_all_or_none() -> None:
    prefixes = PrefixCache(max_bytes=10_000)
    result = ToolResult(call_id="a", content=(Text(text="x"),))
    prefixes.remember_result("run", result)
    assert prefixes.find_results("run", ("a",)) == {"a": result}
    assert prefixes.find_results("other run", ("a",)) is None
    assert prefixes.find_results("run", ("a", "b")) is None
    assert prefixes.find_results("run", ()) == {}
    for n in range(100):
        prefixes.remember_result("run", ToolResult(call_id=str(n), content=(Text(text="x" * 50),)))
    assert prefixes.bytes <= 10_000
    prefixes.clear()
    assert prefixes.bytes == 0


def test_a_prefix_that_came_without_a_digest_is_not_taken_for_another() -> None:
    prefixes = PrefixCache()
    mine, others = (Message.user("mine"),), (Message.user("another's"),)
    assert [*prefixes.remember_whole("", mine)] == [*mine]
    assert prefixes.find("", 1) is None
    assert [*prefixes.remember_whole("", others)] == [*others]


def test_a_turn_without_messages_adds_nothing() -> None:
    prefixes, said = PrefixCache(max_bytes=20_000), (Message.user("Go"),)
    assert prefixes.remember("", (), ()) == ""
    assert prefixes.bytes == 0
    digest = digest_of(said)
    assert [prefixes.remember(digest, said, ()) for _ in range(2)] == [digest, digest]
    for number in range(100):
        prefixes.remember("", (), (Message.user(f"{number}" * 300),))  # pushes it out
    assert prefixes.find(digest, 1) is None
    assert 0 < prefixes.bytes <= prefixes.max_bytes


@pytest.mark.parametrize("value", [1.5, 10**30, -0.0, 'ä\u2028\x1f\\ "😀' * 200, ["x" * 600, {"b": "y" * 600}], None])
def test_messages_are_read_as_they_were_remembered(value: JsonValue) -> None:
    text, more = Text(text="long " * 200, extra={"a": value}), {"value": value}
    call = ToolCall(call_id="1", name="t", arguments=more, extra=more)
    said = [
        Message(role="user", parts=(text, Image(data="QUJD" * 300, media_type="image/png", extra=more))),
        Message(role="assistant", parts=(Opaque(data=value, extra=more), call), provider="openai", cut_short=True),
        Message(role="tool", parts=(ToolResult(call_id="1", content=(text, text), is_error=True, extra=more),)),
        Message(role="user", parts=()),
    ]
    prefix = PrefixCache().remember_whole("", said)
    assert isinstance(prefix, Prefix)
    for read in ([*prefix], prefix[:], [prefix[place] for place in range(len(said))], [*reversed(prefix)][::-1]):
        assert [message.model_dump_json() for message in read] == [message.model_dump_json() for message in said]
    assert prefix[1:3] == said[1:3]
    assert prefix[-1] == said[-1]
    with pytest.raises(IndexError):
        prefix[-5]


@pytest.mark.parametrize("text", ["x" * 10_000, "x" * 10_000 + "😀", "x"], ids=["long", "with an emoji", "short"])
def test_what_is_remembered_is_counted_as_it_lies_in_memory(text: str) -> None:
    prefixes, digest = PrefixCache(), ""
    digest = prefixes.remember(digest, (), (Message.user("hello"),))  # what is made once
    tracemalloc.start()
    for number in range(1, 60):
        result = Message(role="tool", parts=(ToolResult(call_id=f"{number}", content=(Text(text=text),)),))
        digest = prefixes.remember(digest, prefixes.find(digest, number) or (), (result,))
    taken, counted = tracemalloc.get_traced_memory()[0], prefixes.bytes
    tracemalloc.stop()
    assert 0.7 * taken < counted < 1.5 * taken


def conversation(prefixes: PrefixCache, *, turns: int = 12, run_id: str = "run") -> int:
    """One whose every turn calls a tool with a large result; how many of its turns find all that they need."""
    hits, digest, messages = 0, "", [Message.user(run_id)]
    digest = prefixes.remember("", (), messages)
    for turn in range(turns):
        result = ToolResult(call_id=f"call {turn}", content=(Text(text="x" * 3_000),))
        prefixes.remember_result(run_id, result)
        found, results = prefixes.find(digest, len(messages)), prefixes.find_results(run_id, [result.call_id])
        hits += found is not None and results is not None
        new = (Message(role="tool", parts=(result,)), Message.user("next"))
        digest = prefixes.remember(digest, messages, new)
        prefixes.forget_results(run_id, [result.call_id])
        messages += new
    return hits


def test_a_full_memory_finds_as_much_as_an_empty_one() -> None:
    """What other conversations left fills it, as on any worker after some days."""
    seasoned = PrefixCache(max_bytes=200_000)
    for number in range(200):
        conversation(seasoned, turns=2, run_id=f"earlier {number}")
    assert seasoned.bytes > 0.9 * seasoned.max_bytes
    assert conversation(seasoned) == conversation(PrefixCache(max_bytes=200_000)) == 12


def test_results_that_nobody_came_for_go_before_what_is_in_use() -> None:
    prefixes = PrefixCache(max_bytes=100_000)
    for number in range(100):
        prefixes.remember_result("gone", ToolResult(call_id=str(number), content=(Text(text="x" * 3_000),)))
    assert conversation(prefixes) == 12


def test_what_was_worked_out_goes_along_whatever_is_kept_first_and_however_many_messages_a_turn_has() -> None:
    prefixes = PrefixCache()
    digest, prefix, length = "", prefixes.find("", 0), 0
    for turn in range(30):
        delta = [Message.user(f"{turn}, {number}") for number in range(30)]
        assert prefix is not None
        digest, length = prefixes.remember(digest, prefix, delta), length + len(delta)
        prefix = prefixes.find(digest, length)
        assert isinstance(prefix, Prefix)
        prefix.keep("of the newest turn", turn, 10)
        if turn == 0:
            prefix.keep("not asked for any more", 1, 10)
        assert prefix.kept("encoded") == (turn - 1 if turn else None)
        prefix.keep("encoded", turn, 10)
    assert isinstance(prefix, Prefix)
    assert prefix.kept("not asked for any more") is None


def test_what_is_larger_than_the_memory_pushes_nothing_out() -> None:
    prefixes = PrefixCache(max_bytes=20_000)
    small = prefixes.remember("", (), (Message.user("small"),))
    large = Message.user("x" * 30_000)
    prefixes.remember(small, (Message.user("small"),), (large,))
    prefixes.remember("", (), (large,))
    prefixes.remember_result("run", ToolResult(call_id="a", content=(Text(text="x" * 30_000),)))
    assert prefixes.find(small, 1) == [Message.user("small")]
