"""A reply on the screen while it is being written: in whole words, in lines that fit, with one mark in front."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.text import Text

from everturn.cli.render import marked_markdown, marked_text
from everturn.cli.terminal import Screen
from everturn.text.printable import printable

_TOKEN = re.compile(r"\n|[^\S\n]+|\S+")
_MARGIN = 2
_MAX_HELD_CELLS = 30
"""A longer word is shown before its end has come: not every language has spaces."""


class ReplyText:
    """One turn's text. `add_piece` takes its pieces as they come; `finish_reply` takes the whole text, which counts."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._text = ""
        self._held = ""
        """The end of the text so far, which may be half a word."""
        self._column = 0
        self._wrapped = False
        """Whether the current line continues the one before, which was full."""
        self._rows = 0
        """How many rows the reply takes on the screen, with the current one."""
        self._whole = True
        """Whether these rows follow each other, without another line between."""

    def add_piece(self, piece: str) -> None:
        if self._screen.is_taken:
            return  # finish_reply() will show it
        self._text += piece
        tokens = _TOKEN.findall(self._held + printable(piece.replace("\r", "")))
        self._held = ""
        if tokens and not tokens[-1].isspace() and cell_len(tokens[-1]) < _MAX_HELD_CELLS:
            self._held = tokens.pop()
        self._write_tokens(tokens)

    def discard_text(self) -> None:
        """The turn begins again: the text so far does not count."""
        if self._text:
            self._screen.print_line(marked_text("trouble", "the model was interrupted, and starts again", indent=2))
        self._text = self._held = ""
        self._column = self._rows = 0
        self._whole = True

    def finish_reply(self, text: str) -> None:
        """Shows the rest of the text; or all of it, if it does not begin with what was shown. On a terminal, the
        finished text is rendered as Markdown."""
        if not self._text or self._screen.is_taken or not text.startswith(self._text):
            if text:
                self._screen.print_line(self._render_reply(text))
            return
        self.add_piece(text.removeprefix(self._text))
        self._write_tokens([self._held])
        rendered = self._render_reply(text)
        # If rendering changes no word, the text stays as it was written.
        plain = rendered.plain.split() == marked_text("assistant", text).plain.split()
        if not plain and self._whole and self._screen.take_back(self._rows):
            self._screen.print_line(rendered)
        self._screen.end_line()

    def _render_reply(self, text: str) -> Text:
        if not self._screen.live:
            return marked_text("assistant", text)
        return marked_markdown(text, width=self._screen.width)

    def _write_tokens(self, tokens: list[str]) -> None:
        written = Text()
        if tokens and not self._screen.in_a_line:
            # The reply begins, or goes on after another line.
            if self._column:
                written.append(" " * _MARGIN)
                self._whole = False
            else:
                written.append_text(marked_text("assistant", ""))
            self._column = _MARGIN
            self._rows += 1
        for token in tokens:
            cells = cell_len(token)
            full = self._column + cells > self._screen.width and self._column > _MARGIN
            if token == "\n" or full:
                written.append("\n" + " " * _MARGIN)
                self._rows += 1
                self._column = _MARGIN
                self._wrapped = full
            if token == "\n" or (token.isspace() and self._wrapped and self._column == _MARGIN):
                continue  # the line's end replaces the space between two words
            written.append(token)
            self._column += cells
            self._whole = self._whole and self._column <= self._screen.width  # else the terminal itself began a row
        if written:
            self._screen.print_piece(written)
