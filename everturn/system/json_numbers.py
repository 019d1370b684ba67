"""Numbers that JSON does not have: NaN, the infinities, and what is beyond a double, such as 1e999.

One rule, at every border. What comes in with such a number is refused, by an error that names its place. What goes out
has it as a text: "NaN", "Infinity" or "-Infinity". So no such number becomes null, which would mean something else, and
everything that is written can be read by a strict reader. Integers stay as exact as they came, however large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

_LARGEST_DOUBLE: Final = 1.7976931348623157e308

_DEEPEST: Final = 1_000

_CONSTANTS: Final = re.compile("NaN|Infinity")
"""What `json.dumps` writes for such numbers. They may also be words within a text."""


class NumberNotInJson(ValueError):
    """A value holds a number that JSON does not have. The message names its place."""


def parse_json(text: str | bytes) -> Any:
    """The JSON value in the text. Raises ValueError, as `json.loads` does, and NumberNotInJson."""
    return json.loads(text, parse_constant=refuse_constant, parse_float=_finite_number)


def compact_json(value: Any, **options: Any) -> str:
    """`json.dumps` without spaces, and without escapes for what is not ASCII."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), **options)
    if _CONSTANTS.search(text):
        # From the text, since the value may hold what can be read only once.
        return json.dumps(numbers_as_texts(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    return text


def place_of_odd_number(value: Any) -> str | None:
    """Where a JSON value holds such a number, and which: `amount is Infinity`. None if it holds none."""
    if isinstance(value, float):
        return None if isfinite(value) else f"it is {in_words(value)}"
    odd = _first_odd_number(value)
    return odd and f"{odd[0].removeprefix('.')} is {in_words(odd[1])}"


def _first_odd_number(value: Any) -> tuple[str, float] | None:
    """Its place within the value, and the number. Without recursion: what comes in may be nested very deeply."""
    open_values = [("", value, 0)]
    while open_values:
        place, open_value, depth = open_values.pop()
        if depth > _DEEPEST:  # it contains itself, or is refused for its depth
            continue
        steps: Iterable[tuple[str, Any]] = ()
        if isinstance(open_value, Mapping):
            steps = ((f".{name}", item) for name, item in open_value.items())
        elif isinstance(open_value, list | tuple):
            steps = ((f"[{index}]", item) for index, item in enumerate(open_value))
        deeper = []
        for step, item in steps:
            if isinstance(item, float) and not isfinite(item):
                return f"{place}{step}", item
            if isinstance(item, Mapping | list | tuple):
                deeper.append((f"{place}{step}", item, depth + 1))
        open_values += reversed(deeper)
    return None


def check_numbers(value: Any) -> Any:
    """The value. Raises NumberNotInJson."""
    if (place := place_of_odd_number(value)) is not None:
        raise NumberNotInJson(f"{place}, which is not a number in JSON")
    return value


def numbers_as_texts(value: Any) -> Any:
    """A JSON value with texts in the place of such numbers."""
    if isinstance(value, float):
        return value if isfinite(value) else in_words(value)
    if isinstance(value, dict):
        return {name: numbers_as_texts(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [numbers_as_texts(item) for item in value]
    return value


def in_words(number: float) -> str:
    """NaN, Infinity or -Infinity."""
    return json.dumps(number)


def reads_as_odd_number(value: object) -> bool:
    """Whether a converter to floats or complex numbers may make such a number of it: a text such as "nan", "1e999" or
    "nan+1j", or an integer beyond a double."""
    if isinstance(value, str):
        try:
            number = complex(value)  # reads whatever `float` does, and "nan+1j"
        except ValueError:
            return False
        return not (isfinite(number.real) and isfinite(number.imag))
    return isinstance(value, int) and not -_LARGEST_DOUBLE <= value <= _LARGEST_DOUBLE


def refuse_constant(constant: str) -> None:
    """For `json.loads`."""
    raise NumberNotInJson(f"{constant} is not a number in JSON")


def _finite_number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise NumberNotInJson(f"{text[:40]} is too large for a number in JSON")
    return number
