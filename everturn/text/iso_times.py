"""Times as people and other programs read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(time: datetime) -> str:
    """ISO 8601, UTC, to the second."""
    return time.isoformat(timespec="seconds")


def iso_time_at(seconds: float) -> str:
    """The same of seconds since 1970."""
    return iso_time(datetime.fromtimestamp(seconds, UTC))
