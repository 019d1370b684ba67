"""How long a server asks to wait before the next request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from everturn.http.headers import http_date, read_header, read_number, server_time

LONGEST_SECONDS: Final = 86_400.0
"""A day. What asks for more in other headers or in words is taken for something else,
and no call to an MCP server waits longer."""


def seconds_to_wait(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds the server asks us to wait; None if it does not say.

    Reads retry-after-ms (x-ms-retry-after-ms in azure-core), then Retry-After as seconds (fractions too) or as an HTTP
    date (RFC 9110, 10.2.3). An unreadable header counts as absent. A date is compared with the server's own clock, if
    it says its time.
    """
    milliseconds = read_number(read_header(headers, "retry-after-ms") or read_header(headers, "x-ms-retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = read_header(headers, "retry-after")
    seconds = read_number(text)
    if seconds is not None:
        return seconds
    date = http_date(text)
    if date is None:
        return None
    return max(0.0, (date - server_time(headers, now)).total_seconds())
