"""How long an activity that fails is tried again. Patience is a time, and only failures spend it.

Each reported failure adds how long its try took and the wait that follows. A worker that is lost, a deploy or an outage
of the workers reports nothing and so spends nothing. What is spent goes from try to try in the heartbeat details, which
Temporal keeps outside the history.
"""

from __future__ import annotations

import random
from datetime import timedelta

from temporalio import activity

from everturn.activities.attempts import this_try
from everturn.lost_workers.poison_calls import details_left, leave_details

FIRST_DELAY_SECONDS = 0.5
LONGEST_OWN_DELAY_SECONDS = 30.0

FIRST_WAIT_SECONDS = 0.2
"""How long Temporal itself waits before it retries a failed activity: see timeouts.py. Each later wait doubles."""

SPENT = "everturn_spent_seconds"


def spend(delay: timedelta, patience: timedelta) -> bool:
    """Spends the time of this try and of the delay after it; False if patience does not last that long."""
    info = activity.info()
    if info.is_local:  # it has no heartbeats to remember what it spent: assume that all tries took as long as this one
        waits = timedelta(seconds=FIRST_WAIT_SECONDS * (2 ** min(info.attempt, 16) - 1))
        return info.attempt * (this_try() + delay) + waits <= patience
    total = time_spent() + this_try() + delay
    if total > patience:
        return False
    leave_details(**{SPENT: total.total_seconds()})
    return True


def time_spent() -> timedelta:
    """What the tries before this one have spent."""
    return timedelta(seconds=details_left().get(SPENT, 0.0))


def retry_delay(retry_after: float | None, *, attempt: int, longest: timedelta) -> timedelta:
    if retry_after is not None:
        # Slightly later than asked, and not all at once. Whoever asks for an hour gets no hour and a half.
        spread = min(retry_after / 2, LONGEST_OWN_DELAY_SECONDS)
        return timedelta(seconds=min(retry_after + spread * random.random(), longest.total_seconds()))
    doubled = min(FIRST_DELAY_SECONDS * 2 ** min(attempt - 1, 16), LONGEST_OWN_DELAY_SECONDS)
    return min(timedelta(seconds=doubled * (0.25 + 0.75 * random.random())), longest)
