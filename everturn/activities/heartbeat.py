"""Heartbeats of every activity by themselves, and from where blocking code can't stop them.

While its event loop runs, each activity beats through it (which is also how a cancellation comes in). A tool that
blocks the loop would fall silent and be taken for dead: then a thread of the worker's beats in its place.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from pydantic_core import from_json, to_json
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.service import RPCError, RPCStatusCode

from everturn.activities.attempts import Lags
from everturn.activities.journal import RPC_TIMEOUT, Journal, task_of
from everturn.activities.lost_tries import left
from everturn.heartbeat_profiles import QUICK, HeartbeatProfile
from everturn.logs import get_logger
from everturn.streamed import Streamed
from everturn.tools.results import iterator_in

INTERVAL_SECONDS = QUICK.interval_seconds
"""Between two beats, unless the worker's profile says more and the activity's time-out allows it."""

PROGRESS_SECONDS = 0.5
"""A tool's word on its progress is beaten out so soon, however often it has one; under a thrifty profile, with the next
ordinary beat."""

MAX_PROGRESS_BYTES = 64_000

LONGEST_STAND_IN_SECONDS = 600.0
"""For a loop that is blocked. Then everything that the worker has in hand is lost to it, and goes on elsewhere."""

LATE_START_SECONDS = 2.0

HURRIED_SECONDS = 0.3
"""After the conversation has cancelled something here: by then the server knows of it."""

HANDED_OVER_SECONDS = 5.0
"""Its conversation waits for what a cancelled model turn hands over. Code that does not end when it is cancelled is
given up after so long: without beats, the server says in its place that it is over."""

_log = get_logger("everturn.worker")


@dataclass(eq=False)
class Heartbeat:
    """One running activity."""

    task_token: bytes
    loop: asyncio.AbstractEventLoop
    left: dict[str, Any] = field(default_factory=dict)
    """What this try leaves to the next: the first heartbeat detail."""
    progress: Any = None
    """What the activity last said of itself; each beat carries it."""
    speak: Callable[[], Any] | None = None
    """Says what stands for `progress` when a beat is due. May be called from any thread."""
    said: Callable[[], Streamed | None] | None = None
    """All that a model turn has said so far, as far as it is kept."""
    interval: float = field(default_factory=lambda: INTERVAL_SECONDS)
    """Seconds between two beats."""
    waits: Any = None
    """What it waits for now, in place of its progress."""
    run_id: str = ""
    """Of the workflow that it belongs to."""
    last: float = field(default_factory=time.monotonic)
    by_loop: float = field(default_factory=time.monotonic)
    """The last one that the loop has sent itself."""
    cancelled: bool = False
    hands_over: bool = False
    """It is waited for when it is cancelled."""
    cancelled_at: float | None = None
    """When it was seen to be cancelled, in `time.monotonic()`; only if it is waited for then."""
    timer: asyncio.Handle | None = None
    due: float = 0.0
    """When it goes off, in `time.monotonic()`."""
    context: Context = field(default_factory=copy_context)
    """The activity's own, which activity.heartbeat() needs."""

    def within(self, seconds: float) -> None:
        """Sees to it that a beat comes within so many seconds of the last one. To be called on the loop."""
        if self.timer and self.due > self.last + seconds:
            self._beat_in(max(0.0, self.last + seconds - time.monotonic()))

    def hurry(self) -> None:
        """Beats as often as a quick worker from now on, if it is not over. To be called on the loop."""
        self.interval = min(self.interval, INTERVAL_SECONDS)
        if self.timer:
            self._beat_in(min(self.interval, HURRIED_SECONDS))

    def report(self, progress: Any) -> None:
        """Sets what the next beat carries, as it is now. May be called from any thread.

        What JSON can't hold, or is large, is shortened: a beat that can't be sent would end a tool that is at work.
        """
        self.progress = _shown(progress)
        with suppress(RuntimeError):  # a thread that outlives its activity may outlive the loop
            soon = self.interval if self.interval > INTERVAL_SECONDS else PROGRESS_SECONDS
            self.loop.call_soon_threadsafe(self.within, soon)

    def start(self) -> None:
        self._beat_in(self.interval)

    def stop(self) -> None:
        if self.timer:
            self.timer.cancel()
        self.timer = None

    def _beat_in(self, seconds: float) -> None:
        self.stop()
        self.due = time.monotonic() + seconds
        self.timer = self.loop.call_later(seconds, self._beat_on, context=self.context)

    @property
    def given_up(self) -> bool:
        """It has not ended though it was cancelled, and is waited for."""
        return self.cancelled_at is not None and time.monotonic() - self.cancelled_at > HANDED_OVER_SECONDS

    def _beat_on(self) -> None:
        if self.hands_over and self.cancelled_at is None and is_unwanted():
            self.cancelled_at = time.monotonic()
        if self.given_up:
            self.stop()
            return
        activity.heartbeat(*self.details)
        self.last = self.by_loop = time.monotonic()
        self._beat_in(self.interval)

    @property
    def details(self) -> tuple[Any, ...]:
        """What the next try needs comes first; then the progress, if any."""
        progress = self.waits or (self.speak() if self.speak else self.progress)
        left = dict(self.left) or None
        if progress is None:
            return () if left is None else (left,)
        return (left, progress)


