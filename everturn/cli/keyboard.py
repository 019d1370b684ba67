"""Questions at the keyboard, edited with prompt_toolkit. Other lines are printed above a question that is open, and a
question goes away if nobody needs its answer any more."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import Output
    from rich.console import Console
    from rich.text import Text


class Question:
    """One question, on stderr. `read_answer` waits for Enter; `hide_question` makes room to print other lines."""

    def __init__(self, console: Console, prompt: Text, *, prefill: str = "", earlier: Sequence[str] = ()) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.input import create_input

        self._console = console
        self._prompt = prompt
        self._prefill = prefill
        self._input: Input = create_input(sys.stdin)
        self._output = _create_output()
        self._session: PromptSession[str] = PromptSession(
            self._draw_prompt,
            input=self._input,
            output=self._output,
            history=InMemoryHistory(list(earlier)),
            key_bindings=_key_bindings(),
            # A cancelled question disappears. Enter sets this to False: a question stays with its answer.
            erase_when_done=True,
            enable_suspend=True,
        )

    def _draw_prompt(self) -> ANSI:
        """The prompt, wrapped to the terminal's width now: prompt_toolkit would cut each line above the last one."""
        from prompt_toolkit.formatted_text import ANSI
        from rich.text import Text

        *above, last = self._prompt.split("\n", allow_blank=True)
        columns = self._output.get_size().columns
        with self._console.capture() as capture:
            self._console.print(Text("\n").join([*_in_rows(above, columns), last]), end="")
        return ANSI(capture.get())

    async def read_answer(self, *, fresh: bool) -> str:
        """The typed line. Raises EOFError if the input ends.

        `fresh`: drop what was typed before the question appeared, since it answered something else.
        """
        if fresh:
            _forget_what_was_typed(self._input)
        # Ctrl-C is not handled here: it reaches the process as usual.
        return await self._session.prompt_async(default=self._prefill, handle_sigint=False)

    @contextlib.contextmanager
    def hide_question(self) -> Iterator[None]:
        """Hides the question while the block runs."""
        self._session.app.renderer.erase()
        yield
        self._session.app.invalidate()


def _in_rows(lines: Iterable[Text], columns: int) -> Iterator[Text]:
    """The lines, wrapped into rows that fit. Nothing is left out, not even a space."""
    from rich.cells import chop_cells

    for line in lines:
        rows = chop_cells(line.plain, columns)
        if len(rows) > 1:
            yield from line.divide(itertools.accumulate(len(row) for row in rows[:-1]))
        else:
            yield line


def _create_output() -> Output:
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    output = create_output(sys.stderr)
    if isinstance(output, Vt100_Output):
        # prompt_toolkit would ask the terminal where the cursor is. If the question goes away at once, the terminal's
        # answer would reach the shell as if somebody had typed it.
        output.enable_cpr = False
    return output


def _key_bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.erase_when_done = False
        event.current_buffer.validate_and_handle()

    @keys.add("c-c", eager=True)
    def _(_: KeyPressEvent) -> None:
        signal.raise_signal(signal.SIGINT)

    return keys


def _forget_what_was_typed(keyboard: Input) -> None:
    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(keyboard)
    with contextlib.suppress(ImportError):  # on Windows there is no termios
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def can_read_keys() -> bool:
    """Whether a person at a terminal can read the questions and type answers."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def read_plainly(prompt: str) -> str:
    """A line from an input that is no terminal. Raises EOFError. It is read in a thread of its own: a thread of a pool
    would hold up the end of this process until somebody presses Enter."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def set_line(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read_line() -> None:
        text = ""
        with contextlib.suppress(OSError, ValueError):
            text = sys.stdin.readline()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for the line any more
            loop.call_soon_threadsafe(set_line, text)

    sys.stderr.write(prompt)
    sys.stderr.flush()
    threading.Thread(target=read_line, daemon=True, name="everturn-keyboard").start()
    if not (text := await line):
        raise EOFError
    return text
