"""Virtual time: an event loop whose clock jumps to the next thing that is due, so that a week of waiting takes no time.

Everything of a simulated world runs on one such loop, in one thread. What it does next depends on nothing but what it
did before, and on what was drawn from the seed: so a run can be repeated.
"""

from __future__ import annotations

import asyncio
import os
import random
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from everturn.client.streaming import LiveActivities

EPOCH = 1_767_225_600.0
"""The simulated world begins on 1 January 2026."""

LOGICAL_STEPS = 400_000
"""Of the loop, for one conversation: one that goes round in circles takes more."""


class Stuck(Exception):
    """Everybody waits, and nothing is due: no timer, no activity, no person."""


class Endless(Exception):
    """It goes on and on."""


class _Waiting(selectors._BaseSelectorImpl):
    """Waits for nothing but time."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.step(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the world began."""
        self.steps = 0
        super().__init__(_Waiting(self))
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    def step(self, timeout: float | None) -> None:
        self.steps += 1
        if self.steps > LOGICAL_STEPS:
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
    time.time, time.monotonic = lambda: EPOCH + loop.now, lambda: loop.now
    os.urandom = chance.randbytes  # where uuid4() has its bytes from
    random.seed(seed)
    LiveActivities.__init__.__defaults__ = tuple(  # type: ignore[misc]
        time.monotonic if one is before[1] else one for one in before[4] or ()
    )
    asyncio.set_event_loop(loop)
    try:
        with patch.dict(os.environ, {"SCRIPTED_BASE_URL": "http://127.0.0.1:1/v1"}):  # its limits are found by it
            yield loop
    finally:
        _clear(loop)
        time.time, time.monotonic, os.urandom = before[:3]
        random.setstate(before[3])
        LiveActivities.__init__.__defaults__ = before[4]  # type: ignore[misc]
        asyncio.set_event_loop(None)
        loop.close()


def _clear(loop: VirtualLoop) -> None:
    """Ends what is left: it belongs to a world that is over."""
    loop.set_exception_handler(lambda *_: None)
    for _ in range(5):
        left = asyncio.all_tasks(loop)
        if not left:
            return
        for task in left:
            task.cancel()
        loop.steps = 0
        loop.call_soon(loop.stop)
        for _ in range(20):
            loop.call_soon(loop.stop)
            loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
