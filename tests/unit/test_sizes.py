"""What is sent fits what Temporal takes, whatever it is made of."""

from __future__ import annotations

import pytest

from everturn.sizes import MAX_ID_BYTES, child_id, id_problem


def test_a_childs_id_says_who_asked_and_for_which_call() -> None:
    assert child_id("order-81", "call_1") == "order-81.call_1"


@pytest.mark.parametrize("parent", ["x" * 995, "x" * 1000, "é" * 500, "🔥" * 250])
def test_a_childs_id_is_never_longer_than_temporal_takes(parent: str) -> None:
    one, other = child_id(parent, "c" * 128), child_id(parent, "c" * 127 + "d")
    assert one != other
    assert one[:100] == parent[:100]
    assert max(len(one.encode()), len(other.encode())) <= MAX_ID_BYTES
    # A child may ask in its turn.
    assert len(child_id(one, "c1").encode()) <= MAX_ID_BYTES
    assert child_id(one, "c1") != child_id(one, "c2")


def test_an_id_that_temporal_would_not_take_is_refused_with_its_size() -> None:
    assert id_problem("é" * 501) == "The id has 1,002 bytes; the limit is 1,000."
    assert id_problem("")
    assert not id_problem("é" * 500)
