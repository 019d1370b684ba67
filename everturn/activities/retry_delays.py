"""How long an activity that has failed waits before it is tried again."""

from __future__ import annotations

import random
from datetime import timedelta

FIRST_DELAY_SECONDS = 0.5
LONGEST_OWN_DELAY_SECONDS = 30.0
"""If nobody has said how long to wait."""


def retry_delay(retry_after: float | None, *, attempt: int, longest: timedelta) -> timedelta:
    if retry_after is not None:
        # Slightly later than asked, and not all at once. Whoever asks for an hour gets no hour and a half.
        spread = min(retry_after / 2, LONGEST_OWN_DELAY_SECONDS)
        return timedelta(seconds=min(retry_after + spread * random.random(), longest.total_seconds()))
    doubled = min(FIRST_DELAY_SECONDS * 2 ** min(attempt - 1, 16), LONGEST_OWN_DELAY_SECONDS)
    return min(timedelta(seconds=doubled * (0.25 + 0.75 * random.random())), longest)
