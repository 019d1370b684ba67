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
from everturn.system.json_numbers import in_words

MOST_EXACT: Final = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER."""


def is_same_in_browser(server_value: JsonValue, page_value: JsonValue, *, exact_numbers: bool = False) -> bool:
    """Whether a browser that was sent our value sends this one back.

    `exact_numbers`: it is known not to round, as newer browsers can. What comes with a number that nothing with doubles
    writes is taken to be exact, too: other clients of a page's protocol keep all digits."""
    exact_numbers = exact_numbers or _has_exact_number(page_value)
    return bool(_in_browser(server_value, exact_numbers) == _in_browser(page_value, exact_numbers))


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
    return _merge_values(ours, edited, exact_numbers=_has_exact_number(edited))


def _merge_values(server_value: JsonValue, edited: JsonValue, *, exact_numbers: bool) -> JsonValue:
    if is_same_in_browser(server_value, edited, exact_numbers=exact_numbers):
        return server_value
    match server_value, edited:
        case dict(), dict():
            return {
                name: _merge_values(server_value[name], value, exact_numbers=exact_numbers)
                if name in server_value
                else _check_typed(value, exact_numbers)
                for name, value in edited.items()
            }
        case list(), list():
            return _merged_list(server_value, edited, exact_numbers=exact_numbers)
        case _:
            return _check_typed(edited, exact_numbers)


def _merged_list(
    server_values: Sequence[JsonValue], edited: Sequence[JsonValue], *, exact_numbers: bool
) -> list[JsonValue]:
    in_place = len(server_values) == len(edited)
    merged: list[JsonValue] = []
    for position, value in enumerate(edited):
        if in_place and is_same_in_browser(server_values[position], value, exact_numbers=exact_numbers):
            merged.append(server_values[position])
            continue
        same_members = [
            member for member in server_values if is_same_in_browser(member, value, exact_numbers=exact_numbers)
        ]
        if same_members and all(member == same_members[0] for member in same_members):
            merged.append(same_members[0])
        elif same_members:
            raise _rounding_refusal(same_members)
        elif in_place:
            merged.append(_merge_values(server_values[position], value, exact_numbers=exact_numbers))
        else:
            merged.append(_check_typed(value, exact_numbers))
    return merged


def _check_typed(value: JsonValue, exact_numbers: bool) -> JsonValue:
    """A value that the person wrote. Raises Refused if the browser may have rounded it."""
    match value:
        case dict():
            return {name: _check_typed(member, exact_numbers) for name, member in value.items()}
        case list():
            return [_check_typed(member, exact_numbers) for member in value]
        case int() if not isinstance(value, bool) and not exact_numbers and _may_be_rounded(value):
            raise _rounding_refusal(value)
        case _:
            return value


def _has_exact_number(value: JsonValue) -> bool:
    """Whether a whole number is in it that nothing with doubles writes: neither with the fewest digits, as browsers do,
    nor with all (protobuf's JSON of a Struct)."""
    match value:
        case bool():
            return False
        case int():
            return abs(value) > MOST_EXACT and not _may_be_rounded(value) and not _is_double(value)
        case dict():
            return any(_has_exact_number(member) for member in value.values())
        case list():
            return any(_has_exact_number(member) for member in value)
        case _:
            return False


def _is_double(number: int) -> bool:
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _may_be_rounded(number: int) -> bool:
    """Whether a browser may have made it of another number: it is too large to be kept, and written as a browser
    writes doubles, with the fewest digits that tell them apart and zeros behind them."""
    if abs(number) <= MOST_EXACT:
        return False
    try:
        return int(Decimal(repr(float(number)))) == number
    except OverflowError:
        return False


def _rounding_refusal(value: Any) -> Refused:
    return Refused(
        f"Browsers round whole numbers beyond {MOST_EXACT}, so {value!r:.100} may not be what was meant.",
        cure="Leave such a number as it was, or write it as a text, in quotes.",
    )


def _in_browser(value: JsonValue, exact_numbers: bool) -> Any:
    """What a browser makes of it and sends back, with numbers (`exact_numbers`: as they are) told apart from true and
    false."""
    match value:
        case bool() | None:
            return value
        case float() if not math.isfinite(value):
            return in_words(value)  # as json_text writes it
        case int() | float() if exact_numbers:
            return "number", value
        case int() | float():
            try:
                return "number", float(value)
            except OverflowError:
                return None  # to JavaScript it is Infinity, which it writes as null
        case str():
            return value.encode(errors="replace").decode()
        case Mapping():
            return {
                _in_browser(name, exact_numbers): _in_browser(member, exact_numbers) for name, member in value.items()
            }
        case _:
            return [_in_browser(member, exact_numbers) for member in value]