def is_unwanted() -> bool:
    """The conversation has cancelled the activity that runs here. One whose worker shuts down goes on elsewhere."""
    why = activity.cancellation_details()
    return why is not None and why.cancel_requested


_here: ContextVar[Heartbeat | None] = ContextVar("here", default=None)


def this_heartbeat() -> Heartbeat | None:
    """Of the activity that runs here."""
    return _here.get()


def _shown(progress: Any) -> Any:
    """The user's value, as JSON has it; they may change theirs meanwhile."""
    try:
        if iterator_in(progress, seen=set()) is not None:
            return repr(progress)[:1000]
        written = to_json(progress)
        return from_json(written) if len(written) <= MAX_PROGRESS_BYTES else written[:1000].decode(errors="replace")
    except Exception:  # noqa: BLE001 - it is the user's value
        with suppress(Exception):
            return repr(progress)[:1000]
        return type(progress).__name__


class Heartbeats:
    """Beats for all activities of a worker; start and stop it with the worker."""

    def __init__(self, client: Client, journal: Journal, profile: HeartbeatProfile = QUICK) -> None:
        self._client = client
        self._profile = profile
        self._journal = journal
        self._lags = Lags()
        self._running: set[Heartbeat] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="everturn-heart", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=10)

    @contextmanager
    def beating(self) -> Iterator[Heartbeat]:
        """Beats for the activity that runs here until the block is left."""
        info = activity.info()
        beat = Heartbeat(
            info.task_token,
            asyncio.get_running_loop(),
            left=left(),
            interval=self._interval(info.heartbeat_timeout),
            run_id=info.workflow_run_id or "",
        )
        beat.start()
        self._running.add(beat)
        token = _here.set(beat)
        try:
            with self._journal.holding(task_of(info)):
                yield beat
        finally:
            _here.reset(token)
            self._running.discard(beat)
            beat.stop()

    def cancelling(self, run_id: str) -> None:
        """Something of that run is to be cancelled. If it runs here, it need not wait for the next of its seldom beats
        to learn that. May be called from any thread."""
        for beat in [beat for beat in list(self._running) if beat.run_id == run_id]:
            with suppress(RuntimeError):
                beat.loop.call_soon_threadsafe(beat.hurry)

    def _interval(self, timeout: timedelta | None) -> float:
        """A worker with another profile may have scheduled the activity."""
        allowed = self._profile is not QUICK and timeout is not None and timeout >= self._profile.timeout
        return self._profile.interval_seconds if allowed else INTERVAL_SECONDS

    async def still_ours(self) -> bool:
        """Whether this activity is still this worker's to run.

        A task can lie in a worker whose event loop is blocked until the server has given it to another one; run
        then, it would happen twice. Only a late start is worth asking the server for.
        """
        info = activity.info()
        if info.is_local or self._lags.of(info.started_time) < LATE_START_SECONDS:
            return True
        handle = self._client.get_async_activity_handle(task_token=info.task_token)
        try:
            await handle.heartbeat(*info.heartbeat_details)  # what the tries before this one spent stays known
        except AsyncActivityCancelledError:
            return True  # the cancellation comes in by itself
        except RPCError as error:
            return error.status is not RPCStatusCode.NOT_FOUND
        return True

    def _watch(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS / 2):
            now, running = time.monotonic(), list(self._running)
            silent = [
                beat for beat in running if beat.last < now - beat.interval - INTERVAL_SECONDS / 2 and not beat.given_up
            ]
            if not silent:
                continue
            blocked = round(now - max(beat.by_loop for beat in running), 1)
            if blocked > LONGEST_STAND_IN_SECONDS:
                _log.error("loop.given_up", activities=len(silent), seconds=blocked)
                continue
            _log.warning("loop.blocked", activities=len(silent), seconds=blocked)
            with suppress(Exception):  # this thread is all that beats now
                asyncio.run(self._stand_in(silent))

    async def _stand_in(self, silent: list[Heartbeat]) -> None:
        # Whatever goes wrong here (it ended meanwhile, it is to be cancelled, the server is away) is the loop's own
        # to learn, once it runs again.
        await asyncio.gather(*map(self._beat_for, silent), return_exceptions=True)

    async def _beat_for(self, beat: Heartbeat) -> None:
        beat.last = time.monotonic()
        handle = self._client.get_async_activity_handle(task_token=beat.task_token)
        try:
            await handle.heartbeat(*beat.details, rpc_timeout=RPC_TIMEOUT)
        except AsyncActivityCancelledError:
            if beat.hands_over and beat.cancelled_at is None:
                beat.cancelled_at = time.monotonic()
