"""A process that has imported what `everturn` and its workers import, and is forked for each program of a test.
tests/support/prepared.py runs this file, and speaks to it."""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import time
import types
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

NUMBER_BYTES = 4


LIBRARIES = (
    *("temporalio.worker", "temporalio.client", "httpx", "httpcore", "anyio._backends._asyncio"),
    *("temporalio.envconfig", "uvloop"),
    *("mcp.server.mcpserver", "uvicorn"),  # the servers of tests/support/mcp_*.py
    "pytest",  # what a program imports of a test's file
)
EVERTURN = (
    *("everturn.worker.worker", "everturn.worker.plugin", "everturn.client.client", "everturn.live.text_server"),
    *("everturn.testing", "everturn.providers.openai_chat", "everturn.providers.background", "everturn.web.app"),
    *("everturn.worker.process", "everturn.text.log_lines", "everturn.loading", "everturn.devserver"),
    *("everturn.providers.tool_schemas", "everturn.text.secrets"),
)


def prepare(*, everturn: bool) -> None:
    """Imports what a command may import. None of it may start a thread: a fork has only the one that forked. Without
    `everturn`: what it is made of, for programs whose everturn is another one."""
    for name in LIBRARIES:
        importlib.import_module(name)
    if everturn:
        commands = importlib.import_module("everturn.cli")
        for name in (*EVERTURN, *(f"everturn.cli.{module.name}" for module in pkgutil.iter_modules(commands.__path__))):
            importlib.import_module(name)
        # Typer reads the annotations of all commands for each one that is run, which takes a tenth of a second.
        typer = importlib.import_module("typer.main")
        typer.get_command = cache(typer.get_command)
        typer.get_command(commands.app)
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, f"an import started threads: {len(threads)}"
    gc.collect()
    gc.freeze()
    # What is frozen here is no program's: one that looks for its own objects as it ends, as everturn does, need not see
    # these, nor does Python look through them again: that took 0.7 s of CPU.
    frozen, count = gc.get_freeze_count(), gc.get_freeze_count
    gc.get_freeze_count = lambda: max(0, count() - frozen)


def serve(control: socket.socket, doors: socket.socket) -> dict[str, Any] | None:
    """In each fork: what it is to be. In this process: None, once nobody starts programs any more. Who comes through
    `doors` (see through_a_door.py) ends with its program, and the program with it. That may be a process like this one,
    for another process that runs tests: it is asked for nothing, and has its own `control` and `doors`."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by the file descriptor of the process: its id, who waits
    at_doors: dict[socket.socket, int] = {}  # the file descriptor of the process
    while True:
        waited_for: list[Any] = [control, doors, *running, *at_doors]
        ready, _, _ = select.select(waited_for, [], [])
        for process in running.keys() & set(ready):
            pid, waits = running.pop(process)
            os.close(process)
            _, status = os.waitpid(pid, 0)
            at_doors.pop(waits, None)
            with waits:
                tell(waits, status)
        for gone in at_doors.keys() & set(ready):
            signal.pidfd_send_signal(at_doors.pop(gone), signal.SIGKILL)
        if control in ready:
            length, given, _, _ = socket.recv_fds(control, NUMBER_BYTES, 4)
            if not length:
                return None
            asking, waits = control, socket.socket(fileno=given.pop(0))
        elif doors in ready:
            asking = waits = doors.accept()[0]
            length, given, _, _ = socket.recv_fds(asking, NUMBER_BYTES, 3)
            if not length:
                waits.close()
                continue
        else:
            continue
        asked = json.loads(asking.recv(int.from_bytes(length), socket.MSG_WAITALL))
        if not (pid := os.fork()):
            for process, (_, other) in running.items():
                os.close(process)
                other.close()
            for kept in (control, doors, waits):
                kept.close()
            if not asked:
                own_control, own_doors = (socket.socket(fileno=number) for number in given)
                tell(own_control, os.getpid())
                return serve(own_control, own_doors)
            for number, stream in enumerate(given):
                os.dup2(stream, number)
                os.close(stream)
            return dict(asked)
        for stream in given:
            os.close(stream)
        process = os.pidfd_open(pid)
        running[process] = (pid, waits)
        if asking is waits:
            at_doors[waits] = process
        else:
            tell(waits, pid)


def tell(waits: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits any more
        waits.sendall(number.to_bytes(NUMBER_BYTES))


def become(folder: str, environment: dict[str, str], arguments: list[str]) -> None:
    """What Python's own start does of it that can differ from one program to the next."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    open_streams(unbuffered=bool(environment.get("PYTHONUNBUFFERED")))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    importlib.invalidate_caches()
    match arguments:
        case ["-m", *_]:
            sys.argv, first = arguments, str(Path.cwd())
        case ["-c", _, *rest]:
            sys.argv, first = ["-c", *rest], ""
        case [program, *_]:
            sys.argv, first = arguments, str(Path(program).resolve().parent)
    sys.path[:1] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.orig_argv = [sys.executable, *arguments]


def open_streams(*, unbuffered: bool) -> None:
    """As Python does it. Those of this process know of themselves what they are, a file, a pipe or a terminal."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before: io.TextIOWrapper = getattr(sys, name)
        mode, buffering = ("wb", 0 if unbuffered else -1) if number else ("rb", -1)
        raw: Any = open(number, mode, buffering=buffering, closefd=False)  # noqa: SIM115 - as long as the process
        stream = io.TextIOWrapper(
            raw,
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=not unbuffered and (name == "stderr" or os.isatty(number)),
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if arguments[0] == "-c":
        name, source = "<string>", arguments[1]
    else:
        name, source = arguments[0], Path(arguments[0]).read_text()
        main.__file__ = f"{Path.cwd()}/{name}" if name[0] != "/" else name
    exec(compile(source, name, "exec", dont_inherit=True), vars(main))


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    sys.path.insert(0, "")
    # Ctrl-C is for the programs: see `become`.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    imported, *numbers = sys.argv[1:]
    prepare(everturn=imported == "everturn")
    if asked := serve(*(socket.socket(fileno=int(number)) for number in numbers)):
        become(**asked)
        run(asked["arguments"])
