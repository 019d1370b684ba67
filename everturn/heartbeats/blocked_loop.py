"""Beats for a worker's activities while user code blocks its event loop.

A worker whose loop is blocked would fall silent and be taken for dead. So a thread watches the beats that the loop
sends, and once they stay away, beats in its place. Code that holds Python's global lock (GIL) silences that thread,
too. For what the worker has and has not begun, `task_intake.py` beats.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Set
from contextlib import suppress

from temporalio.client import AsyncActivityCancelledError, Client

from everturn.heartbeats import heartbeat
from everturn.heartbeats.beats_through_core import BeatThroughCore
from everturn.heartbeats.heartbeat import Heartbeat
from everturn.logs import get_logger
from everturn.lost_workers.journal import RPC_TIMEOUT
from everturn.tools.user_code import code_blocking_loop

LONGEST_STAND_IN_SECONDS = 600.0
"""How long the thread beats for a blocked loop. Then the worker loses all its activities to other workers."""

_log = get_logger("everturn.worker")


class BlockedLoop:
    """The thread that beats for a worker's event loop while that is blocked. `running`: the beats of the activities
    that run, at any time; `ending`: by task token, of those that are over and whose result is still on its way."""

    def __init__(self, client: Client, running: Set[Heartbeat], ending: Mapping[bytes, Heartbeat]) -> None:
        self._client = client
        self._running = running
        self._ending = ending
        self.through_core: BeatThroughCore | None = None
        """Set once the worker is there, if its SDK allows it. Without it, a loop that is blocked for longer than the
        heartbeat timeout and five seconds loses what the worker runs."""
        self._loop_thread = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="everturn-heart", daemon=True)

    def start(self) -> None:
        """To be called on the loop."""
        self._loop_thread = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=10)

    def _watch(self) -> None:
        while not self._stopped.wait(heartbeat.INTERVAL_SECONDS / 2):
            now = time.monotonic()
            running = list(self._running)
            ending = list(self._ending.values())
            silent_beats = [
                beat
                for beat in (*running, *ending)
                if beat.last < now - beat.interval - heartbeat.INTERVAL_SECONDS / 2 and not beat.given_up
            ]
            if not silent_beats:
                continue
            blocked = round(now - max(beat.by_loop for beat in (*running, *ending)), 1)
            if blocked > LONGEST_STAND_IN_SECONDS:
                _log.error("loop.given_up", activities=len(silent_beats), seconds=blocked)
                continue
            if any(beat in self._running for beat in silent_beats):
                cause = self._blocked_by(silent_beats[0].loop)
                _log.warning("loop.blocked", activities=len(silent_beats), seconds=blocked, **cause)
            with suppress(Exception):  # this thread is all that beats now
                asyncio.run(self._stand_in(silent_beats))

    def _blocked_by(self, loop: asyncio.AbstractEventLoop) -> dict[str, str]:
        """What the log says of the code that blocks the loop, and what its author can do."""
        code = code_blocking_loop(loop, self._loop_thread)
        if code is None:
            return {"cure": "The machine is too busy, or code outside of tools blocks the loop."}
        return {
            "tool": code.name or "",
            "by": code.place,
            "cure": "Write it with `def`: then it runs in a thread. Or await asyncio.to_thread(...) for what blocks.",
        }

    async def _stand_in(self, silent: list[Heartbeat]) -> None:
        # Whatever goes wrong here (an activity has ended or is to be cancelled, the server is away), the loop finds out
        # by itself once it runs again.
        await asyncio.gather(*map(self._beat_for, silent), return_exceptions=True)

    async def _beat_for(self, beat: Heartbeat) -> None:
        beat.last = time.monotonic()
        details = beat.details
        if self.through_core and (beat in self._running or beat.task_token in self._ending):
            # Before the server, which may be slow. The core sends it on, too, but its answer comes in by the loop.
            with suppress(Exception):
                self.through_core(beat.task_token, await self._client.data_converter.encode(details))
        handle = self._client.get_async_activity_handle(task_token=beat.task_token)
        try:
            await handle.heartbeat(*details, rpc_timeout=RPC_TIMEOUT)
        except AsyncActivityCancelledError:
            if beat.hands_over and beat.cancelled_at is None:
                beat.cancelled_at = time.monotonic()
