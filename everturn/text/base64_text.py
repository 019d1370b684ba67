"""Base64 from tools and providers, written so that everybody can read it."""

from __future__ import annotations

import binascii
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

_COMMON: Final = str.maketrans("-_", "+/", " \t\r\n")


def as_base64(data: str) -> str:
    """The data with no line breaks and no escapes, the common alphabet and its padding; empty if it can't be read."""
    for mend in (str, _mend_base64):
        with suppress(binascii.Error, ValueError):
            written = mend(data)
            binascii.a2b_base64(written, strict_mode=True)
            return written
    return ""


def _mend_base64(data: str) -> str:
    # A `data:` URL may have its =, + and / escaped (RFC 2397); base64 has no % of its own.
    data = unquote(data).translate(_COMMON).rstrip("=")
    return data + "=" * (-len(data) % 4)
