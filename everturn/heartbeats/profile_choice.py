"""Which heartbeat profile suits a server: heartbeats are billed on Temporal Cloud."""

from __future__ import annotations

from typing import Final

from temporalio.service import ConnectConfig, TLSConfig

from everturn.heartbeats.profiles import PROFILES, QUICK, THRIFTY, HeartbeatProfile, ProfileName

CLOUD: Final = (".tmprl.cloud", ".api.temporal.io")
"""The endings of Temporal Cloud's host names: a namespace's own, and a region's."""


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
