"""Transcripts as a protocol writes them: what was encoded for one request is not encoded again for the next.

A worker remembers the beginning of a transcript, and with it what the beginning was encoded to: `EncodedMessages`, one
for each way to write it (its `key`: the protocol, the model, and what else decides). The next request adds the messages
that are new. If they touch what is written already (the result of a call that was thought to have none), all messages
are encoded anew: so a request's bytes are the same as without anything kept.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from math import inf
from sys import getsizeof
from typing import Any, Protocol, Self, TypeVar, overload

from everturn.providers.base import Request
from everturn.providers.json_values import a_dict, a_str, write_json
from everturn.records import Message, ServerToolUse, ToolCall, ToolResult

Item = dict[str, Any]

BYTES_OF_A_MESSAGE = 1_500
"""Of one that is kept as an object, beside its texts."""

CHUNK_OVERHEAD_BYTES = 41
"""What each piece of what is written takes in memory beside its bytes."""

OBJECT_BYTES = 700
"""What is kept of a transcript takes so much in memory while it is empty, as measured."""
BYTES_OF_AN_ID = 130

LONG_TEXT_BYTES = 512
"""A text as long as that is in memory once, wherever it is written."""


class WireItems(list[Item]):
    """The list of a request's body that holds its transcript. After its first `head` items come those that are
    `written` already, and then the others."""

    def __init__(self, items: Iterable[Item] = (), *, head: int = 0, written: Sequence[bytes] = ()) -> None:
        super().__init__(items)
        self.head = head
        self.written = written

    def in_json(self) -> Iterator[bytes]:
        """The list as JSON, in pieces."""
        head_bytes = write_json(self[: self.head])[1:-1]
        tail_bytes = write_json(self[self.head :])[1:-1]
        yield b"[" + head_bytes
        if self.written:
            yield self.written[0] if head_bytes else self.written[0][1:]
            yield from self.written[1:]
        if tail_bytes and (head_bytes or self.written):
            yield b","
        yield tail_bytes
        yield b"]"


def body_in_json(body: dict[str, Any]) -> bytes:
    """The body in JSON, with what is written already."""
    if not any(isinstance(value, WireItems) and value.written for value in body.values()):
        return write_json(body)
    pieces: list[bytes] = []
    for name, value in body.items():
        pieces += [b"," if pieces else b"{", write_json(name), b":"]
        if isinstance(value, WireItems):
            pieces += value.in_json()
        else:
            pieces.append(write_json(value))
    return b"".join([*pieces, b"}"])


class BranchedSet:
    """Sets of ids, and what a branch adds to them."""

    def __init__(self, *below: Container[str]) -> None:
        self._below = below
        self._added: set[str] = set()

    def __contains__(self, value: object) -> bool:
        return value in self._added or any(value in values for values in self._below)

    def add(self, value: str) -> None:
        self._added.add(value)


class EncodedMessages(ABC):
    """The first messages of a transcript, encoded. Items that no later message can change are `written`; the others are
    `open`."""

    def __init__(self) -> None:
        self.count = 0
        """Of the messages."""
        self.written: list[bytes] = []
        """JSON, with a comma before each item."""
        self.open: list[Any] = []
        self.good_until = inf
        """When a name in it expires, as a timestamp."""
        self.bytes = 0
        """Of what is written, in memory."""
        self._ids: set[str] = set()

    def add_messages(self, messages: Sequence[Message], request: Request) -> None:
        """Encodes the messages that follow."""
        self._encode_messages(messages, request)
        self.count += len(messages)

    @abstractmethod
    def _encode_messages(self, messages: Sequence[Message], request: Request) -> None:
        """Adds what these messages are encoded to."""

    @property
    def memory_bytes(self) -> int:
        """All that is kept, with what is open: a large document of the last message, say."""
        open_bytes = sum(_memory_bytes(self.as_item(opened)) for opened in self.open)
        return OBJECT_BYTES + self.bytes + open_bytes + BYTES_OF_AN_ID * len(self._ids)

    def as_item(self, opened: Any) -> Item:
        """One of the `open` as the request has it."""
        return opened  # type: ignore[no-any-return]

    def wire_items(self, head: Sequence[Item] = ()) -> WireItems:
        """All items, after those of the `head`."""
        return WireItems([*head, *map(self.as_item, self.open)], head=len(head), written=self.written)

    def branch(self) -> Self:
        """A copy to which messages can be added; it must not be closed."""
        copied = copy.copy(self)
        copied.open = list(self.open)
        return copied

    def is_apart_from(self, messages: Sequence[Message]) -> bool:
        """Whether nothing in the encoded messages depends on these, nor these on them, but for the items' order."""
        return self._ids.isdisjoint(_ids_in(messages))

    def can_close_after(self, messages: Sequence[Message], request: Request) -> bool:  # noqa: ARG002 - Anthropic's does
        """Whether what these are encoded to, after what is here, does not depend on what follows."""
        return True

    def close_messages(self, messages: Sequence[Message], texts: Sequence[bytes]) -> None:
        """Writes what no later message can change. `messages`: those that were added since this was last done; `texts`:
        their long texts, and maybe others, which are not kept twice."""
        place = self._first_open()
        closed = self.open[:place]
        self.open = self.open[place:]
        known = {text: text for text in texts}
        for opened in closed:
            item = self.as_item(opened)
            shared = [known[text] for text in long_texts_of(item) if text in known]
            pieces = in_pieces(b"," + write_json(item), shared)
            self.written += pieces
            self.bytes += sum(map(len, pieces)) - sum(map(len, shared)) + CHUNK_OVERHEAD_BYTES * len(pieces)
        self._ids.update(_ids_in(messages))

    def _first_open(self) -> int:
        """The place among `open` of the first that later messages can change."""
        return max(len(self.open) - 1, 0)


