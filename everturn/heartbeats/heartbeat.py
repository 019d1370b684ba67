"""Sends the heartbeats of every activity, even while user code blocks the event loop.

While the event loop runs, each activity beats through it, and cancellations come in the same way. If a tool blocks the
loop, its worker would fall silent and be taken for dead: then a thread of the worker beats in the loop's place. Code
that holds Python's global lock (GIL) silences that thread, too.
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

import temporalio.worker
from pydantic_core import from_json, to_json
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.service import RPCError

from everturn.activities.attempts import Lags
from everturn.heartbeats.beats_through_core import BeatThroughCore, through_core
from everturn.heartbeats.details import Streamed
from everturn.heartbeats.profiles import QUICK, HeartbeatProfile
from everturn.heartbeats.task_intake import TaskIntake, taking_tasks
from everturn.logs import get_logger
from everturn.lost_workers.journal import RPC_TIMEOUT, Journal, task_of, token_of
from everturn.lost_workers.poison_calls import details_left, first_details, too_late
from everturn.sizes import MAX_PROGRESS_BYTES, MAX_PROGRESS_TEXT_BYTES, shortened
from everturn.temporal.temporal_errors import not_found
from everturn.text.utf8 import mend
from everturn.tools.results import iterator_in
from everturn.tools.user_code import code_blocking_loop

INTERVAL_SECONDS = QUICK.interval_seconds
"""Between two beats, unless the worker's profile says more and the activity's time-out allows it."""

PROGRESS_SECONDS = 0.5
"""How soon a beat carries the progress that a tool reports, however often it does. Under a thrifty profile, the next
ordinary beat carries it."""

LONGEST_STAND_IN_SECONDS = 600.0
"""How long the thread beats for a blocked loop. Then the worker loses all its activities to other workers."""

LATE_START_SECONDS = 2.0

HURRIED_SECONDS = 0.3
"""How soon activities beat after their conversation has cancelled something. By then the server knows of it."""

HANDED_OVER_SECONDS = 5.0
"""How long a cancelled model turn may take to end: its conversation waits for what it hands over. After that it gets no
more beats, so that the server ends it."""

_log = get_logger("everturn.worker")


@dataclass(eq=False)
class Heartbeat:
    """One running activity."""

    task_token: bytes
    loop: asyncio.AbstractEventLoop
    details_left: dict[str, Any] = field(default_factory=dict)
    """What this try leaves to the next: the first heartbeat detail."""
    progress: Any = None
    """What the activity last said of itself; each beat carries it."""
    speak: Callable[[], Any] | None = None
    """Gives what a beat carries in place of `progress`. May be called from any thread."""
    reply_so_far: Callable[[], Streamed | None] | None = None
    """All that a model turn has said so far, as far as it is kept."""
    interval: float = field(default_factory=lambda: INTERVAL_SECONDS)
    """Seconds between two beats."""
    waits: Any = None
    """What it waits for now, in place of its progress."""
    run_id: str = ""
    """The workflow run that it belongs to."""
    last: float = field(default_factory=time.monotonic)
    by_loop: float = field(default_factory=time.monotonic)
    """When the loop itself last sent a beat."""
    cancelled: bool = False
    hands_over: bool = False
    """Whether the conversation waits for its result after cancelling it."""
    cancelled_at: float | None = None
    """When it was seen to be cancelled, in `time.monotonic()`; only if `hands_over`."""
    timer: asyncio.Handle | None = None
    due: float = 0.0
    """When the timer goes off, in `time.monotonic()`."""
    context: Context = field(default_factory=copy_context)
    """The activity's own, which activity.heartbeat() needs."""

    def beat_within(self, seconds: float) -> None:
        """Sees to it that a beat comes within so many seconds of the last one. To be called on the loop."""
        if self.timer and self.due > self.last + seconds:
            self._beat_in(max(0.0, self.last + seconds - time.monotonic()))

    def beat_sooner(self) -> None:
        """From now on, beats as often as a quick worker, unless it is over. To be called on the loop."""
        self.interval = min(self.interval, INTERVAL_SECONDS)
        if self.timer:
            self._beat_in(min(self.interval, HURRIED_SECONDS))

    def report_progress(self, progress: Any) -> None:
        """Sets what the next beat carries, as it is now. May be called from any thread.

        A large value, or one that JSON can't hold, is shortened: a beat that can't be sent would end the running tool.
        """
        self.progress = _progress_copy(progress)
        with suppress(RuntimeError):  # a thread that outlives its activity may outlive the loop
            soon = self.interval if self.interval > INTERVAL_SECONDS else PROGRESS_SECONDS
            self.loop.call_soon_threadsafe(self.beat_within, soon)

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
        """Whether it was cancelled HANDED_OVER_SECONDS ago and has not ended."""
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
        first_detail = dict(self.details_left) or None
        if progress is None:
            return () if first_detail is None else (first_detail,)
        return (first_detail, progress)


def is_unwanted() -> bool:
    """Whether the conversation has cancelled the activity that runs here. A shutdown of its worker does not count."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


_here: ContextVar[Heartbeat | None] = ContextVar("here", default=None)


def this_heartbeat() -> Heartbeat | None:
    """The heartbeat of the activity that runs here."""
    return _here.get()


def _progress_copy(progress: Any) -> Any:
    """A copy of the user's value, as JSON has it: the user may change the value meanwhile."""
    try:
        if iterator_in(progress, seen=set()) is not None:
            return _as_text(repr(progress))
        written = to_json(progress, inf_nan_mode="strings")
        return from_json(written) if len(written) <= MAX_PROGRESS_BYTES else _as_text(written.decode())
    except Exception:  # noqa: BLE001 - it is the user's value
        with suppress(Exception):
            return _as_text(repr(progress))
        return type(progress).__name__


