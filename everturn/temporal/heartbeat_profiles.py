"""How often workers send heartbeats: often, or seldom if each one is billed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from temporalio.service import ConnectConfig, TLSConfig

ProfileName = Literal["quick", "thrifty"]

CLOUD: Final = (".tmprl.cloud", ".api.temporal.io")
"""The endings of Temporal Cloud's host names: a namespace's own, and a region's."""


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


def profile_for(wanted: ProfileName | None, connection: ConnectConfig) -> HeartbeatProfile:
    """`wanted`; if that is None, the profile that suits the server."""
    if wanted:
        return PROFILES[wanted]
    return THRIFTY if is_cloud(connection) else QUICK


def is_cloud(connection: ConnectConfig) -> bool:
    """Whether this is Temporal Cloud, by the host's name; through a private link, by the name that TLS checks."""
    named = connection.tls.domain if isinstance(connection.tls, TLSConfig) else None
    host = connection.target_host.rpartition("://")[2].rpartition(":")[0] or connection.target_host
    return any(name.lower().rstrip(".").endswith(CLOUD) for name in (host, named or ""))