class TranscriptBeginning(Protocol):
    """The first messages of a transcript, as a worker remembers them."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Message]: ...
    def __iter__(self) -> Iterator[Message]: ...
    def kept(self, key: Hashable) -> Any:
        """What was kept for these messages, or for the first ones of them; None if nothing was."""

    def long_texts(self, start: int) -> Sequence[bytes]:
        """The long texts in the messages from there on, as they are in their JSON."""

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        """Keeps something that was worked out from these messages, or from the first ones of them."""


class ShownBeginning(Sequence[Message]):
    """A beginning as a model is shown it: its first messages are replaced by others, and each of the rest is shown by
    itself."""

    def __init__(
        self,
        source: TranscriptBeginning,
        key: Hashable,
        *,
        head: Sequence[Message],
        start: int,
        show: Callable[[Message], Message],
    ) -> None:
        """`head`: in the place of the first `start` messages. `key`: what decided how they are shown."""
        self._source = source
        self._key = key
        self._head = head
        self._start = start
        self._shown = show

    def __len__(self) -> int:
        return len(self._head) + len(self._source) - self._start

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | Sequence[Message]:
        after_head = self._start - len(self._head)
        if isinstance(place, int):
            if place < 0:
                place += len(self)
            if place < len(self._head):
                return self._head[place]
            return self._shown(self._source[place + after_head])
        first, last, step = place.indices(len(self))
        rest = self._source[max(first + after_head, self._start) : max(last + after_head, self._start)]
        return [*self._head[first:last], *map(self._shown, rest)][::step]

    def __iter__(self) -> Iterator[Message]:
        return iter(self[:])

    def long_texts(self, start: int) -> Sequence[bytes]:
        if start:
            start = max(start + self._start - len(self._head), 0)
        return self._source.long_texts(start)

    def kept(self, key: Hashable) -> Any:
        return self._source.kept((self._key, key))

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        self._source.keep((self._key, key), value, size)


def shown_beginning(
    source: TranscriptBeginning,
    key: Hashable,
    start: int,
    head_of: Callable[[Sequence[Message]], Sequence[Message]],
    show: Callable[[Message], Message] = lambda message: message,
) -> ShownBeginning:
    """`head_of`: what the first `start` messages are shown as, which is worked out once."""
    head: Sequence[Message] | None = source.kept((key, start))
    if head is None:
        head = tuple(head_of(source[:start]))
        source.keep((key, start), head, sum(BYTES_OF_A_MESSAGE + len(message.model_dump_json()) for message in head))
    return ShownBeginning(source, key, head=head, start=start, show=show)


class RememberedMessages(Sequence[Message]):
    """A transcript of which a worker remembers the beginning."""

    def __init__(self, beginning: TranscriptBeginning, new: Iterable[Message]) -> None:
        self.beginning = beginning
        self.new = tuple(new)
        self.facts: object = None
        """What is known of all of them (transcript_facts.py), once somebody has asked."""

    def __len__(self) -> int:
        return len(self.beginning) + len(self.new)

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | Sequence[Message]:
        before = len(self.beginning)
        if isinstance(place, int):
            if place < 0:
                place += len(self)
            if 0 <= place < before:
                return self.beginning[place]
            return self.new[place - before]
        start, stop, step = place.indices(len(self))
        if step != 1:
            return [*self][place]
        if start >= before:
            return self.new[start - before : max(stop - before, 0)]
        return [*self.beginning[start : min(stop, before)], *self.new[: max(stop - before, 0)]]

    def __iter__(self) -> Iterator[Message]:
        return chain(self.beginning, self.new)

    def followed_by(self, messages: Sequence[Message]) -> RememberedMessages:
        return RememberedMessages(self.beginning, (*self.new, *messages)) if messages else self


E = TypeVar("E", bound=EncodedMessages)


def encoded_messages(request: Request, kind: type[E], *deciding: Hashable) -> E:
    """The request's messages, encoded. `deciding`: what of the request decides how, beside its messages."""
    messages = request.messages
    if isinstance(messages, RememberedMessages) and not request.as_given:
        key = (kind, *deciding)
        kept: E = _settle_beginning(messages.beginning, messages.beginning.kept(key), kind, request)
        messages.beginning.keep(key, kept, kept.memory_bytes)
        rest = messages[kept.count :]
        if kept.count and kept.is_apart_from(rest):
            encoded = kept.branch()
            encoded.add_messages(rest, request)
            return encoded
    encoded = kind()
    encoded.add_messages([*messages], request)
    return encoded


