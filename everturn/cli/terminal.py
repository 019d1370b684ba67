"""The terminal: lines for people on stderr, a spinner while something goes on, and questions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text


class Screen:
    """Where people look. Standard output is left to results, so that a program can read those."""

    def __init__(self, *, to_stdout: bool = False) -> None:
        from rich.console import Console

        self.console: Console = Console(stderr=not to_stdout, highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        """Something may move on it."""
        self.can_ask = sys.stdin.isatty() and self.console.is_terminal and not os.environ.get("CI")
        """Somebody sits in front of it."""
        self._status: Status | None = None
        self._doing = _Doing("")

    @property
    def width(self) -> int:
        return self.console.width if self.console.is_terminal else 160

    def line(self, text: Text | str = "", *, style: str = "") -> None:
        """A text as it is: what looks like markup in it is none. On a terminal, its further lines stand indented."""
        for part in self._wrapped(text) if self.live else [text]:
            self.console.print(part, style=style or None, markup=False, emoji=False)

    def _wrapped(self, text: Text | str) -> Iterator[Text]:
        from rich.text import Text

        whole = Text(text) if isinstance(text, str) else text
        for number, line in enumerate(whole.split("\n", allow_blank=True) or [Text()]):
            margin = len(line.plain) - len(line.plain.lstrip()) + (0 if number else 2)  # past the mark, if there is one
            if line.cell_len <= self.width:
                yield line
                continue
            for further, part in enumerate(line.wrap(self.console, max(self.width - margin, 20))):
                part.rstrip()
                yield Text(" " * margin).append_text(part) if further else part

    def lines(self, texts: list[Text]) -> None:
        for text in texts:
            self.line(text)

    def busy(self, what: str) -> None:
        """A spinner that says what goes on, and for how long. Nothing where it could not move."""
        if not self.live:
            return
        if self._doing.what != what:
            self._doing = _Doing(what)
        if self._status is None:
            self._status = self.console.status(self._doing, spinner="dots")
            self._status.start()
        else:
            self._status.update(self._doing)

    def idle(self) -> None:
        """No spinner any more: somebody is about to type, or it is over."""
        if self._status:
            self._status.stop()
        self._status, self._doing = None, _Doing("")

    async def ask(self, prompt: str, *, prefill: str = "") -> str:
        """One line from the keyboard. Raises EOFError where there is none any more."""
        self.idle()
        return (await _in_a_thread(lambda: _read_line(prompt, prefill))).strip()


class _Doing:
    """What goes on, with its seconds: drawn anew at every turn of the spinner."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._since = time.monotonic()

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(f"{self.what} · {time.monotonic() - self._since:.0f} s", style="dim", no_wrap=True)


def _read_line(prompt: str, prefill: str) -> str:
    try:
        import readline
    except ImportError:  # not everywhere; then there is no editing
        return _typed(prompt)
    readline.set_startup_hook((lambda: readline.insert_text(prefill)) if prefill else None)
    try:
        return _typed(prompt)
    finally:
        readline.set_startup_hook(None)


def _typed(prompt: str) -> str:
    # input() writes its prompt to stdout, which belongs to results: away with that where it is a file.
    if sys.stdout.isatty():
        return input(prompt)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return input()


async def _in_a_thread(read: Callable[[], str]) -> str:
    """Reads in a thread that nobody waits for: a pool's would hold up the end of the program until Enter is pressed."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def settle(text: str | None, error: BaseException | None) -> None:
        if line.done():
            return
        if error is None:
            line.set_result(text or "")
        else:
            line.set_exception(error)

    def work() -> None:
        text, failure = None, None
        try:
            text = read()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the one who waits gets it
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, text, failure)

    with _terminal_restored():
        threading.Thread(target=work, daemon=True, name="everturn-keyboard").start()
        return await line


@contextlib.contextmanager
def _terminal_restored() -> Iterator[None]:
    """Readline turns echo off while it reads. When Ctrl-C takes us away from it, somebody has to turn it on again."""
    before = _terminal_settings()
    try:
        yield
    finally:
        if before is not None:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


def _terminal_settings() -> list[Any] | None:
    if not sys.stdin.isatty():
        return None
    try:
        import termios
    except ImportError:  # Windows, which restores them itself
        return None
    return termios.tcgetattr(sys.stdin.fileno())
