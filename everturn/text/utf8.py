"""Texts that UTF-8 can carry.

Python reads bytes that are not UTF-8 as halves of surrogate pairs, and JSON may name such halves; nothing takes them.
"""

from __future__ import annotations

import re

from everturn.errors import Refused

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_utf8(text: str) -> bool:
    return text.isascii() or not _SURROGATE.search(text)


def check_utf8(what: str, text: str) -> str:
    """The text. Raises Refused."""
    if not isinstance(text, str):
        raise Refused(f"The {what} is {text!r}, of type {type(text).__name__}.", cure="Give it as a str.")
    if not is_utf8(text):
        raise Refused(f"The {what} {text[:100]!r} can't be written as UTF-8.", cure="Send text in UTF-8.")
    return text


def mend(text: str) -> str:
    """Joins the halves of surrogate pairs; a half without its other half becomes U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
