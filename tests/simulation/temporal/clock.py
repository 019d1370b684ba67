"""Virtual time: an event loop whose clock jumps to the next thing that is due, so that a week of waiting takes no time.

Everything of a simulated world runs on one such loop, in one thread. What it does next depends on nothing but what it
did before, and on what was drawn from the seed: so a run can be repeated.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any
from unittest.mock import patch

from everturn.live.live_activities import LiveActivities

EPOCH = 1_767_225_600.0
"""The simulated world begins on 1 January 2026."""

ENVIRONMENT = {"SCRIPTED_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "simulated"}
"""A scripted model's limits are found by its URL, and the collector of a provider's batches by its key."""

LOGICAL_STEPS = 60_000
"""Of the loop, for one world: one that goes round in circles takes more. The largest takes some thousands."""

MOST_SECONDS = 60.0
"""Of the process's own time, for one world: then it is stopped at its next step; or, if there is none for as long
again, wherever it is. Most take less than one second."""


wrong_by = ContextVar("wrong_by", default=0.0)
"""Seconds by which the clock of the machine is wrong on which something runs. The server's is right."""

MANY_TIMERS = 100
"""Of more, those that were cancelled are cleared away now and then."""


class Stuck(Exception):
    """Everybody waits, and nothing is due: no timer, no activity, no person."""


class Endless(SystemExit):
    """It goes on and on. No Exception: what it interrupts must not catch it."""


class _Waiting(selectors._BaseSelectorImpl):
    """Waits for nothing but time."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.step(timeout)
        return []


class _Due(float):
    """When something is to be done, and what."""

    __slots__ = ("handle",)
    handle: asyncio.TimerHandle


class _Handle(asyncio.Handle):
    """Without debugging."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: VirtualLoop, context: Any) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the world began."""
        self.steps = 0
        self.overdue = False
        """It takes too much of the process's time."""
        self._due: list[_Due] = []
        self._cancelled = 0
        """So many of those that are due are not wanted any more."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Those of this world alone. The process has those of all worlds whose garbage is not collected yet."""
        super().__init__(_Waiting(self))
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    # As asyncio's own do, but without debugging, and with floats in the heap, which are compared in C.

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        due = _Due(when)
        due.handle = handle
        heapq.heappush(self._due, due)
        handle._scheduled = True
        return handle

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, **options)
        self.tasks.append(task)
        return task

    def unfinished(self) -> list[asyncio.Task[Any]]:
        self.tasks = [task for task in self.tasks if not task.done()]
        return self.tasks

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if handle._scheduled:
            self._cancelled += 1

    def _run_once(self) -> None:
        due, ready = self._due, self._ready
        if len(due) > MANY_TIMERS and self._cancelled / len(due) > 0.5:
            due = self._due = [one for one in due if not one.handle._cancelled]
            heapq.heapify(due)
            self._cancelled = 0
        while due and due[0].handle._cancelled:
            self._cancelled -= 1
            heapq.heappop(due).handle._scheduled = False
        if ready or self._stopping:
            self.step(0.0)
        else:
            self.step(max(0.0, due[0] - self.now) if due else None)
        end = self.now + self._clock_resolution
        while due and due[0] < end:
            handle = heapq.heappop(due).handle
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def step(self, timeout: float | None) -> None:
        self.steps += 1
        if self.steps > LOGICAL_STEPS or self.overdue:
            raise Endless(f"after {self.steps} steps and {self.now:.0f} s")
        if timeout is None:
            raise Stuck
        self.now += timeout

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """There are no threads: what would run in one runs here, and takes no time."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done

    def _make_self_pipe(self) -> None:
        pass

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


@contextmanager
def world(seed: int) -> Iterator[VirtualLoop]:
    """A loop with its own clock and its own chance, which all code in this process has until the block ends."""
    loop, chance = VirtualLoop(), random.Random(seed)
    before = time.time, time.monotonic, os.urandom, random.getstate(), LiveActivities.__init__.__defaults__
    time.time, time.monotonic = lambda: EPOCH + loop.now + wrong_by.get(), lambda: loop.now
    os.urandom = chance.randbytes  # where uuid4() has its bytes from
    random.seed(seed)
    LiveActivities.__init__.__defaults__ = tuple(  # type: ignore[misc]
        time.monotonic if one is before[1] else one for one in before[4] or ()
    )
    asyncio.set_event_loop(loop)
    try:
        with patch.dict(os.environ, ENVIRONMENT), _stopped_if_endless(loop):
            yield loop
    finally:
        with suppress(Endless), _stopped_if_endless(loop):
            _clear(loop)
        time.time, time.monotonic, os.urandom = before[:3]
        random.setstate(before[3])
        LiveActivities.__init__.__defaults__ = before[4]  # type: ignore[misc]
        asyncio.set_event_loop(None)
        loop.close()


@contextmanager
def _stopped_if_endless(loop: VirtualLoop) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return

    def on_time(*_: object) -> None:
        if loop.overdue:
            raise Endless(f"a step took {MOST_SECONDS:.0f} s of the process's time, after {loop.steps} steps")
        loop.overdue = True

    before = signal.signal(signal.SIGVTALRM, on_time)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
        loop.overdue = False


def _clear(loop: VirtualLoop) -> None:
    """Ends what is left: it belongs to a world that is over."""
    loop.set_exception_handler(lambda *_: None)
    for _ in range(5):
        left = loop.unfinished()
        if not left:
            return
        for task in left:
            task.cancel()
        loop.steps = 0
        loop.call_soon(loop.stop)
        for _ in range(20):
            loop.call_soon(loop.stop)
            loop.run_forever()
    for task in loop.unfinished():
        task._log_destroy_pending = False  # type: ignore[attr-defined]
