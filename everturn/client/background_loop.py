"""The event loop of programs that have none: it runs in one thread, which all sync clients of the process share."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextvars import Context, copy_context
from typing import Any, ClassVar, Final, TypeVar

# Before the `atexit.register` below: what is registered last is called first, and Temporal's runtime has to end last.
from everturn.client import interpreter_exit  # noqa: F401
from everturn.errors import InvalidSetting

R = TypeVar("R")

_LONGEST_CLEANUP_SECONDS: Final = 5.0
"""How long an interrupted call, or what is left when the loop ends, may take."""

_LOOK_SECONDS: Final = 1.0
"""On Windows, a thread that waits without an end can't be interrupted."""

_END: Final = object()


class BackgroundLoop:
    """One for the process. It begins with its first user, and ends with its last one, or with the interpreter."""

    _current: ClassVar[BackgroundLoop | None] = None
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._users = 0
        # A daemon: Python waits for other threads before it calls what `atexit` has, which ends this one.
        self._thread = threading.Thread(target=self._run_loop, name="everturn-sync", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> BackgroundLoop:
        """The loop, for one more user, who is to `release` it."""
        with cls._guard:
            if cls._current is None or not cls._current.is_usable:
                cls._current = cls()
            cls._current._users += 1
            return cls._current

    def release(self) -> None:
        """Ends the loop, and its thread, if this was its last user."""
        with self._guard:
            self._users -= 1
            if self._users:
                return
            if BackgroundLoop._current is self:
                BackgroundLoop._current = None
        self._end_loop()

    @property
    def is_usable(self) -> bool:
        """Whether it runs in this process: a forked one has no threads but its own."""
        return self._thread.is_alive() and self._pid == os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Waits for the coroutine. If this thread is interrupted meanwhile, the coroutine is cancelled."""
        if threading.current_thread() is self._thread or not self.is_usable:
            coroutine.close()
            raise self._unusable_error()
        result: Future[R] = Future()
        tasks: list[asyncio.Task[R]] = []
        self._loop.call_soon_threadsafe(_begin_task, coroutine, copy_context(), result, tasks)
        try:
            while not wait([result], timeout=_LOOK_SECONDS).done:
                if not self._thread.is_alive():  # it has begun too late to be cancelled with the others
                    raise CancelledError
            return result.result()
        except CancelledError:
            if self._users:
                raise
            raise InvalidSetting(
                "This sync client was closed in another thread, while this one waited for an answer.",
                cure="Close it once all threads are done with it. Conversations go on without it.",
            ) from None
        except BaseException:
            if not result.done():  # Ctrl-C, or another exception that a signal's handler has raised
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                wait([result], timeout=_LONGEST_CLEANUP_SECONDS)
            raise

    def iterate(self, items: AsyncIterator[R]) -> Iterator[R]:
        """The items, each waited for when it is asked for."""
        try:
            while (item := self.run(_next_item(items))) is not _END:
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and self.is_usable:
                if threading.current_thread() is self._thread:  # where it was found to be garbage
                    self._loop.create_task(close())
                else:
                    self.run(close())

    def _unusable_error(self) -> InvalidSetting:
        if threading.current_thread() is self._thread:
            return InvalidSetting(
                "A method of a sync client was called in its own event loop, which would wait for itself.",
                cure="In async functions of tools, hooks and deps, use `await Client.connect()`.",
            )
        if self._pid != os.getpid():
            return InvalidSetting(
                "This process was forked from one that had a sync client, whose thread it lacks.",
                cure="Fork before Client.connect_sync(), or start processes with multiprocessing's 'spawn'.",
            )
        return InvalidSetting("This sync client is closed.", cure="Client.connect_sync() makes another.")

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _end_loop(self) -> None:
        if self.is_usable and threading.current_thread() is not self._thread:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_LONGEST_CLEANUP_SECONDS)

    @classmethod
    def end_with_the_interpreter(cls) -> None:
        """Ends the loop whose users were not closed."""
        if cls._current is not None:
            cls._current._end_loop()


atexit.register(BackgroundLoop.end_with_the_interpreter)


class LoopUser:
    """What waits for a background loop: a sync client or conversation."""

    def __init__(self, loop: BackgroundLoop) -> None:
        self.loop = loop


def _begin_task(
    coroutine: Coroutine[Any, Any, R], context: Context, result: Future[R], tasks: list[asyncio.Task[R]]
) -> None:
    """`context`: that of the caller, with the span that it is in."""
    task = asyncio.get_running_loop().create_task(coroutine, context=context)
    tasks.append(task)
    task.add_done_callback(lambda task: _settle_result(task, result))


def _settle_result(task: asyncio.Task[R], result: Future[R]) -> None:
    if task.cancelled():
        result.cancel()
        result.set_running_or_notify_cancel()  # who waits for it is not woken before
    elif error := task.exception():
        result.set_exception(error)
    else:
        result.set_result(task.result())


async def _next_item(items: AsyncIterator[Any]) -> Any:
    return await anext(items, _END)
