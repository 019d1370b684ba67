"""Texts that UTF-8 can carry.

Python reads bytes that are not UTF-8 as halves of surrogate pairs, which nothing takes.
"""

from __future__ import annotations

from everturn.errors import Refused


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_utf8(what: str, text: str) -> str:
    """The text. Raises Refused."""
    if not isinstance(text, str):
        raise Refused(f"The {what} is {text!r}, of type {type(text).__name__}.", cure="Give it as a str.")
    if not is_utf8(text):
        raise Refused(f"The {what} {text[:100]!r} can't be written as UTF-8.", cure="Send text in UTF-8.")
    return text


def as_utf8(text: str) -> str:
    """The text with a question mark for each character that UTF-8 can't carry."""
    return text.encode(errors="replace").decode()
