"""How often workers send heartbeats: often, or seldom if each one is billed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

ProfileName = Literal["quick", "thrifty"]


@dataclass(frozen=True, kw_only=True)
class HeartbeatProfile:
    name: ProfileName
    interval_seconds: float
    """Seconds between two heartbeats of an activity, and before the first."""
    timeout: timedelta
    """A worker that is silent for so long is lost."""

    @property
    def in_words(self) -> str:
        every = f"{self.interval_seconds:g} s"
        lost = f"{self.timeout.total_seconds():g} s"
        return f"one every {every} during a turn or a call; a worker counts as lost after {lost} of silence"


QUICK: Final = HeartbeatProfile(name="quick", interval_seconds=1.5, timeout=timedelta(seconds=5))
"""For one's own server, where heartbeats cost nothing."""

THRIFTY: Final = HeartbeatProfile(name="thrifty", interval_seconds=10.0, timeout=timedelta(seconds=13))
"""Where each is billed. A turn of less than 10 s sends none, and another machine goes on within 15 s of a kill."""

PROFILES: Final = {profile.name: profile for profile in (QUICK, THRIFTY)}
