"""A program of the stack, which comes back when it ends: `restart: unless-stopped`, as compose has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.stack.hosts import Host, NotHere, Running

LONGEST_SECONDS = 120.0
POLL_SECONDS = 0.1


class Unit:
    def __init__(
        self,
        host: Host,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        log: Path,
        *,
        user: str = "",
        folder: Path | str = "/",
    ) -> None:
        self.host = host
        self.name = host.name
        self.log = log
        self.held = True
        """It was stopped, and stays so until it is started."""
        self.ended_by_itself = 0
        self._command = command
        self._environment = dict(environment)
        self._user = user
        self._folder = folder
        self._running: Running | None = None
        self._lock = threading.RLock()

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.alive

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.process.pid

    def start(self, **more: str) -> None:
        """`more`: variables that it gets from now on."""
        with self._lock:
            self._environment |= more
            self._running = self.host.start(
                *self._command, log=self.log, environment=self._environment, user=self._user, folder=self._folder
            )
            self.held = False

    def kill(self) -> None:
        self.hold()
        if self._running:
            self._running.kill()

    def stop(self) -> None:
        self.hold()
        if self._running:
            self._running.stop()

    def hold(self) -> None:
        """It does not come back by itself."""
        with self._lock:
            self.held = True

    def come_back(self) -> None:
        """If it ended by itself."""
        with self._lock:
            if not self.held and not self.alive:
                self.ended_by_itself += 1
                self.start()

    def last_lines(self) -> str:
        return self._running.last_lines() if self._running else "(it was not started)"


def wait_until(done: Callable[[], bool], what: str, unit: Unit, seconds: float = LONGEST_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise NotHere(
                f"{seconds:g} s are over, and it is not so that {what}. {unit.log} ends:\n{unit.last_lines()}"
            )
        time.sleep(POLL_SECONDS)
