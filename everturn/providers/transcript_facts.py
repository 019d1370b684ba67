"""What a request and its reply need to know of a whole transcript, worked out from each message once."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Container, Sequence
from typing import Self

from everturn import names
from everturn.providers.encoded_messages import (
    BYTES_OF_A_MESSAGE,
    BYTES_OF_AN_ID,
    OBJECT_BYTES,
    RememberedMessages,
)
from everturn.records import Message


class CallIds(Container[str]):
    """The ids of a transcript's calls. Those of a branch are the ones that were there when it began: what its trunk
    learns later belongs to another conversation with the same beginning."""

    def __init__(self, trunk: CallIds | None = None, *, trunk_messages: int = 0) -> None:
        self._places: dict[str, int] = {}
        """By id, the place of the first message that has it."""
        self._trunk = trunk
        self._trunk_messages = trunk_messages

    def __contains__(self, call_id: object) -> bool:
        if call_id in self._places:
            return True
        return self._trunk is not None and self._trunk.has_before(self._trunk_messages, call_id)

    def has_before(self, end: int, call_id: object) -> bool:
        """Whether one of the first `end` messages has it."""
        return isinstance(call_id, str) and self._places.get(call_id, end) < end

    def add(self, call_id: str, place: int) -> None:
        self._places.setdefault(call_id, place)


class TranscriptFacts:
    def __init__(self) -> None:
        self.count = 0
        """Of the messages."""
        self.replies = 0
        self.call_ids = CallIds()
        """Of the calls in replies."""
        self.calls = 0
        self.is_cut_short = False
        """A reply's turn was cancelled."""
        self.bound: dict[str, tuple[int, str]] = {}
        """By provider: the place of the last reply that was asked for without thoughts that the provider had refused,
        and what it is bound to."""
        self.after_summaries = 0
        """The place after the last summary."""
        self.system: tuple[str, ...] = ()
        """What system messages say."""
        self.last_said: Message | None = None
        """What a person said last, if something came with it that is only for one provider, or one reader."""
        self.last_said_bytes = 0
        self.lost_calls: Counter[str] = Counter()
        """How many calls of each tool were given up, since a user's message, because workers were lost with them."""

    def add_messages(self, messages: Sequence[Message]) -> None:
        for place, message in enumerate(messages, self.count):
            self.is_cut_short |= message.cut_short
            if message.summary:
                self.after_summaries = place + 1
            if message.bound_to:
                self.bound = {**self.bound, message.provider: (place, message.bound_to)}
            if message.role == "system":
                self.system += (message.text,)
            if message.role == "user":
                self.lost_calls = Counter()
                if not (message.author or message.summary):
                    self.last_said, self.last_said_bytes = None, 0
                    if message.provider:
                        self.last_said = message
                        self.last_said_bytes = BYTES_OF_A_MESSAGE + len(message.model_dump_json())
            for part in message.parts:
                if part.kind == "tool_call" and message.role == "assistant":
                    self.call_ids.add(part.call_id, place)
                    self.calls += 1
                elif part.kind == "tool_result" and names.WORKERS_LOST in part.extra:
                    self.lost_calls = self.lost_calls + Counter([part.name])
            self.replies += message.role == "assistant"
        self.count += len(messages)

    @property
    def memory_bytes(self) -> int:
        return OBJECT_BYTES + BYTES_OF_AN_ID * self.calls + self.last_said_bytes

    def branch(self) -> Self:
        """A copy to which messages can be added."""
        copied = copy.copy(self)
        copied.call_ids = CallIds(self.call_ids, trunk_messages=self.count)
        return copied


def facts_of(messages: Sequence[Message]) -> TranscriptFacts:
    if not isinstance(messages, RememberedMessages):
        facts = TranscriptFacts()
        facts.add_messages(messages)
        return facts
    if isinstance(messages.facts, TranscriptFacts):
        return messages.facts
    beginning = messages.beginning
    kept: TranscriptFacts = beginning.kept(TranscriptFacts) or TranscriptFacts()
    kept.add_messages(beginning[kept.count :])
    beginning.keep(TranscriptFacts, kept, kept.memory_bytes)
    facts = kept.branch()
    facts.add_messages(messages.new)
    messages.facts = facts
    return facts
