"""JSON values as browsers have them. JavaScript keeps numbers as doubles: of 2512292042121000001 a page shows, and
sends back, 2512292042121000000. So what a page has not changed is never taken from the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from pydantic import JsonValue

from everturn.errors import Refused
from everturn.text.json_text import named_number

MOST_EXACT: Final = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER."""


def is_same_in_browser(ours: JsonValue, theirs: JsonValue) -> bool:
    """Whether a browser that was sent our value sends this one back."""
    return bool(_in_browser(ours) == _in_browser(theirs))


def survives_browser(value: JsonValue) -> bool:
    """Whether a browser shows the value as it is: not with a whole number that it rounds."""
    match value:
        case bool():
            return True
        case int():
            return abs(value) <= MOST_EXACT
        case dict():
            return all(survives_browser(member) for member in value.values())
        case list():
            return all(survives_browser(member) for member in value)
        case _:
            return True


def with_exact_values(ours: JsonValue, edited: JsonValue) -> JsonValue:
    """What a person made of our value in a browser: with our own values for everything that they left as it was.

    Raises Refused if a whole number may not be the one that the person meant.
    """
    if is_same_in_browser(ours, edited):
        return ours
    match ours, edited:
        case dict(), dict():
            return {
                name: with_exact_values(ours[name], value) if name in ours else _typed(value)
                for name, value in edited.items()
            }
        case list(), list():
            return _list_with_exact_values(ours, edited)
        case _:
            return _typed(edited)


def _list_with_exact_values(ours: Sequence[JsonValue], edited: Sequence[JsonValue]) -> list[JsonValue]:
    in_place = len(ours) == len(edited)
    exact: list[JsonValue] = []
    for position, value in enumerate(edited):
        if in_place and is_same_in_browser(ours[position], value):
            exact.append(ours[position])
            continue
        alike = [member for member in ours if is_same_in_browser(member, value)]
        if alike and all(member == alike[0] for member in alike):
            exact.append(alike[0])
        elif alike:
            raise _refused(alike)
        elif in_place:
            exact.append(with_exact_values(ours[position], value))
        else:
            exact.append(_typed(value))
    return exact


def _typed(value: JsonValue) -> JsonValue:
    """A value that the person wrote. Raises Refused if the browser may have rounded it."""
    match value:
        case dict():
            return {name: _typed(member) for name, member in value.items()}
        case list():
            return [_typed(member) for member in value]
        case int() if not isinstance(value, bool) and _may_be_rounded(value):
            raise _refused(value)
        case _:
            return value


def _may_be_rounded(number: int) -> bool:
    """Whether a browser may have made it of another number: it is too large to be kept, and written as a browser
    writes doubles, with the fewest digits that tell them apart and zeros behind them."""
    if abs(number) <= MOST_EXACT:
        return False
    try:
        return int(Decimal(repr(float(number)))) == number
    except OverflowError:
        return False


def _refused(value: Any) -> Refused:
    return Refused(
        f"Browsers round whole numbers beyond {MOST_EXACT}, so {value!r:.100} may not be what was meant.",
        cure="Leave such a number as it was, or write it as a text, in quotes.",
    )


def _in_browser(value: JsonValue) -> Any:
    """What a browser makes of it and sends back, with numbers told apart from true and false."""
    match value:
        case bool() | None:
            return value
        case float() if not math.isfinite(value):
            return named_number(value)  # as json_text writes it
        case int() | float():
            try:
                return "number", float(value)
            except OverflowError:
                return None  # to JavaScript it is Infinity, which it writes as null
        case str():
            return value.encode(errors="replace").decode()
        case Mapping():
            return {_in_browser(name): _in_browser(member) for name, member in value.items()}
        case _:
            return [_in_browser(member) for member in value]
