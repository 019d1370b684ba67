"""Programs that start in no time: what they import was imported once, in a process that forks each of them.

Each is a process of its own, with its folder, its environment, its streams and its signals, and ends as Python ends.
What differs from `python -m everturn` is the start alone: modules are there before they are asked for. `REAL_STARTS=1
make test` starts all of them as users do."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tests.support import forks, through_a_door

ROOT = Path(__file__).parents[2]

FORKED = sys.version_info < (3, 14)
"""What is changed of Popen has other forms in Python 3.14: programs really start there."""

_AT_START = ("PYTHON", "LC_", "LANG")
"""Variables that Python reads as it starts: a program for which they differ from ours really starts, but for these."""
_LATER = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})


Imported = Literal["everturn", "libraries"]
"""What a program finds imported. "libraries": all but everturn, for a program with another everturn."""


class Program(subprocess.Popen[str]):
    """`python ARGUMENTS`, as `subprocess.Popen` has it. One that a test which fails does not wait for."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        imported: Imported = "everturn",
        **streams: Any,
    ) -> None:
        self._imported = imported
        environment = dict(os.environ if env is None else env)
        self._asked: dict[str, Any] = {"folder": str(cwd or Path.cwd()), "environment": environment}
        self._asked["arguments"] = arguments
        self._told: socket.socket | None = None
        super().__init__([sys.executable, *arguments], cwd=cwd, env=env, text=True, **streams)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, trace)

    # What follows are methods of Popen that it keeps to itself: how it starts a process, and learns of its end.

    def _execute_child(self, *given: Any) -> None:
        ours = _environment_of_forks(self._imported)
        if _really_start() or _read_at_start(self._asked["environment"]) != _read_at_start(ours):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        pipes = given[10:16]
        streams = [own if theirs == -1 else theirs for own, theirs in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._told = _forks(self._imported).start(self._asked, streams)
        self.pid = _number(self._told)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        wait = {} if self._told is None else {"_waitpid": lambda _, flags: self._try_wait(flags)}
        return super()._internal_poll(_deadstate, **wait)  # type: ignore[misc,no-any-return]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._told is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        try:
            status = _number(self._told, socket.MSG_DONTWAIT if flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._told.close()
        return self.pid, status


@contextmanager
def killed_at_the_end(*arguments: str) -> Iterator[Program]:
    """`python ARGUMENTS` with the project's own modules, until the end of the block, whatever happens in it."""
    with Program(*arguments, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as program:
        try:
            yield program
        finally:
            program.kill()


def run(
    *arguments: str, says: str | None = None, timeout: float = 60, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run(["python", *arguments], capture_output=True)` of one."""
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Program(*arguments, **streams, **options) as program:
        out, err = program.communicate(says, timeout)
    done = subprocess.CompletedProcess(program.args, program.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def command_of(*arguments: str) -> list[str]:
    """What starts `python ARGUMENTS`, for who starts commands by itself, as everturn does the servers of MCP: a small
    program whose streams a forked one has, and that ends with it. Its folder is the one that the command is given."""
    if _really_start():
        return [sys.executable, *arguments]
    return [sys.executable, "-I", "-S", through_a_door.__file__, _forks("everturn").door, *arguments]


def _really_start() -> bool:
    return bool(os.environ.get("REAL_STARTS")) or not FORKED or not hasattr(os, "pidfd_open")


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START) and name not in _LATER}


def _number(told: socket.socket, flags: int = 0) -> int:
    given = told.recv(forks.NUMBER_BYTES, flags | socket.MSG_WAITALL)
    if len(given) != forks.NUMBER_BYTES:
        raise ConnectionError("the process that forks programs has ended: stderr says why")
    return int.from_bytes(given)


class _Forks:
    """The process that forks. It ends with this one, or before. `first`: leads to another one's door, which has all
    imports, and that this one is forked from."""

    def __init__(self, imported: Imported, *, first: socket.socket | None = None) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="everturn-forks-")
        self.door = f"{self._folder.name}/door"
        self._first = first
        self._process: subprocess.Popen[bytes] | None = None
        with theirs, socket.socket(socket.AF_UNIX) as doors:
            doors.bind(self.door)
            doors.listen(100)
            if first:
                _fork(first, theirs, doors)
            else:
                self._begin(imported, theirs, doors)
        if first:
            _number(self._control)  # it is there
        atexit.register(self.stop)

    def _begin(self, imported: Imported, *sockets: socket.socket) -> None:
        kept = {name: value for name, value in _environment_of_forks(imported).items() if name != "PYTHONPATH"}
        numbers = [its.fileno() for its in sockets]
        self._process = subprocess.Popen(
            [sys.executable, forks.__file__, imported, *map(str, numbers)], cwd=ROOT, env=kept,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=numbers,
        )  # fmt: skip

    def start(self, asked: Mapping[str, Any], streams: Sequence[int]) -> socket.socket:
        """Where the id of the process is told, and its status once it has ended."""
        told, theirs = socket.socketpair()
        message = json.dumps(asked).encode(errors="surrogateescape")
        with theirs, self._lock:
            socket.send_fds(self._control, [len(message).to_bytes(forks.NUMBER_BYTES)], [theirs.fileno(), *streams])
            self._control.sendall(message)
        return told

    def stop(self) -> None:
        atexit.unregister(self.stop)
        self._control.close()
        if self._process:
            self._process.wait()
        if self._first:
            with suppress(ConnectionError):  # the first one has ended before
                _number(self._first)
            self._first.close()
        self._folder.cleanup()


def _fork(first: socket.socket, *sockets: socket.socket) -> None:
    nothing = json.dumps({}).encode()
    socket.send_fds(first, [len(nothing).to_bytes(forks.NUMBER_BYTES)], [its.fileno() for its in sockets])
    first.sendall(nothing)


def _behind(door: str) -> socket.socket:
    first = socket.socket(socket.AF_UNIX)
    try:
        first.connect(door)
    except OSError:
        first.close()
        raise
    return first


@cache
def _forks(imported: Imported) -> _Forks:
    """To import all is four seconds of CPU: the processes of xdist do it once."""
    test_run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if not test_run:
        return _Forks(imported)
    path = Path(tempfile.gettempdir(), f"everturn-forks-{test_run}-{imported}")
    with path.open("a+") as known:
        fcntl.flock(known, fcntl.LOCK_EX)
        known.seek(0)
        if door := known.read():
            with suppress(OSError):  # it has ended, with the tests of its process
                return _Forks(imported, first=_behind(door))
        made = _Forks(imported)
        known.truncate(0)
        known.write(made.door)
    atexit.register(path.unlink, missing_ok=True)
    return made


def _environment_of_forks(imported: Imported) -> dict[str, str]:
    """Worlds of the simulation are compared with those of another everturn: their sets have the same order."""
    return {**os.environ, "PYTHONHASHSEED": "0"} if imported == "libraries" else dict(os.environ)
