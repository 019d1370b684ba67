"""Watches workflow code while it runs, for what differs on a replay: what a reader of the source can't see.

Python tells a thread's profiler of each call, those in C included. What counts is who calls: everturn's code, by
itself or by way of the standard library. What Temporal's SDK does in a workflow's thread is its own business.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import datetime
import dis
import gc
import io
import logging
import os
import posix
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

from temporalio import workflow

from tests.support.excused import HARMLESS, NOT_CALLED

STANDARD = sys.stdlib_module_names


def _of(module: Any, *, but: Collection[str] = ()) -> list[Any]:
    """The functions of a module that is written in C."""
    named = [getattr(module, name) for name in vars(module) if name not in but and not name.startswith("_")]
    return [one for one in named if type(one) is type(time.time)]


IN_C: frozenset[Any] = frozenset(
    [
        *_of(time, but=("gmtime", "mktime", "strftime", "strptime", "asctime")),
        *_of(posix, but=("fspath",)),
        datetime.date.today,
        datetime.datetime.now,
        datetime.datetime.today,
        datetime.datetime.utcnow,
        random.random,
        random.getrandbits,
        builtins.input,
        builtins.print,
        io.open,
        io.open_code,
        threading.Lock,
        threading.RLock,
        *_of(socket),
    ]
)

IN_C_OF_OURS = frozenset({builtins.id, builtins.hash})
"""Only if everturn's own code calls them: the standard library knows what it does with them."""

IN_PYTHON: dict[CodeType, str] = {
    function.__code__: f"{function.__module__}.{function.__qualname__}"
    for function in (
        type(os.environ).__getitem__,
        type(os.environ).__iter__,
        asyncio.to_thread,
        asyncio.wait,
        asyncio.as_completed,
        concurrent.futures.ThreadPoolExecutor.submit,
        logging.Logger.handle,
        secrets.token_bytes,
        socket.socket.__init__,
        subprocess.Popen.__init__,
        threading.Thread.start,
        uuid.uuid1,
        uuid.uuid4,
        workflow.unsafe.is_replaying,
    )
}


@contextmanager
def watched(*, not_called: Collection[str] = NOT_CALLED, harmless: Collection[str] = HARMLESS) -> Iterator[list[str]]:
    """Gives a list of what workflows did that they should not: in all threads that begin in here. `not_called` and
    `harmless` are functions of everturn's, as `module:Qualified.name`: workflows call none of the first, and what the
    second do is left alone."""
    seen: list[str] = []
    before = threading.getprofile()
    # What earlier tests left to the garbage collector would end in whatever function it comes to run in.
    collects = gc.isenabled()
    gc.disable()
    threading.setprofile(_watcher(seen.append, frozenset(not_called), frozenset(harmless)))
    try:
        yield seen
    finally:
        threading.setprofile(before)  # type: ignore[arg-type]  # None takes it away
        if collects:
            gc.enable()


def _watcher(
    saw: Callable[[str], None], not_called: frozenset[str], harmless: frozenset[str]
) -> Callable[[FrameType, str, Any], None]:
    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            if called in IN_C:
                caller = _ours(frame)
            elif called in IN_C_OF_OURS and frame.f_code.co_name != "__hash__":
                caller = frame if _is_ours(frame) else None
            else:
                return
            what = f"{called.__module__ or called.__self__}.{called.__name__}"
        elif event == "call" and _begins(frame):
            if what := IN_PYTHON.get(frame.f_code, ""):
                caller = _ours(frame.f_back)
            elif _is_ours(frame) and (what := _place(frame)) in not_called:
                caller = frame
            else:
                return
        else:
            return
        if caller is not None and workflow.in_workflow() and _place(caller) not in harmless:
            saw(f"{what}, at {_place(caller)}, line {caller.f_lineno}")

    return watch


def _begins(frame: FrameType) -> bool:
    """A coroutine that goes on, or is thrown away where it waits, is told of as a call, too."""
    return frame.f_lasti <= _start(frame.f_code)


@cache
def _start(code: CodeType) -> int:
    return next(instruction.offset for instruction in dis.get_instructions(code) if instruction.opname == "RESUME")


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name == "everturn" or name.startswith("everturn.")


def _ours(frame: FrameType | None) -> FrameType | None:
    """Whose call it is, by way of the standard library: everturn's frame, or None."""
    while frame is not None:
        if _is_ours(frame):
            return frame
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in STANDARD or name.startswith("importlib"):
            return None  # a module that is imported late is read from its file, once
        frame = frame.f_back
    return None


def _place(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}".replace(".<locals>", "")
