"""How long a server asks to wait, by its Retry-After header."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_SECONDS = 86_400.0


def seconds_to_wait(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds, from seconds or an HTTP date (RFC 9110, 10.2.3); None if it does not say, or can't be read."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), LONGEST_SECONDS)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if not date.tzinfo:
        date = date.replace(tzinfo=UTC)
    return min(max(0.0, (date - (now or datetime.now(UTC))).total_seconds()), LONGEST_SECONDS)
