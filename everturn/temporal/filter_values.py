"""Values as Temporal's list filters write them."""

from __future__ import annotations

from datetime import UTC, datetime

from everturn.errors import Refused
from everturn.text.utf8 import check_utf8


def quoted(value: str) -> str:
    """Raises Refused for what no filter can have."""
    return "'" + check_utf8("text to search for", value).replace("'", "''") + "'"


def quoted_time(moment: datetime) -> str:
    """Raises Refused."""
    if not isinstance(moment, datetime):
        raise Refused(f"The time to search for is {moment!r:.100}.", cure="Give a datetime.")
    return quoted(moment.astimezone(UTC).isoformat())
