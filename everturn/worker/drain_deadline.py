"""How a worker process ends: within its drain and some seconds more, whatever its tools do."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final, NoReturn

from everturn import logs

GRACE_SECONDS = 10.0
"""Beyond its drain, for a process to end by itself."""

_DRAINING_SECONDS: Final = 10.0
"""Between two log lines that say how much time is left."""


@contextmanager
def drain_within(*, within: timedelta) -> Iterator[None]:
    """Once SIGINT or SIGTERM comes, the process has so long to leave the block, and the log says how much of that is
    left. After that and GRACE_SECONDS it ends all the same: a tool that blocks the event loop would keep it from ever
    draining. A second signal ends it at once. To be entered in the main thread, once the other handlers of these
    signals are set."""
    process_end = _ProcessEnd(within.total_seconds())
    inner = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle_signal(number: int, frame: FrameType | None) -> None:
        process_end.note_signal(signal.Signals(number))
        if callable(before := inner[signal.Signals(number)]):
            before(number, frame)

    for number in inner:
        signal.signal(number, handle_signal)
    try:
        yield
    finally:
        process_end.note_left()


class _ProcessEnd:
    """Ends the process from a thread of its own: the event loop may be blocked."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = False
        self._news: SimpleQueue[signal.Signals | None] = SimpleQueue()  # what a signal handler may put into
        """The second signal; or None, once the block is left."""
        self._log = logs.get_logger("everturn.worker")

    def note_signal(self, number: signal.Signals) -> None:
        if self._begun:
            self._news.put(number)
        else:
            self._begun = True
            threading.Thread(target=self._wait_for_end, name="everturn-end", daemon=True).start()

    def note_left(self) -> None:
        self._news.put(None)

    def _wait_for_end(self) -> None:
        ends = time.monotonic() + self._seconds
        try:
            while (remaining := ends - time.monotonic()) > 0:
                effect = "Running calls may finish. A second Ctrl-C or SIGTERM ends them at once."
                self._log.info("worker.draining", seconds=round(remaining, 1), effect=effect)
                with suppress(Empty):
                    return self._end_at_once(self._news.get(timeout=min(remaining, _DRAINING_SECONDS)))
            self._end_at_once(self._news.get(timeout=GRACE_SECONDS))
        except Empty:
            seconds = round(self._seconds + GRACE_SECONDS, 1)
            cure = "A tool blocks the event loop, or never ends."
            self._log.error("worker.stuck", seconds=seconds, cure=cure)
            end_process(1)

    def _end_at_once(self, second: signal.Signals | None) -> None:
        if second is not None:
            effect = "Other workers take over its running calls."
            self._log.warning("worker.ended_at_once", signal=second.name, effect=effect)
            end_process(128 + second)


def end_process(status: int) -> NoReturn:
    """Ends it with this exit status, once everything is closed.

    Not sys.exit, which waits for threads: a tool that hangs would keep its process from ever ending.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
