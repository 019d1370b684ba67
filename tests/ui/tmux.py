"""A real terminal for tests: tmux, with a shell in it."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import WAIT_SECONDS


class Terminal:
    """`type` and `press` send keys, `until` waits for what is shown. A context manager."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, columns: int = 100, rows: int = 40) -> None:
        self._folder = folder
        self._environment = {**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self._size = ("-x", str(columns), "-y", str(rows))
        # Each has a server of its own, so that none meets another's environment. In its folder: a socket's path is
        # short, and a test's folder may not be.
        self._socket = f"everturn-{folder.name[-20:]}-{id(self)}"

    def __enter__(self) -> Self:
        shell = "env 'PS1=$ ' bash --norc --noprofile -i"
        self._tmux("-f", "/dev/null", "new-session", "-d", *self._size, "-c", str(self._folder), shell)
        self.until("$")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def run(self, *words: str) -> None:
        self.type(shlex.join(words))

    def type(self, text: str) -> None:
        """The text, and Enter."""
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Keys by tmux's names, such as C-c."""
        self._tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """As from a clipboard: the program is told that it is a paste, if it asked for that."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-r")

    def resize(self, columns: int) -> None:
        self._tmux("resize-window", "-x", str(columns))

    def clear(self) -> None:
        """Forgets what was shown, so that `until` waits for what comes."""

        def empty(shown: str) -> bool:
            self._tmux("clear-history")  # newer versions keep there what was cleared
            return len(shown.strip().splitlines()) <= 1

        self.press("C-l")
        self.until(empty)

    def shown(self, *, colours: bool = False) -> str:
        """What the terminal shows, with what has scrolled away; lines that it wrapped are whole again."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-", *(["-e"] if colours else []))

    def until(self, *wanted: str | Callable[[str], Any], gone: str = "") -> str:
        """What is shown once all of it is there, and `gone` is not."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            shown = self.shown()
            lacking = [one for one in wanted if not (one in shown if isinstance(one, str) else one(shown))]
            if not lacking and not (gone and gone in shown):
                return shown
            assert time.monotonic() < deadline, f"{lacking or gone!r} in {WAIT_SECONDS} s, in:\n{shown}"
            time.sleep(0.05)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=WAIT_SECONDS,
        )
        return done.stdout
