"""An application's own activities beside everturn's: theirs beat no more often than on a worker without everturn.

everturn's pace their heartbeats themselves, so that the worker's throttle is open. An activity that calls
`activity.heartbeat()` for each row of a table relies on it.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

SHARE_OF_TIMEOUT = 0.8
LONGEST = timedelta(seconds=60)
WITHOUT_TIMEOUT = timedelta(seconds=30)
"""As the SDK throttles by default: 0.8 of the heartbeat timeout, and 60 s at most."""


class ThrottledHeartbeats(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._throttle = _Throttle(outbound)
        super().init(self._throttle)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        try:
            return await self.next.execute_activity(input)
        except BaseException:
            self._throttle.flush()  # the next try is given what was said last
            raise
        finally:
            self._throttle.stop()


class _Throttle(ActivityOutboundInterceptor):
    """The SDK calls it on the event loop, also for activities in threads and processes."""

    def __init__(self, next: ActivityOutboundInterceptor) -> None:  # noqa: A002
        super().__init__(next)
        timeout = activity.info().heartbeat_timeout
        interval = min(timeout * SHARE_OF_TIMEOUT, LONGEST) if timeout else WITHOUT_TIMEOUT
        self._interval = interval.total_seconds()
        self._free_at = 0.0
        self._kept: tuple[Any, ...] | None = None
        """The details of the beat that waits, if one does."""
        self._timer: asyncio.TimerHandle | None = None

    def heartbeat(self, *details: Any) -> None:
        loop = asyncio.get_running_loop()
        self._kept = details
        if self._timer is None:
            if loop.time() < self._free_at:
                self._timer = loop.call_at(self._free_at, self.flush)
            else:
                self.flush()

    def flush(self) -> None:
        """Sends the beat that waits, if one does."""
        details = self._kept
        self._kept = None
        self._timer = None
        if details is not None:
            self._free_at = asyncio.get_running_loop().time() + self._interval
            self.next.heartbeat(*details)

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