def _settle_beginning(beginning: TranscriptBeginning, kept: E | None, kind: type[E], request: Request) -> E:
    """What was kept, with as many more of the remembered messages as nothing that follows can change."""
    if kept is None or kept.good_until <= (request.now or datetime.now(UTC)).timestamp():
        kept = kind()
    place = _last_reply_in(beginning, kept.count)
    further_messages = beginning[kept.count : place]
    if further_messages and not kept.is_apart_from(further_messages):
        kept = kind()
        further_messages = beginning[:place]
    if further_messages and kept.can_close_after(further_messages, request):
        texts = beginning.long_texts(kept.count)
        kept.add_messages(further_messages, request)
        kept.close_messages(further_messages, texts)
    return kept


def _last_reply_in(beginning: TranscriptBeginning, start: int) -> int:
    """Where the last reply begins, whose results are still to come; `start` if there is none after it."""
    for place in range(len(beginning) - 1, start, -1):
        if beginning[place].role == "assistant" and beginning[place - 1].role != "assistant":
            return place
    return start


def in_pieces(written: bytes, texts: Iterable[bytes]) -> list[bytes]:
    """What is written, cut so that these texts are pieces of it: the very objects, if they are in it in this order."""
    pieces: list[bytes] = []
    start = 0
    for text in texts:
        if (place := written.find(text, start)) >= 0:
            pieces += [written[start:place], text]
            start = place + len(text)
    return [*pieces, written[start:]]


def long_texts_of(value: object) -> Iterator[bytes]:
    """The long texts in a JSON value, in order, as JSON has them between its quotes."""
    if isinstance(value, str):
        if len(value) >= LONG_TEXT_BYTES:
            yield write_json(value)[1:-1]
    elif isinstance(value, dict):
        for item in value.values():
            yield from long_texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from long_texts_of(item)


def _memory_bytes(value: object) -> int:
    """Of a JSON value, in memory."""
    size = getsizeof(value)
    if isinstance(value, dict):
        size += sum(map(_memory_bytes, value.values()))
    elif isinstance(value, list | tuple):
        size += sum(map(_memory_bytes, value))
    return size


def _ids_in(messages: Sequence[Message]) -> Iterator[str]:
    """All ids by which one message can mean another."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall | ToolResult):
                yield part.call_id
            if isinstance(part, ToolCall) and (caller := a_dict(part.extra.get("caller"))):
                yield from filter(None, [a_str(caller.get("tool_id"))])
            elif isinstance(part, ServerToolUse) and isinstance(part.data, dict):
                yield from filter(None, [a_str(part.data.get("id")), a_str(part.data.get("tool_use_id"))])
