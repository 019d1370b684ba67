"""The provider's clock, from its answers' Date headers: it decides what has expired, as a worker's may be wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from everturn.http.headers import http_date
from everturn.providers.catalog import ModelEndpoint

_MOST_ENDPOINTS: Final = 256

_latest: dict[str, tuple[datetime, float]] = {}
"""By base URL: the Date of the latest answer, and its arrival by time.monotonic(), which nobody can set."""


def note_time(endpoint: ModelEndpoint, headers: Mapping[str, str]) -> None:
    """Remembers the time in an answer's headers; errors count too."""
    if date := http_date(headers.get("date", "")):
        _latest.pop(endpoint.base_url, None)
        _latest[endpoint.base_url] = date, time.monotonic()
        if len(_latest) > _MOST_ENDPOINTS:
            del _latest[next(iter(_latest))]


def now_at(endpoint: ModelEndpoint) -> datetime | None:
    """The time there; None if this process has had no answer with a time yet."""
    latest = _latest.get(endpoint.base_url)
    if latest is None:
        return None
    date, arrived_at = latest
    return date + timedelta(seconds=time.monotonic() - arrived_at)
