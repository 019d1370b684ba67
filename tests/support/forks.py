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
from pathlib import Path
from typing import Any

NUMBER_BYTES = 4


def prepare() -> None:
    """Imports what a command may import. None of it may start a thread: a fork has only the one that forked."""
    import everturn.cli

    for module in pkgutil.iter_modules(everturn.cli.__path__, "everturn.cli."):
        importlib.import_module(module.name)
    for name in (
        *("everturn.worker", "everturn.testing", "temporalio.worker", "temporalio.client", "httpx"),
        *("mcp.server.mcpserver", "uvicorn"),  # the servers of tests/support/mcp_*.py
    ):
        importlib.import_module(name)
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, f"an import started threads: {len(threads)}"
    gc.collect()
    gc.freeze()


def serve(control: socket.socket) -> dict[str, Any] | None:
    """In each fork: what it is to be. In this process: None, once nobody starts programs any more."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by the file descriptor of the process: its id, who waits
    while True:
        ready, _, _ = select.select([control, *running], [], [])
        for one in ready:
            if one is not control:
                pid, waits = running.pop(one)
                os.close(one)
                _, status = os.waitpid(pid, 0)
                with waits:
                    tell(waits, status)
        if control not in ready:
            continue
        length, given, _, _ = socket.recv_fds(control, NUMBER_BYTES, 4)
        if not length:
            return None
        waits = socket.socket(fileno=given[0])
        asked = json.loads(control.recv(int.from_bytes(length), socket.MSG_WAITALL))
        if not (pid := os.fork()):
            for process, (_, other) in running.items():
                os.close(process)
                other.close()
            control.close()
            waits.close()
            for number, stream in enumerate(given[1:]):
                os.dup2(stream, number)
                os.close(stream)
            return dict(asked)
        for stream in given[1:]:
            os.close(stream)
        running[os.pidfd_open(pid)] = (pid, waits)
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
    prepare()
    if asked := serve(socket.socket(fileno=int(sys.argv[1]))):
        become(**asked)
        run(asked["arguments"])
