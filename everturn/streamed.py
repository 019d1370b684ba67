"""What a model turn says of itself while it runs: the text so far, as a heartbeat's details hold it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from everturn.records import Record


class Streamed(Record):
    """What a running `call_model` says of itself, as the second of its heartbeat details: the end of what the model
    has said so far. No event of the history holds it."""

    attempt: int = 1
    """The details of an earlier attempt stay until this one has something to say."""
    every: float = Field(ge=0, le=60)
    """Seconds until it may say more."""
    at: int = 0
    """So many characters, of text and thinking together, came before `pieces`."""
    pieces: tuple[tuple[Literal["text", "thinking"], str], ...] = ()

    def after(self, position: int) -> list[tuple[Literal["text", "thinking"], str]]:
        """What comes after so many characters; nothing if a part of that is not here any more."""
        skip = position - self.at
        rest = []
        for kind, text in self.pieces if skip >= 0 else ():
            if len(text) > skip:
                rest.append((kind, text[skip:]))
            skip = max(0, skip - len(text))
        return rest
