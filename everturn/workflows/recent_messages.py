"""The last messages of a conversation, for those who look at it. All of them are in the history."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from everturn.cutting import cut
from everturn.records import Message
from everturn.sizes import MAX_DELTA_BYTES, MAX_PAGE_BYTES, fits, size_of
from everturn.workflows import web_ui

MAX_HELD_CHARS = 256_000
"""Of what the model has seen, in the memory of the worker: the latest of it."""


class RecentMessages:
    def __init__(self, last_text: str) -> None:
        """`last_text`: what the model said last, in a run before."""
        self.written: deque[str] = deque()
        """The prefix's last messages, as JSON: short ones take an eighth of the memory that their records take."""
        self._chars = 0
        said = [Message.model_validate({"role": "assistant", "parts": [{"kind": "text", "text": last_text}]})]
        self._lines = deque(web_ui.lines(said if last_text else []), maxlen=web_ui.LATEST_LINES)

    def add(self, messages: Sequence[Message]) -> None:
        """From now on, these are the end of the prefix."""
        self._lines.extend(web_ui.lines(messages))
        written = [message.model_dump_json() for message in messages]
        self.written.extend(written)
        self._chars += sum(map(len, written))
        while self._chars > MAX_HELD_CHARS:
            self._chars -= len(self.written.popleft())

    def lines(self, unseen: Sequence[Message]) -> list[str]:
        """The last messages in short, those that no model has seen included."""
        return [*self._lines, *web_ui.lines(unseen)][-web_ui.LATEST_LINES :]

    def page(self, unseen: Sequence[Message], first: int, limit: int) -> list[Message]:
        """The messages from the `first` one on that is held: as many as fit an answer, and at least one, cut if it has
        to be."""
        page: list[Message] = []
        room = MAX_PAGE_BYTES
        known: Iterable[str | Message] = chain(self.written, unseen)
        for one in islice(known, first, first + limit):
            message = Message.model_validate_json(one) if isinstance(one, str) else one
            if page and not fits([message], room):
                break
            room -= size_of(message)
            page.append(message)
        return list(cut(page, MAX_DELTA_BYTES))
