"""Headers of answers, and the numbers and times in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Final

_PASSED_ON: Final = ("", "llm_provider-")
"""What a header's name begins with: nothing, or what LiteLLM puts before a provider's own (1.108.7)."""
_MOST: Final = 1e15


def read_header(headers: Mapping[str, str], name: str) -> str:
    """A header, or what a gateway passes on of it; empty if there is none."""
    return next((text for begins in _PASSED_ON if (text := headers.get(f"{begins}{name}", ""))), "")


def read_media_type(headers: Mapping[str, str]) -> str:
    """The content type without its parameters; empty if there is none."""
    return media_type_in(headers.get("content-type", ""))


def media_type_in(written: str) -> str:
    """A media type without its parameters, in lower case: case does not count in it, and there may be spaces before the
    `;` (RFC 9110, 8.3.1)."""
    return written.partition(";")[0].strip().lower()


def read_number(text: str) -> float | None:
    """A number that is not negative; None if the text is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not isfinite(number) or not 0 <= number <= _MOST:
        return None
    return number


def http_date(text: str) -> datetime | None:
    """The time in a header (RFC 9110, 5.6.7); None if it can't be read."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    return in_utc(date)


def server_time(headers: Mapping[str, str], now: datetime | None) -> datetime:
    """The time at the server, if it says it."""
    return now or http_date(headers.get("date", "")) or datetime.now(UTC)


def in_utc(time: datetime) -> datetime:
    """The time, which is UTC's if it names no zone."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)
