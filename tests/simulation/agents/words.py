"""The words of replies that take their time: no other reply says the same ones."""

from __future__ import annotations

import json
import re

from temporalio.api.common.v1 import Payloads

WORDS = 12
"""Of a reply that takes its time."""

_WORD = re.compile(r"r\d+w\d+\.")
"""One of words_of()."""


def words_in(text: str) -> list[str]:
    return _WORD.findall(text)


def beaten(details: Payloads) -> list[str]:
    """The words in a heartbeat of a model turn."""
    if len(details.payloads) < 2:
        return []
    said = json.loads(details.payloads[1].data)
    pieces = said.get("pieces") or () if isinstance(said, dict) else ()
    return words_in("".join(text for _, text in pieces))


def words_of(number: int) -> str:
    """What no other reply says: each word is there once."""
    return " ".join(f"r{number}w{place}." for place in range(WORDS))
