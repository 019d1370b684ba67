"""Values as Temporal's list filters write them."""

from __future__ import annotations

from datetime import UTC, datetime


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def quoted_time(moment: datetime) -> str:
    return quoted(moment.astimezone(UTC).isoformat())
