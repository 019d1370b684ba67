"""Ids of calls where a provider gives none, or none that can be used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everturn.activities.prefix_cache import PrefixCache, follow_prefix
from everturn.providers.call_ids import call_ids
from everturn.providers.transcript_facts import facts_of
from everturn.records import Message, Text, ToolCall

EARLIER = (Message(role="assistant", parts=(ToolCall(call_id="x", name="a"), ToolCall(call_id="call_1_0", name="b"))),)


def test_without_a_response_id_they_count() -> None:
    assert call_ids(["x", "y", "y", ""], EARLIER, response_id="") == [
        ("call_1_0_2", "x"),
        ("y", None),
        ("call_1_2", None),
        ("call_1_3", None),
    ]


def test_another_response_makes_other_ids_and_the_same_one_the_same() -> None:
    """A conversation that is started anew under an old id must not have the idempotency keys of the one before."""
    one, other = (call_ids(["", "a"], (), response_id=response_id) for response_id in ("r1", "r2"))
    assert one == call_ids(["", "a"], (), response_id="r1")
    assert one[0] != other[0]
    assert one[1] == other[1] == ("a", None)


@given(st.lists(st.sampled_from(["", "x", "y", "call_1_0", "call_1_1", "a b"]), max_size=8), st.text(max_size=3))
def test_each_is_new_in_the_conversation(wanted: list[str], response_id: str) -> None:
    ids = [call_id for call_id, _ in call_ids(wanted, EARLIER, response_id=response_id)]
    assert len({*ids, "x", "call_1_0"}) == len(ids) + 2


def test_an_id_that_a_compacted_transcript_leaves_out_is_not_given_again() -> None:
    ((call_id, provider_id),) = call_ids(["z"], EARLIER, response_id="", hidden={"z"})
    assert (call_id != "z", provider_id) == (True, "z")


def test_an_id_is_free_though_another_conversation_with_the_same_beginning_has_it() -> None:
    prefixes = PrefixCache()
    beginning = (Message.user("Hi"), Message(role="assistant", parts=(Text(text="Hello!"),)))
    digest = prefixes.remember("", (), beginning)
    own = follow_prefix(prefixes.find(digest, 2) or (), (Message.user("Which one?"),))
    assert "call_0" not in facts_of(own).call_ids

    called = Message(role="assistant", parts=(ToolCall(call_id="call_0", name="look", arguments={}),))
    other = prefixes.remember(digest, beginning, (Message.user("Look"), called))
    assert "call_0" in facts_of(follow_prefix(prefixes.find(other, 4) or (), ())).call_ids
    assert call_ids(["call_0"], own, response_id="") == [("call_0", None)]
