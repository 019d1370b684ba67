"""Times as people and other programs read them."""

from __future__ import annotations

from datetime import datetime


def iso_time(time: datetime) -> str:
    """ISO 8601, UTC, to the second."""
    return time.isoformat(timespec="seconds")
