"""Runs users' code: tools, predicates, policies, validators, and whatever turns their values into text.

Such code may hang, block, die or lie. That must not harm the worker:

- A sync function runs in a daemon thread, so that neither the event loop nor the end of the process waits for it. An
  async one runs on the loop, in a task of its own, so that it can only harm that task.
- Whatever it raises becomes an Exception. Its own KeyboardInterrupt or CancelledError would look like a real one: it
  would end the worker, or a paid reply would be requested again.
- It has a timeout, which begins when the code does, since no call waits for a thread. Code that runs longer is
  abandoned: a thread can't be stopped, and a task may ignore that it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import CodeType
from typing import Any, TypeVar

from everturn.logs import get_logger

T = TypeVar("T")

MOST_THREADS = 1_000
"""The most threads of one pool. A worker runs far fewer calls at a time: the rest are stuck in code that never ends."""

CLEAN_UP_SECONDS = 2.0
"""How long an async function may go on after it was cancelled, for its `finally`."""

QUICK_SECONDS = 20.0
"""The timeout of code that only decides: a predicate, a policy, a validator."""

_PACKAGE = Path(__file__).parents[1]

_log = get_logger("everturn.worker")


_NAME = type.__dict__["__name__"]


def class_name(value: object) -> str:
    """Of a user's value or exception. Its metaclass may answer `__name__` by itself, and raise."""
    return str(_NAME.__get__(type(value)))


class TookTooLong(Exception):
    """It ran for longer than its timeout, and was abandoned."""

    def __init__(self) -> None:
        super().__init__("it did not end in time")


class NoThread(Exception):
    """It has not begun: this worker's threads are stuck in calls that did not end."""

    def __init__(self) -> None:
        super().__init__("no thread was free: too many are stuck in calls that did not end")