def _as_text(progress: str) -> str:
    return shortened(mend(progress), max_bytes=MAX_PROGRESS_TEXT_BYTES, max_chars=MAX_PROGRESS_TEXT_BYTES)


class Heartbeats:
    """Beats for all activities of a worker; start and stop it with the worker."""

    def __init__(self, client: Client, journal: Journal, profile: HeartbeatProfile = QUICK) -> None:
        self._client = client
        self._profile = profile
        self._journal = journal
        self._lags = Lags()
        self._running: set[Heartbeat] = set()
        self._ending: dict[bytes, Heartbeat] = {}
        """By task token: those that are over, and whose result the SDK has not got yet. It is on its way, through the
        event loop and perhaps through external storage."""
        self.through_core: BeatThroughCore | None = None
        """Set once the worker is there, if its SDK allows it. Without it, a loop that is blocked for longer than the
        heartbeat timeout and five seconds loses what the worker runs."""
        self.intake: TaskIntake | None = None
        """Set once the worker is there, if its SDK allows it. Without it, an activity that the worker has and has not
        begun has no heartbeats."""
        self._loop_thread = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch_loop, name="everturn-heart", daemon=True)

    def __enter__(self) -> Self:
        self._loop_thread = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=10)

    @contextmanager
    def beating(self, *, begins: bool = True) -> Iterator[Heartbeat]:
        """Beats for the activity that runs here until the block is left. `begins`: from here on, it may take effect;
        otherwise `begin_tool` says when."""
        info = activity.info()
        beat = Heartbeat(
            info.task_token,
            asyncio.get_running_loop(),
            details_left=details_left(),
            interval=self._interval_for(info.heartbeat_timeout),
            run_id=info.workflow_run_id or "",
        )
        beat.start()
        self._running.add(beat)
        self.begin_activity(info)
        token = _here.set(beat)
        try:
            self._journal.take_task(
                task_of(
                    info.task_token,
                    conversation_id=info.workflow_id or "",
                    run_id=info.workflow_run_id or "",
                    activity=info.activity_type,
                )
            )
            if begins:
                self.begin_tool(info.task_token)
            yield beat
        finally:
            _here.reset(token)
            self._running.discard(beat)
            beat.stop()
            if self.intake:
                self._ending[info.task_token] = beat
            else:
                self._journal.drop_task(token_of(info.task_token))

    def take_from(self, worker: temporalio.worker.Worker) -> None:
        """To be called before the worker runs: from then on, what it is given has heartbeats, begun or not."""
        self.through_core = through_core(worker)
        self.intake = taking_tasks(
            worker,
            self._journal,
            on_complete=self._forget_ended,
            look_seconds=INTERVAL_SECONDS / 2,
            longest_seconds=LONGEST_STAND_IN_SECONDS,
        )

    def begin_activity(self, info: activity.Info) -> None:
        """The activity is begun: whether it has heartbeats is its own business now."""
        if self.intake:
            self.intake.begin_task(info.task_token)

    def begin_tool(self, task_token: bytes) -> None:
        """The tool of this activity begins: from here on, it may take effect. May be called from any thread, and again
        for the same activity."""
        self._journal.begin_task(token_of(task_token))

    def _forget_ended(self, task_token: bytes) -> None:
        """The SDK's core has the activity's result."""
        self._ending.pop(task_token, None)
        self._journal.drop_task(token_of(task_token))

    def hurry_run(self, run_id: str) -> None:
        """To be called if a workflow run cancels something. The run's activities on this worker then beat soon, and so
        learn whether it is one of them. May be called from any thread."""
        for beat in [beat for beat in list(self._running) if beat.run_id == run_id]:
            with suppress(RuntimeError):
                beat.loop.call_soon_threadsafe(beat.beat_sooner)

    def _interval_for(self, timeout: timedelta | None) -> float:
        """Seconds between two beats. A worker with another profile may have set the activity's time-out."""
        if self._profile is QUICK or timeout is None or timeout < self._profile.timeout:
            return INTERVAL_SECONDS
        return self._profile.interval_seconds

    async def check_ours(self) -> None:
        """Raises the error of a try that came too late, if this activity is no longer this worker's to run.

        A task can wait in a worker that is frozen, or whose event loop is blocked, until the server has given it to
        another worker. If both ran it, it would happen twice. The server is asked only after a late start.
        """
        info = activity.info()
        if info.is_local or self._lags.lag_of(info.started_time) < LATE_START_SECONDS:
            return
        handle = self._client.get_async_activity_handle(task_token=info.task_token)
        try:
            await handle.heartbeat(*first_details())  # keeps what earlier tries left
        except AsyncActivityCancelledError:
            return  # the cancellation comes in by itself
        except RPCError as error:
            if not_found(error):
                raise too_late() from None

    def _watch_loop(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS / 2):
            now = time.monotonic()
            running = list(self._running)
            ending = list(self._ending.values())
            silent_beats = [
                beat
                for beat in (*running, *ending)
                if beat.last < now - beat.interval - INTERVAL_SECONDS / 2 and not beat.given_up
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
