"""Which environment variables hold secrets, and how their values are taken out of a text."""

from __future__ import annotations

import os
from typing import Final

# Wide on purpose: a user's own key for a compatible server, or for a tool, is as secret as the ones that we know.
_SECRET_NAMES: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_KEY_DATA")
_ENCODED_SECRET_NAMES: Final = tuple(name.encode() for name in _SECRET_NAMES)
_SECRET_MIN_CHARS: Final = 8
"""Shorter values are placeholders, and would blot out ordinary words."""


def names_a_secret(variable: str) -> bool:
    """Whether an environment variable's name says that others are not to see its value."""
    return variable.endswith(_SECRET_NAMES)


def hidden(text: str) -> str:
    """The text with the names of secret environment variables in the place of their values."""
    # Read anew each time: a user's file may load its keys after the logs were configured.
    for encoded in os.environb:  # of which a look costs a quarter
        if encoded.endswith(_ENCODED_SECRET_NAMES):
            name = os.fsdecode(encoded)
            value = os.environ[name]
            # A private key has lines, and their breaks are written in other ways here.
            for secret in (value, *(value.splitlines() if "\n" in value else ())):
                if len(secret) >= _SECRET_MIN_CHARS:
                    text = text.replace(secret, f"<{name}>")
    return text
