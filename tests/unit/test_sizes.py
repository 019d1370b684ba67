"""What is sent fits what Temporal takes, whatever it is made of."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.decisions import Approve
from everturn.errors import Refused
from everturn.ids import child_id, id_problem
from everturn.payloads import MessageIn, Start
from everturn.sizes import MAX_ID_BYTES, check_input, too_deep


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


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"x": 1}
    for number in range(levels - 1):
        value = {"x": value} if number % 2 else {"x": [value]}
    return value


@pytest.mark.parametrize(("value", "deep"), [({}, False), ("x", False), (nested(60), False), (nested(150), True)])
def test_what_could_not_be_read_again_is_too_deep(value: Any, *, deep: bool) -> None:
    assert too_deep(value) is deep


@pytest.mark.parametrize("value", [nested(150), nested(5000), [{"kind": "text", "text": "x", "extra": nested(150)}]])
def test_it_is_refused_before_it_is_sent_and_when_it_comes(value: Any) -> None:
    with pytest.raises(Refused, match="The message is nested more than 100 levels deep"):
        check_input("message", {"parts": value})
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        MessageIn.model_validate({"parts": value})
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        Start.model_validate({"agent": "clerk", "message": value})
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        Approve.model_validate({"call_id": "c1", "arguments": {"x": value}})
