"""A reply on the screen while it is still being written: in whole words, in lines that fit, under one mark."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.text import Text

from everturn.cli.render import marked, marked_markdown
from everturn.cli.terminal import Screen
from everturn.printable import printable

_TOKEN = re.compile(r"\n|[^\S\n]+|\S+")
_MARGIN = 2
_MAX_HELD_CELLS = 30
"""A longer word is shown before its end is known: not every language has spaces."""


class ReplyText:
    """One turn's text. `add` takes pieces as they come; `finish` the whole, which has the last word."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._said = ""
        self._held = ""
        """The end of what was said: perhaps only half a word."""
        self._column = 0
        self._wrapped = False
        """The line at hand goes on with the one before, for that was full."""
        self._rows = 0
        """How many rows it takes on the screen, the one at hand too."""
        self._whole = True
        """They follow each other: no other line came between."""

    def add(self, piece: str) -> None:
        if self._screen.taken:
            return  # finish() will show it
        self._said += piece
        tokens = _TOKEN.findall(self._held + printable(piece.replace("\r", "")))
        self._held = ""
        if tokens and not tokens[-1].isspace() and cell_len(tokens[-1]) < _MAX_HELD_CELLS:
            self._held = tokens.pop()
        self._write(tokens)

    def void(self) -> None:
        """The turn begins again: what was said so far is not its text."""
        if self._said:
            self._screen.line(marked("trouble", "the model was interrupted, and starts again", indent=2))
        self._said = self._held = ""
        self._column = self._rows = 0
        self._whole = True

    def finish(self, text: str) -> None:
        """Shows what lacks of the text: all of it, if it is not the one that came so far. On a terminal, Markdown is
        shown as what it means, once the text is whole."""
        if not self._said or self._screen.taken or not text.startswith(self._said):
            if text:
                self._screen.line(self._shown(text))
            return
        self.add(text.removeprefix(self._said))
        self._write([self._held])
        shown = self._shown(text)
        # As it was written it wraps as we wrap it; what is the same is left as it is.
        plain = shown.plain.split() == marked("assistant", text).plain.split()
        if not plain and self._whole and self._screen.take_back(self._rows):
            self._screen.line(shown)
        self._screen.end_line()

    def _shown(self, text: str) -> Text:
        return marked_markdown(text, width=self._screen.width) if self._screen.live else marked("assistant", text)

    def _write(self, tokens: list[str]) -> None:
        written = Text()
        if tokens and not self._screen.in_a_line:
            # A new reply; or another line came between.
            written.append_text(marked("assistant", "") if not self._column else Text(" " * _MARGIN))
            self._whole = self._whole and not self._column
            self._column, self._rows = _MARGIN, self._rows + 1
        for token in tokens:
            cells = cell_len(token)
            full = self._column + cells > self._screen.width and self._column > _MARGIN
            if token == "\n" or full:
                written.append("\n" + " " * _MARGIN)
                self._rows += 1
                self._column, self._wrapped = _MARGIN, full
            if token == "\n" or (token.isspace() and self._wrapped and self._column == _MARGIN):
                continue  # the space between two words is the line's end now
            written.append(token)
            self._column += cells
            self._whole = self._whole and self._column <= self._screen.width  # else the terminal itself began a row
        if written:
            self._screen.piece(written)
