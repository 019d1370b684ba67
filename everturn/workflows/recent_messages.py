"""The last messages of a conversation, for people who look at it. The history has all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from everturn.carryover import StoredInRun
from everturn.packed_messages import unpack
from everturn.records import Message, Text, ToolResult, results_in
from everturn.size_estimates import fits
from everturn.sizes import MAX_DELTA_BYTES, MAX_PAGE_BYTES, size_of
from everturn.state import State
from everturn.truncation import cut_messages
from everturn.workflows import web_ui

MAX_HELD_CHARS = 256_000
"""Of what the model has seen, in the memory of the worker: the latest of it."""


class RecentMessages:
    def __init__(self, last_text: str) -> None:
        """`last_text`: what the model said last, in a run before."""
        self.written: deque[str] = deque()
        """The prefix's last messages, as JSON: short ones take an eighth of the memory that their records take."""
        self._chars = 0
        messages = [Message(role="assistant", parts=(Text(text=last_text),))] if last_text else []
        self._lines = deque(web_ui.message_lines(messages), maxlen=web_ui.LATEST_LINES)
        """Of what came before the written messages, if those are few."""

    def add(self, messages: Sequence[Message]) -> None:
        """Adds these messages at the end of the prefix."""
        written = [message.model_dump_json() for message in messages]
        self.written.extend(written)
        self._chars += sum(map(len, written))
        while self._chars > MAX_HELD_CHARS:
            oldest = self.written.popleft()
            self._chars -= len(oldest)
            if len(self.written) < web_ui.LATEST_LINES:
                self._lines.extend(web_ui.message_lines([Message.model_validate_json(oldest)]))

    def latest_lines(self, unseen: Sequence[Message]) -> list[str]:
        """The last messages in short, those that no model has seen included."""
        # A message has one line or more, so that no more messages are needed than lines are shown.
        last = [Message.model_validate_json(message) for message in islice(reversed(self.written), web_ui.LATEST_LINES)]
        return [*self._lines, *web_ui.message_lines([*reversed(last), *unseen])][-web_ui.LATEST_LINES :]

    def read_page(self, unseen: Sequence[Message], first_index: int, limit: int) -> list[Message]:
        """The messages from the `first_index` one on that is held: as many as fit an answer, and at least one, cut if
        it has to be."""
        page: list[Message] = []
        room = MAX_PAGE_BYTES
        known: Iterable[str | Message] = chain(self.written, unseen)
        for entry in islice(known, first_index, first_index + limit):
            message = Message.model_validate_json(entry) if isinstance(entry, str) else entry
            if page and not fits([message], room):
                break
            room -= size_of(message)
            page.append(message)
        return list(cut_messages(page, MAX_DELTA_BYTES))


class MessagesInMemory:
    """The messages that a conversation has in memory, for its worker."""

    def __init__(self, state: State, recent: RecentMessages) -> None:
        self._state = state
        self._recent = recent

    @property
    def prefix(self) -> tuple[Message, ...] | None:
        """Everything that the model has seen and said; None if a part of it is not in memory."""
        return whole_prefix(self._state, self._recent)

    def unseen_results(self, call_ids: Sequence[str]) -> list[ToolResult]:
        """Those of these calls that the model has not seen."""
        unseen = results_in(self._state.unseen.messages)
        return [unseen[call_id] for call_id in call_ids if call_id in unseen]


def whole_prefix(state: State, recent: RecentMessages) -> tuple[Message, ...] | None:
    """The prefix, if all of it is in memory."""
    before = state.prefix.earlier
    if isinstance(before, StoredInRun) or state.prefix.position - len(recent.written) > state.prefix.base:
        return None
    try:
        earlier = unpack(before.data) if before else ()
    except ValueError:
        return None  # another version of the code wrote it, and that version may read it
    return (*earlier, *map(Message.model_validate_json, recent.written))
