"""Values that went through a browser, and JSON as browsers take it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.errors import Refused
from everturn.http.json_response import JsonResponse
from everturn.text.browser_values import is_same_in_browser, survives_browser, with_exact_values
from everturn.text.json_text import json_bytes, json_text

LONG = 2512292042121000001
ROUNDED = 2512292042121000000
"""What JSON.stringify(JSON.parse("2512292042121000001")) gives."""


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({"id": LONG}, {"id": ROUNDED}, True),
        ([{"ids": [LONG, 1]}], [{"ids": [ROUNDED, 1]}], True),
        (1.0, 1, True),
        (-0.0, 0, True),
        (10**400, None, True),  # Infinity, which JSON.stringify writes as null
        (float("nan"), "NaN", True),
        (float("-inf"), "-Infinity", True),
        ("\ud800", "?", True),
        ({"cents": 5}, {"cents": 6}, False),
        ({"sure": True}, {"sure": 1}, False),
        ({"id": LONG}, {"id": str(LONG)}, False),
        ({"id": LONG}, {}, False),
        ([1, 2], [2, 1], False),
        (None, 0, False),
        (LONG, LONG, True),
        (LONG, 2512292042120999936, True),  # the same double with all its digits, as protobuf's JSON of a Struct has it
        (LONG, LONG - 2, False),  # nothing that rounds writes this: a newer browser, or another client, changed it
        ({"id": LONG, "n": LONG}, {"id": LONG + 2, "n": ROUNDED}, False),
        ({"id": LONG, "x": 1.0}, {"id": LONG, "x": 1}, True),
        ([LONG, 10**400], [LONG, 10**400], True),
    ],
)
def test_a_value_is_the_same_if_a_browser_sends_it_back_for_ours(ours: Any, theirs: Any, same: bool) -> None:
    assert is_same_in_browser(ours, theirs) is same


TWINS = [{"id": LONG, "n": 1}, {"id": LONG + 1, "n": 2}]


@pytest.mark.parametrize(
    ("ours", "edited", "exact"),
    [
        ({"id": LONG, "cents": 5}, {"id": ROUNDED, "cents": 6}, {"id": LONG, "cents": 6}),
        ({"id": LONG, "cents": 5}, {"cents": 5}, {"cents": 5}),
        ({"a": {"b": [LONG, "x"]}}, {"a": {"b": [ROUNDED, "y"]}}, {"a": {"b": [LONG, "y"]}}),
        (TWINS, [{"id": ROUNDED, "n": 2}, {"id": ROUNDED, "n": 1}], [TWINS[1], TWINS[0]]),
        (TWINS, [{"id": ROUNDED, "n": 2}], [TWINS[1]]),
        ([LONG, 7], [7], [7]),
        ([LONG], [ROUNDED, 1], [LONG, 1]),
        ({"id": LONG}, {"id": "2512292042121000009"}, {"id": "2512292042121000009"}),
        ({"id": 1}, {"id": LONG}, {"id": LONG}),  # no browser writes this one: a program did
        ({"x": 1.5}, {"x": 1e300}, {"x": 1e300}),
        ({"id": LONG}, {"id": LONG - 2}, {"id": LONG - 2}),  # the same double
        ({"ids": [LONG, 1]}, {"ids": [LONG - 2, 1]}, {"ids": [LONG - 2, 1]}),
        (
            {"a": LONG, "b": LONG, "x": 1},
            {"a": LONG, "b": ROUNDED},
            {"a": LONG, "b": ROUNDED},
        ),  # it keeps all digits
        ({"a": LONG}, {"a": LONG, "b": ROUNDED}, {"a": LONG, "b": ROUNDED}),
    ],
)
def test_an_edit_keeps_the_exact_values_of_what_was_left_as_it_was(ours: Any, edited: Any, exact: Any) -> None:
    assert with_exact_values(ours, edited) == exact


@pytest.mark.parametrize(
    ("ours", "edited"),
    [
        ({"id": 1}, {"id": ROUNDED}),  # typed in the browser: it may have been ...001
        ({}, {"ids": [{"id": -ROUNDED}]}),
        ([LONG, LONG + 1], [ROUNDED]),  # one of the two, but which?
    ],
)
def test_an_edit_is_refused_if_its_number_may_be_another_one(ours: Any, edited: Any) -> None:
    with pytest.raises(Refused, match="Browsers round") as refused:
        with_exact_values(ours, edited)
    assert "as a text" in str(refused.value.cure)


@pytest.mark.parametrize(
    ("value", "survives"),
    [({"id": LONG}, False), ([[2**53]], False), ({"id": 2**53 - 1, "on": True, "x": 1e300, "s": str(LONG)}, True)],
)
def test_a_browser_shows_small_whole_numbers_as_they_are(value: Any, survives: bool) -> None:
    assert survives_browser(value) is survives


def test_json_names_the_numbers_that_it_does_not_have() -> None:
    value = {"a": [float("nan"), (float("inf"), -float("inf"))], "b": "NaN", "c": LONG}
    for text in (json_text(value), json_text(value, indent=2), json_bytes(value, compact=True).decode()):
        read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert read == {"a": ["NaN", ["Infinity", "-Infinity"]], "b": "NaN", "c": LONG}
    assert JsonResponse({"a": float("nan"), "b": "\ud800"}).body == b'{"a":"NaN","b":"?"}'
