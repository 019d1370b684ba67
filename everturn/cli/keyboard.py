"""Reads the keyboard of a terminal in a way that can be given up: the question goes away, and nothing keeps reading.

So it is neither input() nor readline: nobody can call either back while it waits.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everturn.cli.line import Line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_PASTE_MODE, _PASTE_MODE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class Prompt:
    """One question, drawn where the cursor stands, as many rows as it takes; below it there is nothing."""

    def __init__(self, console: Console, prompt: Text, line: Line) -> None:
        from rich.cells import cell_len

        self._console = console
        self._line = line
        self._cells = cell_len
        with console.capture() as drawn:
            console.print(prompt, end="")
        self._prompt, self._prompt_cells = drawn.get(), prompt.cell_len
        self._row = 0
        """Of the cursor, counted from the prompt's first."""

    def show(self) -> None:
        width = max(self._console.width, 1)
        text, before = _visible(self._line.text), _visible(self._line.text[: self._line.cursor])
        end, cursor = (self._prompt_cells + self._cells(one) for one in (text, before))
        # A terminal wraps only with the next character: in a row that is full, the line's end is the next row's start.
        wrapped = "\r\n" if end % width == 0 else ""
        rows_up, column = end // width - cursor // width, cursor % width
        self._row = cursor // width
        self._write(self._prompt + text + wrapped + _up(rows_up) + "\r" + (f"\x1b[{column}C" if column else ""))

    def hide(self) -> None:
        self._write(_up(self._row) + "\r\x1b[J")
        self._row = 0

    def feed(self, typed: str) -> bool:
        try:
            return self._line.feed(typed)
        finally:
            self.hide()
            self.show()

    def finish(self) -> None:
        """Leaves what was typed on the screen, and goes below it."""
        self._line.cursor = len(self._line.text)
        self.hide()
        self.show()
        self._write("\r\n")

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def _visible(text: str) -> str:
    """On one line. Not all of it need be typed: what a model wrote may be up for editing."""
    return "".join(one if one.isprintable() else "↵" if one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows else ""


async def read_line(prompt: Prompt, line: Line, *, fresh: bool) -> str:
    """The line, once Enter is pressed. Raises EOFError where the input ends.

    `fresh`: what was typed before the question is thrown away, for it answered something else.
    """
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    done: asyncio.Future[None] = loop.create_future()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take() -> None:
        try:
            typed = os.read(keyboard, 4096)
            if not typed:
                raise EOFError
            if prompt.feed(decoder.decode(typed)) and not done.done():
                done.set_result(None)
        except (EOFError, OSError):
            if not done.done():
                done.set_exception(EOFError())

    with _key_by_key(keyboard, fresh=fresh):
        prompt.show()
        loop.add_reader(keyboard, take)
        try:
            await done
        except asyncio.CancelledError:
            prompt.hide()
            raise
        finally:
            loop.remove_reader(keyboard)
        prompt.finish()
    return line.text


@contextlib.contextmanager
def _key_by_key(keyboard: int, *, fresh: bool) -> Iterator[None]:
    """Each key comes as it is pressed, and we draw it ourselves. Ctrl-C and Ctrl-Z stay what they are."""
    import termios

    before: list[Any] = termios.tcgetattr(keyboard)
    ours = [*before[:3], before[3] & ~(termios.ECHO | termios.ICANON), *before[4:6], [*before[6]]]
    ours[6][termios.VMIN], ours[6][termios.VTIME] = 1, 0
    termios.tcsetattr(keyboard, termios.TCSAFLUSH if fresh else termios.TCSADRAIN, ours)
    sys.stderr.write(_PASTE_MODE)
    try:
        yield
    finally:
        sys.stderr.write(_PASTE_MODE_OFF)
        sys.stderr.flush()
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def can_read_keys() -> bool:
    """There is a terminal at standard input, of a kind that we know how to read."""
    try:
        import termios  # noqa: F401 - not on Windows
    except ImportError:
        return False
    return sys.stdin.isatty() and sys.stderr.isatty()


async def read_plainly(prompt: str) -> str:
    """A line of what is no terminal. Read in a thread that nobody waits for: a pool's would hold up our end until
    somebody presses Enter. Raises EOFError."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def settle(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def work() -> None:
        text = ""
        with contextlib.suppress(OSError, ValueError):
            text = sys.stdin.readline()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, text)

    sys.stderr.write(prompt)
    sys.stderr.flush()
    threading.Thread(target=work, daemon=True, name="everturn-keyboard").start()
    if not (text := await line):
        raise EOFError
    return text
