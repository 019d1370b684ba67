"""The heartbeat of one running activity: what it carries, and when the event loop sends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json
from temporalio import activity

from everturn.heartbeats.details import StreamedText
from everturn.heartbeats.profiles import QUICK
from everturn.sizes import MAX_PROGRESS_BYTES, MAX_PROGRESS_TEXT_BYTES
from everturn.text.shortening import shortened
from everturn.text.utf8 import mend
from everturn.tools.results import iterator_in

INTERVAL_SECONDS = QUICK.interval_seconds
"""Between two beats, unless the worker's profile says more and the activity's time-out allows it."""

PROGRESS_SECONDS = 0.5
"""How soon a beat carries the progress that a tool reports, however often it does. Under a thrifty profile, the next
ordinary beat carries it."""

HURRIED_SECONDS = 0.3
"""How soon activities beat after their conversation has cancelled something. By then the server knows of it."""

HANDED_OVER_SECONDS = 5.0
"""How long a cancelled model turn may take to end: its conversation waits for what it hands over. After that it gets no
more beats, so that the server ends it."""


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
    reply_so_far: Callable[[], StreamedText | None] | None = None
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


@contextmanager
def as_this_heartbeat(beat: Heartbeat) -> Iterator[None]:
    """In the block, it is the heartbeat of the activity that runs here."""
    token = _here.set(beat)
    try:
        yield
    finally:
        _here.reset(token)


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
