"""How long an activity that fails is tried again. Patience is a time, and only failures spend it.

Each reported failure adds how long its try took and the wait that follows. A worker that is lost, a deploy or an outage
of the workers reports nothing and so spends nothing. What is spent goes from try to try in the heartbeat details, which
Temporal keeps outside the history.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity

from everturn.activities.attempts import this_try
from everturn.lost_workers.poison_calls import details_left, leave_details

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


def effort_text(verb: str = "tried", *, count: int | None = None) -> str:
    """How often and for how long it was tried in vain: "tried 3 times, for 0:01:05". `count`: how often, if that was
    not in each try."""
    count = activity.info().attempt if count is None else count
    times = "once" if count == 1 else f"{count} times"
    duration = timedelta(seconds=round((time_spent() + this_try()).total_seconds()))
    return f"{verb} {times}, for {duration}"


def time_spent() -> timedelta:
    """What the tries before this one have spent."""
    return timedelta(seconds=details_left().get(SPENT, 0.0))
