"""The terminal: lines for people on stderr, a spinner while something goes on, text as it comes, and questions."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from everturn.cli.keyboard import Question, can_read_keys, read_plainly
from everturn.text.printable import printable, printable_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text


class Screen:
    """The terminal as people see it. Standard output is kept for results, so that a program can read them."""

    def __init__(self, *, to_stdout: bool = False) -> None:
        from rich.console import Console

        self.console: Console = Console(stderr=not to_stdout, highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        """Whether things may move on it, such as a spinner."""
        self.can_ask = sys.stdin.isatty() and self.console.is_terminal and not os.environ.get("CI")
        """Whether a person sits in front of it."""
        self._status: Status | None = None
        self._doing = _SpinnerText("", "")
        self._question: Question | None = None
        self._held: list[tuple[Text, str]] | None = None
        self._open_line = False
        """Whether a text that comes in pieces is in the middle of a line."""

    @property
    def width(self) -> int:
        if not self.console.is_terminal:
            return 160
        return self.console.width

    @property
    def is_taken(self) -> bool:
        """Whether somebody types or another program has the terminal: nothing may move then."""
        return self._question is not None or self._held is not None

    def print_line(self, text: Text | str = "", *, style: str = "") -> None:
        """Prints a text as it is: markup in it is not read as such, and unsafe characters are written out. On a
        terminal, its further lines are indented, and an open question moves down."""
        safe_text = _escape_unsafe(text)
        if self._held is not None:
            self._held.append((safe_text, style))
            return
        self.end_line()
        with self._question.hide_question() if self._question else contextlib.nullcontext():
            for part in self._wrap_text(safe_text) if self.live else [safe_text]:
                self.console.print(part, style=style or None, markup=False, emoji=False)

    def print_piece(self, text: Text | str) -> None:
        """Prints a piece of a text that comes bit by bit. `print_line` begins a new line after it."""
        self.stop_spinner()
        self.console.print(_escape_unsafe(text), end="", markup=False, emoji=False)
        self._open_line = True

    def end_line(self) -> None:
        """Ends the line of a text that came in pieces."""
        if self._open_line:
            self.console.print()
        self._open_line = False

    def take_back(self, rows: int) -> bool:
        """Clears the last rows, the current one included. False if that can't be done, as some left the screen."""
        if not self.live or not self._open_line or rows >= self.console.height:
            return False
        self.console.file.write("\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J")
        self._open_line = False
        return True

    @property
    def in_a_line(self) -> bool:
        return self._open_line

    def _wrap_text(self, whole: Text) -> Iterator[Text]:
        from rich.text import Text

        for number, line in enumerate(whole.split("\n", allow_blank=True) or [Text()]):
            margin = len(line.plain) - len(line.plain.lstrip()) + (0 if number else 2)  # past the mark, if there is one
            if line.cell_len <= self.width:
                yield line
                continue
            for further, part in enumerate(line.wrap(self.console, max(self.width - margin, 20))):
                part.rstrip()
                yield Text(" " * margin).append_text(part) if further else part

    def print_lines(self, texts: list[Text]) -> None:
        for text in texts:
            self.print_line(text)

    def show_busy(self, activity: str, *, counted: str = "") -> None:
        """Shows a spinner with what goes on, and for how long: since `counted` (or `what`) last changed. Does nothing
        if the spinner could not move."""
        if not self.live or self.is_taken or self._open_line:
            return
        if self._doing.counted != (counted or activity):
            self._doing = _SpinnerText(activity, counted or activity)
        self._doing.what = activity
        if self._status is None:
            self._status = self.console.status(self._doing, spinner="dots")
            self._status.start()
        else:
            self._status.update(self._doing)

    def stop_spinner(self) -> None:
        """Ends the spinner: somebody is about to type, or the work is done."""
        if self._status:
            self._status.stop()
        self._status = None
        self._doing = _SpinnerText("", "")

    async def ask_line(
        self,
        prompt: Text | str,
        *,
        above: Text | None = None,
        prefill: str = "",
        fresh: bool = False,
        earlier: Sequence[str] = (),
    ) -> str:
        """Asks for one line from the keyboard. Raises EOFError if the input has ended. If cancelled, the question goes.

        `above`: what the question is about; it stays with the question while other lines are printed. `fresh`: drop
        what was typed before the question. `earlier`: lines for the arrow keys.
        """
        self.stop_spinner()
        self.end_line()
        question = _escape_unsafe(prompt)
        movable = self.live and can_read_keys()
        if above is not None:
            from rich.text import Text

            if movable and self._count_rows(above) < self.console.height - 3:
                question = Text("\n").join([_escape_unsafe(above), question])
            else:  # too long to be moved with the question
                self.print_line(above)
        if not movable:
            return (await read_plainly(question.plain)).strip()
        self._question = Question(self.console, question, prefill=prefill, earlier=earlier)
        try:
            return (await self._question.read_answer(fresh=fresh)).strip()
        finally:
            self._question = None

    def _count_rows(self, text: Text) -> int:
        return sum(max(1, -(-line.cell_len // self.width)) for line in text.split("\n", allow_blank=True))

    @contextlib.contextmanager
    def lend_terminal(self) -> Iterator[None]:
        """Lends the terminal to another program. What is to be shown meanwhile waits until the block ends."""
        self.stop_spinner()
        self.end_line()
        self._held = []
        try:
            yield
        finally:
            held = self._held
            self._held = None
            for text, style in held:
                self.print_line(text, style=style)


def _escape_unsafe(text: Text | str) -> Text:
    """The text with unsafe characters written out. Callers should have done so, but here nothing gets past."""
    from rich.text import Text

    if isinstance(text, str):
        return Text(printable(text))
    if (escaped := printable(text.plain)) != text.plain:
        text = text.copy()
        text.plain = escaped  # the text may have become longer than its styles
    return text


class _SpinnerText:
    """What goes on, with the seconds that `counted` has lasted. The spinner draws it anew at each turn."""

    def __init__(self, what: str, counted: str) -> None:
        self.what = what
        self.counted = counted
        self._since = time.monotonic()

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(f"{printable_line(self.what)} · {time.monotonic() - self._since:.0f} s", style="dim", no_wrap=True)
