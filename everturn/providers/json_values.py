"""Reads JSON that somebody else wrote: any shape may come, and none may crash us."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from everturn.system.json_numbers import place_of_odd_number, refuse_constant
from everturn.text.utf8 import mend

MAX_JSON_DEPTH = 200
"""How deep objects and lists may be nested: as deep as pydantic reads."""

MAX_JSON_VALUES = 2_000_000
"""How many values one text may hold. A value takes 3 bytes of text, and 70 to 240 of memory: 64 MB of `{},{},` would
become gigabytes."""

_MARK = "\ufeff".encode()
_MOST_DIGITS = 15


class TooManyValues(ValueError): ...


class TooDeep(ValueError):
    def __init__(self) -> None:
        super().__init__("nested too deeply")


def parse_json(text: str | bytes) -> Any:
    """The JSON value in `text`. Raises ValueError, of which TooDeep and TooManyValues are subclasses.

    Halves of surrogate pairs are accepted, because streams cut characters in two: `mend` the joined text.
    """
    if len(text) > MAX_JSON_VALUES:
        _check_count(text)
    # A byte order mark: RFC 8259 lets a reader pass over it.
    text = text.removeprefix(_MARK) if isinstance(text, bytes) else text.removeprefix("\ufeff")
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        if not _has_escaped_character(text):
            if "recursion limit" in str(error):  # pydantic says it in words alone
                raise TooDeep from None
            raise error from None
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        raise TooDeep from None
    _check_depth(value, MAX_JSON_DEPTH)
    return value


def _has_escaped_character(text: str | bytes) -> bool:
    if isinstance(text, bytes):
        return b"\\u" in text
    return "\\u" in text


def write_json(value: Any) -> bytes:
    """`value` as JSON: always valid, whatever texts and numbers are in it."""
    try:
        return to_json(value, inf_nan_mode="strings")
    except PydanticSerializationError:
        return to_json(mend_texts(value), inf_nan_mode="strings")


def mend_texts(value: Any) -> Any:
    """`mend` for every text in a JSON value."""
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, dict):
        return {mend(name): mend_texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [mend_texts(item) for item in value]
    return value


def object_in(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`, or in the text that it is the JSON of, as some servers write arguments; None if `text`
    is anything else, or holds a number that JSON does not have."""
    try:
        value = mend_texts(parse_json(mend(text)))
    except ValueError:
        return None
    if isinstance(value, str):
        return object_in(value)
    if isinstance(value, dict) and place_of_odd_number(value) is None:
        return value
    return None


NO_ARGUMENTS: Final = frozenset({"null", "[]", '""', '"null"'})
"""What servers write for no arguments: Groq null, programs in PHP an empty list; as a text if they encode it twice."""


def arguments_in(text: str) -> dict[str, Any] | None:
    """The object that a call's arguments are. Before streamed ones, Bedrock writes an empty object of its own:
    `{}{...}` (openai-agents-js#712, 2025-12)."""
    if text.strip() in NO_ARGUMENTS:
        return {}
    written = object_in(text)
    if written is None and text.lstrip().startswith("{}"):
        return object_in(text.lstrip()[2:])
    return written


def text_or_json(value: object) -> str:
    """A text as it is, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return write_json(value).decode()


def a_dict(value: object) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    if isinstance(value, dict):
        return value
    return {}


def a_list(value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    return []


def as_list(value: object) -> list[Any]:
    """`value` if it is a list, else a list of it alone."""
    if isinstance(value, list):
        return value
    return [value]


def a_str(value: object) -> str:
    if isinstance(value, str):
        return value
    return ""


def an_int(value: object) -> int | None:
    """`value` if it is an integer, or one as a text: protobuf's JSON writes those of 64 bits so."""
    if isinstance(value, int):
        return value
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and value.isascii() and value.isdigit():
        return int(value)
    return None


def a_count(value: object) -> int:
    """`value` if it is a number of tokens, also as a text; else 0."""
    if isinstance(value, str):
        return an_int(value) or 0
    if isinstance(value, int | float) and isfinite(value) and value > 0:
        return int(value)
    return 0


def _check_count(text: str | bytes) -> None:
    # Each value but the first comes after one of these three. Signs inside of strings count too, which does no harm.
    signs = (b",", b"[", b"{") if isinstance(text, bytes) else (",", "[", "{")
    if sum(map(text.count, signs)) > MAX_JSON_VALUES:  # type: ignore[arg-type]
        raise TooManyValues(f"it holds more than {MAX_JSON_VALUES:,} values")


def _check_depth(value: Any, remaining: int) -> None:
    if remaining < 0:
        raise TooDeep
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _check_depth(item, remaining - 1)
