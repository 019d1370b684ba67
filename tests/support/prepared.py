"""Programs that start in no time: what they import was imported once, in a process that forks each of them.

Each is a process of its own, with its folder, its environment, its streams and its signals, and ends as Python ends.
What differs from `python -m everturn` is the start alone: modules are there before they are asked for. `REAL_STARTS=1
make test` starts all of them as users do."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import forks

ROOT = Path(__file__).parents[2]

FORKED = sys.version_info < (3, 14)
"""What is changed of Popen has other forms in Python 3.14: programs really start there."""

_AT_START = ("PYTHON", "LC_", "LANG")
"""Variables that Python reads as it starts: a program for which they differ from ours really starts, but for these."""
_LATER = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})


class Program(subprocess.Popen[str]):
    """`python ARGUMENTS`, as `subprocess.Popen` has it. One that a test which fails does not wait for."""

    def __init__(
        self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, **streams: Any
    ) -> None:
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
        if (
            os.environ.get("REAL_STARTS")
            or not FORKED
            or not hasattr(os, "pidfd_open")
            or _read_at_start(self._asked["environment"]) != _read_at_start(os.environ)
        ):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        pipes = given[10:16]
        ours = [own if theirs == -1 else theirs for own, theirs in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._told = _forks().start(self._asked, ours)
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


def run(
    *arguments: str, says: str | None = None, timeout: float = 60, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run(["python", *arguments], capture_output=True)` of one."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Program(*arguments, **streams, **options) as program:
        out, err = program.communicate(says, timeout)
    done = subprocess.CompletedProcess(program.args, program.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START) and name not in _LATER}


def _number(told: socket.socket, flags: int = 0) -> int:
    given = told.recv(forks.NUMBER_BYTES, flags | socket.MSG_WAITALL)
    assert len(given) == forks.NUMBER_BYTES, "the process that forks programs has ended: stderr says why"
    return int.from_bytes(given)


class _Forks:
    """The process that forks. It ends with this one, or before."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        command = [sys.executable, forks.__file__, str(theirs.fileno())]
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip
        atexit.register(self.stop)

    def start(self, asked: Mapping[str, Any], streams: Sequence[int]) -> socket.socket:
        """Where the id of the process is told, and its status once it has ended."""
        told, theirs = socket.socketpair()
        message = json.dumps(asked).encode(errors="surrogateescape")
        with theirs, self._lock:
            socket.send_fds(self._control, [len(message).to_bytes(forks.NUMBER_BYTES)], [theirs.fileno(), *streams])
            self._control.sendall(message)
        return told

    def stop(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _forks() -> _Forks:
    return _Forks()
