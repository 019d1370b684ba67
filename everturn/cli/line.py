"""A line that somebody types: keys in, text and cursor out. Pure; keyboard.py reads and draws."""

from __future__ import annotations

import re
from collections.abc import Sequence

# A paste, an escape sequence, Alt and a key, or one character. What only begins one of them waits for the rest.
_KEY = re.compile(
    r"\x1b\[200~(?P<pasted>.*?)\x1b\[201~|\x1b\[(?!200~)[0-9;?]*[@-~]|\x1bO[ -~]|\x1b[^\[O]|[^\x1b]", re.DOTALL
)
_ACTIONS = {
    "left": ("\x02", "\x1b[D", "\x1bOD"),
    "right": ("\x06", "\x1b[C", "\x1bOC"),
    "home": ("\x01", "\x1b[H", "\x1bOH", "\x1b[1~"),
    "end": ("\x05", "\x1b[F", "\x1bOF", "\x1b[4~"),
    "word_left": ("\x1bb", "\x1b[1;5D", "\x1b[1;3D"),
    "word_right": ("\x1bf", "\x1b[1;5C", "\x1b[1;3C"),
    "earlier": ("\x10", "\x1b[A", "\x1bOA"),
    "later": ("\x0e", "\x1b[B", "\x1bOB"),
    "backspace": ("\x7f", "\x08"),
    "delete": ("\x1b[3~",),
    "cut_word": ("\x17", "\x1b\x7f"),
    "cut_to_start": ("\x15",),
    "cut_to_end": ("\x0b",),
}
_ACTION_OF = {key: action for action, keys in _ACTIONS.items() for key in keys}
ENTER, END_OF_INPUT = ("\r", "\n"), "\x04"


class Line:
    """`feed` takes what the terminal sends, in pieces of any size. Earlier lines come back with the arrow keys."""

    def __init__(self, text: str = "", *, earlier: Sequence[str] = ()) -> None:
        self.text = text
        self.cursor = len(text)
        self._lines = [*earlier, text]
        self._at = len(earlier)
        self._pending = ""

    def feed(self, typed: str) -> bool:
        """Takes keys; True once Enter was pressed. Raises EOFError for Ctrl-D on an empty line."""
        self._pending += typed
        while key := _KEY.match(self._pending):
            self._pending = self._pending[key.end() :]
            if key["pasted"] is not None:
                self._insert(key["pasted"].replace("\r\n", "\n").replace("\r", "\n"))
            elif key[0] in ENTER:
                return True
            elif key[0] == END_OF_INPUT and not self.text:
                raise EOFError
            else:
                self._press(key[0])
        return False

    def _press(self, key: str) -> None:
        if key == END_OF_INPUT:
            self._cut(self.cursor, self.cursor + 1)
        elif action := _ACTION_OF.get(key):
            self._act(action)
        elif key.isprintable():
            self._insert(key)

    def _act(self, action: str) -> None:
        match action:
            case "left":
                self.cursor = max(self.cursor - 1, 0)
            case "right":
                self.cursor = min(self.cursor + 1, len(self.text))
            case "home":
                self.cursor = 0
            case "end":
                self.cursor = len(self.text)
            case "word_left":
                self.cursor = self._word_before()
            case "word_right":
                self.cursor = self._word_behind()
            case "earlier":
                self._turn_to(self._at - 1)
            case "later":
                self._turn_to(self._at + 1)
            case "backspace":
                self._cut(max(self.cursor - 1, 0), self.cursor)
            case "delete":
                self._cut(self.cursor, self.cursor + 1)
            case "cut_word":
                self._cut(self._word_before(), self.cursor)
            case "cut_to_start":
                self._cut(0, self.cursor)
            case "cut_to_end":
                self._cut(self.cursor, len(self.text))

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _turn_to(self, index: int) -> None:
        if 0 <= index < len(self._lines):
            self._lines[self._at] = self.text
            self._at, self.text = index, self._lines[index]
            self.cursor = len(self.text)

    def _word_before(self) -> int:
        words = [found.start() for found in re.finditer(r"\S+", self.text[: self.cursor])]
        return words[-1] if words else 0

    def _word_behind(self) -> int:
        found = re.compile(r"\s*\S+").match(self.text, self.cursor)
        return found.end() if found else len(self.text)
