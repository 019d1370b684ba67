"""Which lane EVERTURN_LIVE names."""

from __future__ import annotations

from temporalio.converter import DataConverter

from everturn.errors import InvalidSetting
from everturn.live.lane import Lane
from everturn.settings import Settings


def lane_of(settings: Settings, converter: DataConverter) -> Lane | None:
    """The lane that EVERTURN_LIVE names; None for heartbeats. `converter`: text goes through its codec.
    Raises InvalidSetting."""
    address = settings.live.get_secret_value() if settings.live else "heartbeats"
    if address == "heartbeats":
        return None
    if address.startswith(("redis://", "rediss://", "unix://")):
        from everturn.live.redis_lane import RedisLane

        return RedisLane(address, converter)
    if address == "http":
        from everturn.live.http_lane import HttpLane

        return HttpLane(settings, converter)
    raise InvalidSetting(  # without its value, which may hold a password
        "EVERTURN_LIVE has an unknown value.", cure="Set it to heartbeats, http, or redis://HOST:PORT."
    )
