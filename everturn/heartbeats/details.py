"""What a model turn reports while it runs: the text so far, as a heartbeat's details hold it;
and what is left of it if the turn is cancelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from pydantic import Field, model_validator

from everturn.records import Message, Record, Text, TextKind, Thinking, Usage
from everturn.sizes import MAX_ADDRESS_CHARS, MAX_SEEN_BYTES, MAX_TOKEN_CHARS, size_of

MAX_EVERY_SECONDS = 60.0

Piece = tuple[TextKind, str]
"""A piece of what a model says; the pieces are in order."""


class LiveAt(Record):
    """Where the worker of a turn hands out its text over HTTP."""

    url: str = Field(max_length=MAX_ADDRESS_CHARS)
    """The worker's address, such as `http://10.0.0.5:7879`."""
    token: str = Field(max_length=MAX_TOKEN_CHARS, repr=False)
    """Valid for this turn only."""


class StreamedText(Record):
    """What a running `call_model` reports, as the second of its heartbeat details: the end of what the model
    has said so far. No event of the history holds it."""

    turn: int = 0
    """0 if its worker is of a version that does not say."""
    attempt: int = 1
    """The details of an earlier attempt stay until this one has something to say."""
    every: float = Field(ge=0, le=MAX_EVERY_SECONDS)
    """Seconds until it may say more."""
    at: int = 0
    """So many characters, of text and thinking together, came before `pieces`."""
    pieces: tuple[Piece, ...] = ()
    usage: Usage = Usage()
    """So far, if the provider says so before the end."""
    cost_usd: float | None = 0.0
    """The cost of that usage; None if the price is not known."""
    live_at: LiveAt | None = None
    """Where its worker hands the text out, if that is not where the request says."""

    def after(self, position: int) -> list[Piece]:
        """What comes after so many characters; nothing if a part of that is not here any more."""
        skip = position - self.at
        if skip < 0:
            return []
        rest = []
        for kind, text in self.pieces:
            if len(text) > skip:
                rest.append((kind, text[skip:]))
            skip = max(0, skip - len(text))
        return rest


def whole_reply(beats: Sequence[StreamedText]) -> StreamedText | None:
    """What the last try has said, put together from pieces that follow each other; None if that is nothing, or if some
    of it is missing."""
    attempt = max((beat.attempt for beat in beats), default=0)
    merged: StreamedText | None = None
    for beat in beats:
        if beat.attempt != attempt:
            continue
        if merged is None:
            merged = beat
            continue
        position = merged.at + chars_of(merged.pieces)
        if beat.at > position:
            return None
        merged = merged.model_copy(update={"pieces": (*merged.pieces, *beat.after(position))})
    return merged


def chars_of(pieces: Iterable[Piece]) -> int:
    return sum(len(text) for _, text in pieces)


def last_chars(pieces: Sequence[Piece], chars: int, position: int) -> tuple[int, list[Piece]]:
    """The pieces' last `chars` characters, and how many come before them. `position`: how many before all pieces."""
    kept: list[Piece] = []
    for kind, text in reversed(pieces):
        if chars <= 0:
            position += len(text)
            continue
        kept.append((kind, text[-chars:]))
        position += max(0, len(text) - chars)
        chars -= len(text)
    return position, kept[::-1]


def last_bytes(pieces: Sequence[Piece], room: int, position: int) -> tuple[int, list[Piece]]:
    """The end of the pieces, in so many bytes as written, and how many characters come before it. `position`: as in
    `last_chars`."""
    kept: list[Piece] = []
    room -= len("]")
    for kind, text in reversed(pieces):
        end = _text_end(text, room - size_of((kind, "")) - len(","))
        position += len(text) - len(end)
        if end:
            kept.append((kind, end))
        room -= size_of((kind, end)) + len(",")
        if len(end) < len(text):
            room = 0
    return position, kept[::-1]


def _text_end(text: str, room: int) -> str:
    end = text[-room:] if room > 0 else ""
    while end and 6 * len(end) > room and (size := size_of(end) - len('""')) > room:
        end = end[len(end) - len(end) * room // size :]
    return end


class AtLimit(Record):
    """What a running `call_model` reports instead of Streamed, while it waits for its provider's limit."""

    limit_of: str
    """The provider, such as 'openai'."""
    ahead: int = 0
    """Calls that wait at the same worker, this one among them."""


class SeenReply(Record):
    """What was said of a reply when its turn was cancelled."""

    turn: int
    """If another turn is cancelled than this one, the text is ignored."""
    text: str = Field(min_length=1)
    thinking: str = ""
    """For people: no model is shown thoughts that were cut short."""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if size_of(self.text) + size_of(self.thinking) - len('""""') > MAX_SEEN_BYTES:
            raise ValueError(f"the part of a reply that was seen has at most {MAX_SEEN_BYTES:,} bytes of JSON")
        return self

    @classmethod
    def from_streamed(cls, streamed: StreamedText | None) -> Self | None:
        """None if no text was said yet."""
        if streamed is None or not streamed.turn:
            return None
        kinds = ("text", "thinking")
        text, thinking = (
            "".join(piece for kind, piece in streamed.pieces if kind == wanted_kind) for wanted_kind in kinds
        )
        if not text.strip():
            return None
        if streamed.at:
            text = f"[Cut: what came before these {len(text):,} characters is left out.]\n{text}"
        usage = streamed.usage
        cost_usd = streamed.cost_usd
        return cls(turn=streamed.turn, text=text, thinking=thinking, usage=usage, cost_usd=cost_usd)

    def as_message(self, author: str) -> Message:
        """As it stays in the transcript, and goes to the model with the next turn. `author`: as in Message."""
        thoughts = (Thinking(text=self.thinking),) if self.thinking else ()
        return Message(role="assistant", parts=(*thoughts, Text(text=self.text)), author=author, cut_short=True)


def beaten_out(details: Sequence[Any]) -> SeenReply | None:
    """What the heartbeat details of a turn have of its text; None if nothing, or nothing that can be read."""
    with suppress(ValueError):
        if len(details) > 1:
            return SeenReply.from_streamed(StreamedText.model_validate(details[1]))
    return None


def longer_reply(first: SeenReply | None, other: SeenReply | None) -> SeenReply | None:
    """The one of two accounts of the same reply that says more; the first if both say as much."""
    return other if other and (first is None or len(other.text) > len(first.text)) else first