class Threads(Executor):
    """Daemon threads, one for each running call. Idle ones are used again; no call waits for a busy one.

    A process can't exit before the threads of `concurrent.futures` end: see its `threading._register_atexit`.
    """

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._alive = 0
        self._idle = 0
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Raises NoThread if all are busy."""
        future: Future[Any] = Future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._alive >= self._most or not self._start_thread():
                raise NoThread
        self._work.put(partial(self._fulfil_future, future, partial(function, *args, **kwargs)))
        return future

    def _start_thread(self) -> bool:
        try:
            threading.Thread(target=self._run_work, name="everturn-user-code", daemon=True).start()
        except RuntimeError:  # the system has no more
            return False
        self._alive += 1
        return True

    def _run_work(self) -> None:
        while work := self._work.get():
            work()
            del work  # or it would hold its result until the next call

    def _fulfil_future(self, future: Future[Any], function: Callable[[], Any]) -> None:
        error = None
        value = None
        if wanted := future.set_running_or_notify_cancel():
            try:
                value = function()
            except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the caller's to know
                error = raised
        with self._lock:  # before the caller gets the result: it may submit the next call at once
            if self._closed:
                self._work.put(None)
            else:
                self._idle += 1
        if wanted and error is not None:
            future.set_exception(error)
        elif wanted:
            future.set_result(value)

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as the base has it
        """Ends the idle threads. Does not wait for busy ones."""
        with self._lock:
            self._closed = True
            idle = self._idle
            self._idle = 0
        for _ in range(idle):
            self._work.put(None)


_PLAIN = (str, int, float, bool, type(None))

_threads = Threads()
"""For everything but tools: predicates can still run when tools have used up their own threads."""


async def call(
    function: Callable[[], Any],
    *,
    seconds: float | None,
    finish: Callable[[Any], Any] | None = None,
    threads: Executor | None = None,
    name: str | None = None,
    on_begin: Callable[[], None] | None = None,
) -> Any:
    """Calls a sync or async function; returns its result as `finish` converts it. Both together take `seconds` at most.
    `name`: what the log calls it if it blocks the event loop, such as a tool's name. `on_begin` is called just before
    the function, in its thread: other code of the loop may run, and block it, before a task begins.

    Both see the caller's context variables. Raises TookTooLong, NoThread, or whatever they raise, as an Exception;
    CancelledError only if the caller is cancelled.
    """
    task = asyncio.create_task(_run_function(function, finish, threads or _threads, on_begin), name=name)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        if await _cancel_and_wait(task):
            return _result_of(task)  # it had done its work, and a result is not to be lost
        raise
    if task.done() or await _cancel_and_wait(task):
        return _result_of(task)
    raise TookTooLong


async def in_thread(function: Callable[[], T], *, seconds: float | None = None) -> T:
    """Runs a sync function in a thread, for QUICK_SECONDS at most unless `seconds` is given. Raises as `call` does."""
    if seconds is None:
        seconds = QUICK_SECONDS
    result: T = await call(function, seconds=seconds)
    return result


async def _run_function(
    function: Callable[[], Any],
    finish: Callable[[Any], Any] | None,
    threads: Executor,
    on_begin: Callable[[], None] | None,
) -> Any:
    if not is_async(function):
        value = await _in_a_thread(partial(_finished_at_once, function, finish, on_begin), threads)
        if not inspect.isawaitable(value):
            return value
        function = partial(_await_value, value)
    elif on_begin:
        on_begin()
    value = await _errors_only_of(function)
    if finish is None:
        return value
    if type(value) in _PLAIN:  # converting these runs no user code, and a thread would cost more than all the rest
        return finish(value)
    return await _in_a_thread(partial(finish, value), threads)


async def _await_value(value: Awaitable[Any]) -> Any:
    return await value


def _finished_at_once(
    function: Callable[[], Any], finish: Callable[[Any], Any] | None, on_begin: Callable[[], None] | None
) -> Any:
    if on_begin:
        on_begin()
    value = function()
    if finish is None or inspect.isawaitable(value):
        return value
    return finish(value)


async def _in_a_thread(function: Callable[[], Any], threads: Executor) -> Any:
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, context.run, _errors_only, function)


def _errors_only(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except BaseException as error:
        if isinstance(error, StopIteration) or not isinstance(error, Exception):
            raise _as_error(error) from error
        raise


async def _errors_only_of(function: Callable[[], Awaitable[Any]]) -> Any:
    """Converts errors in the task, not in `_result_of`: KeyboardInterrupt or SystemExit of a task ends the loop."""
    try:
        return await function()
    except (KeyboardInterrupt, SystemExit) as error:
        raise _as_error(error) from error
    except asyncio.CancelledError as error:
        if asyncio.current_task() in _cancelled:
            raise
        raise _as_error(error) from error


@dataclass(frozen=True)
class RunningCode:
    """User code that an event loop is in the middle of."""

    name: str | None
    """As `call` was given it."""
    place: str
    """`charge, in shop.py:12`."""


def code_blocking_loop(loop: asyncio.AbstractEventLoop, thread_id: int) -> RunningCode | None:
    """The async user code that holds this event loop right now, seen from another thread; None if none does."""
    frame = sys._current_frames().get(thread_id)
    user_frame = None
    while frame is not None and frame.f_code is not _errors_only_of.__code__:
        user_frame = frame
        frame = frame.f_back
    task = asyncio.current_task(loop)
    if frame is None or user_frame is None or task is None:
        return None
    name = task.get_name()
    return RunningCode(None if name.startswith("Task-") else name, _place_in(user_frame.f_code, user_frame.f_lineno))


def raised_at(error: BaseException) -> str:
    """The line of the user's function that raised it, or called what did, as in RunningCode; empty if code of ours
    raised it."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if Path(frame.f_code.co_filename).is_relative_to(_PACKAGE):
            place = ""
        elif not place:
            place = _place_in(frame.f_code, line)
    return place


def _place_in(code: CodeType, line: int) -> str:
    return f"{code.co_name}, in {Path(code.co_filename).name}:{line}"


def _as_error(error: BaseException) -> RuntimeError:
    if isinstance(error, SystemExit):  # of argparse, say: it is the function that gives up, not the worker
        return RuntimeError(f"the function called sys.exit({error.code!r})")
    return RuntimeError(f"the function raised {class_name(error)}")


def _result_of(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():  # by the function itself
        raise _as_error(asyncio.CancelledError())
    error = task.exception()
    if error is None or isinstance(error, Exception):
        return task.result()
    raise _as_error(error) from error


_cancelled: set[asyncio.Task[Any]] = set()
"""Tasks that `call` has cancelled, until they end."""


async def _cancel_and_wait(task: asyncio.Task[Any]) -> bool:
    """Cancels the task if it still runs. Returns whether it has ended by itself, with a result or an error.

    A task that does not end is removed from asyncio's list: the loop would wait for it before it closes.
    """
    if not task.done():
        _cancelled.add(task)
        task.add_done_callback(_forget_task)
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=CLEAN_UP_SECONDS)
        finally:
            if not task.done():
                asyncio.tasks._unregister_task(task)
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _log.warning("user_code.left_behind", reason="it goes on although it was cancelled")
    return task.done() and not task.cancelled()


def _forget_task(task: asyncio.Task[Any]) -> None:
    _cancelled.discard(task)
    if not task.cancelled():
        task.exception()  # or asyncio would say that nobody asked for it


def is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
