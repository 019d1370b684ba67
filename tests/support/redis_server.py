"""Debian's redis-server, as a process of the test's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Self

import pytest

from tests.support.ports import free_port, listens
from tests.support.waiting import until

PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed (Debian: redis-server)")
PASSWORD = "s3cret-word"


class RedisServer:
    """Keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self._port}/0"

    def start(self) -> Self:
        assert PROGRAM is not None
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD]
        self._process = subprocess.Popen(
            [PROGRAM, *options, "--dir", str(self._folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: listens(self._port))
        return self

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
