"""Ends Temporal's runtime before the interpreter exits, if this process has connected.

Each answer of the server comes from a thread of the SDK's runtime, which calls the event loop's
`call_soon_threadsafe`. That call writes to a socket, releases the GIL for that, and wakes the loop. A short program may
then end while the thread still waits for the GIL. CPython (up to 3.13) ends such a thread as soon as it asks for the
GIL, in the middle of Rust code, which aborts the process: "PyGILState_Release: thread state must be current when
releasing", or a segmentation fault (temporalio/sdk-python#300).

The runtime joins its threads when its last handle is dropped. Left alone, that happens during the interpreter's exit,
or never. Here it happens before the exit, with the GIL released, so that the threads can finish.

A worker that was cancelled may be without an end: if the loop's end also cancelled the answer to a task of Temporal's,
the SDK's core waits for that answer on a thread of its own, and the runtime for that thread, forever. Such a process
keeps its handles. No call of the loop's is under way then, so that no thread of the runtime asks for the GIL any more,
but for those that report the cancelled calls: they get a moment.

A forked process has none of the runtime's threads, and would wait for them forever. It keeps the handles that it was
forked with. The SDK refuses to connect there with its default runtime; with one of its own, a fork may hang or abort.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

_HANDLES = (
    ("temporalio.bridge.client", "Client"),
    ("temporalio.bridge.worker", "Worker"),
    ("temporalio.bridge.runtime", "Runtime"),
)
"""The classes whose objects keep a runtime alive. By name: a program without a worker need not import that one."""

_LONGEST_SECONDS = 5.0
"""The longest wait for a call that usually takes microseconds: for very slow machines."""

_MOMENT_SECONDS = 0.05
"""For threads that report to a loop that has ended. Each takes microseconds."""

_connected_in: set[int] = set()
"""The ids of this process and of those that it was forked from, as far as they have tried to connect."""


def runtime_is_used() -> None:
    """To be called before a connection is made."""
    _connected_in.add(os.getpid())


_cancelled_workers_in: set[int] = set()
"""The ids of the processes, of these, in which a worker was cancelled."""


def worker_was_cancelled() -> None:
    """To be called once a worker has ended that was cancelled, not stopped: the runtime may still wait for it."""
    _cancelled_workers_in.add(os.getpid())


# Registered at import: a program's own atexit functions, which may use a client, then mostly run before this one.
@atexit.register
def _end_runtimes() -> None:
    if os.getpid() not in _connected_in:
        return
    _wait_for_reports()
    if os.getpid() in _cancelled_workers_in:
        time.sleep(_MOMENT_SECONDS)
        _keep_handles()
        return
    for handle in _find_handles():
        handle._ref = None


def _after_fork() -> None:
    if _connected_in:
        _keep_handles()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _keep_handles() -> None:
    """Nothing drops the last one any more, and waits for the runtime's threads: also not the interpreter's exit."""
    for handle in _find_handles():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle._ref))


def _find_handles() -> list[Any]:
    if gc.get_freeze_count():
        gc.unfreeze()  # what is frozen is not listed; it stays unfrozen, since all of it may go now
    kinds = {getattr(sys.modules[module], name) for module, name in _HANDLES if module in sys.modules}
    # Not isinstance, which runs code of objects that pretend to be others.
    return [candidate for candidate in gc.get_objects() if type(candidate) in kinds]


def _wait_for_reports() -> None:
    """Waits for threads that report a new connection: each holds a handle. If that were the last one, the runtime would
    end on one of its own threads, and wait for itself."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while any(_threads_reporting()) and time.monotonic() < deadline:
        time.sleep(0.001)


def _threads_reporting() -> Iterator[bool]:
    """For each thread that Python did not start, whether it is about to wake an event loop."""
    own = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    for ident, frame in sys._current_frames().items():
        if ident not in own:
            outermost = frame
            while outermost.f_back:
                outermost = outermost.f_back
            yield outermost.f_code.co_name == "call_soon_threadsafe"
