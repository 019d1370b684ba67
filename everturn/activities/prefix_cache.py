"""What a worker remembers of the conversations that it serves: their prefixes, found by digest, bounded by bytes.

A digest is a hash chained over messages, so equal digests mean equal prefixes: a retried turn, a reset, a fork or a
reused id can never take the wrong one. The cache may forget anything at any time; the history is the truth.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from sys import getsizeof
from typing import Any, Final, overload

from everturn.providers.encoded_messages import (
    CHUNK_OVERHEAD_BYTES,
    LONG_TEXT_BYTES,
    RememberedMessages,
    in_pieces,
    long_texts_of,
)
from everturn.records import Message, ToolResult

Written = tuple[bytes, ...]
"""A message as JSON, in pieces: long texts are pieces of their own, which requests share."""

NODE_BYTES = 450
MESSAGE_BYTES = 56
"""What a turn and each of its messages take in memory beside the messages' JSON, as measured."""
RESULT_OVERHEAD_BYTES: Final = 1_500
"""What a result takes beyond its JSON. For a short one this is by far the most."""

STALE_TURNS = 10
"""What was worked out from a prefix, and was not asked for in so many turns, is of no use any more: of a model or a
view that was changed since."""


@dataclass(eq=False, slots=True)
class _Node:
    """The messages of one turn, which follow those of its parent. Conversations that begin with the same messages share
    their nodes."""

    digest: str
    parent: _Node | None
    written: tuple[Written, ...]
    length: int
    """Of the whole prefix, in messages."""

    bytes: int
    """Of this node alone."""

    branch_bytes: int
    """Of this node and all above it."""

    turns: int
    """Of the branch, up to here."""

    children: int = 0
    used: int = 0
    """When it was asked for last, in steps of the memory's clock."""

    derived: dict[Hashable, _DerivedValue] = field(default_factory=dict)
    """What was worked out from the prefix, or from the beginning of it."""

    def written_between(self, start: int, stop: int) -> Sequence[Written]:
        """Of its messages, those from one place in the prefix to another."""
        before = self.length - len(self.written)
        return self.written[max(start - before, 0) : max(stop - before, 0)]

    @property
    def derived_bytes(self) -> int:
        return sum(derived.bytes for derived in self.derived.values())


@dataclass(slots=True)
class _DerivedValue:
    value: Any
    bytes: int
    used_at: int
    """The turn in which it was asked for last."""


@dataclass(frozen=True, slots=True)
class _KeptResult:
    """A result too large for a delta, which only names it."""

    result: ToolResult
    bytes: int
    used: int


class Prefix(Sequence[Message]):
    """The messages of one branch."""

    def __init__(self, cache: PrefixCache, node: _Node) -> None:
        self._cache = cache
        self._node = node

    def __len__(self) -> int:
        return self._node.length

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | Sequence[Message]:
        if isinstance(place, int):
            if place < 0:
                place += len(self)
            return _read_message(self._written_between(place, place + 1)[0])
        start, stop, step = place.indices(len(self))
        if step < 0:
            return [*self][place]
        return [*map(_read_message, self._written_between(start, stop))][::step]

    def __iter__(self) -> Iterator[Message]:
        return map(_read_message, self._written_between(0, len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def _written_between(self, start: int, stop: int) -> list[Written]:
        """The messages from one place to another, as they are written; only the turns that hold them are looked at."""
        turns: list[Sequence[Written]] = []
        for node in _nodes_upwards(self._node):
            if node.length <= start:
                break
            turns.append(node.written_between(start, stop))
        return [message for turn in reversed(turns) for message in turn]

    def kept(self, key: Hashable) -> Any:
        """What was worked out from these messages, or from the first of them, and kept; None if there is none."""
        return self._cache.find_derived(self._node, key)

    def long_texts(self, start: int) -> list[bytes]:
        """The long texts in the messages from there on, as they are in their JSON."""
        written = self._written_between(start, len(self))
        return [piece for message in written for piece in message if len(piece) >= LONG_TEXT_BYTES]

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        """Keeps what was worked out, for the next turn of this branch."""
        self._cache.keep_derived(self._node, key, value, size)


def follow_prefix(prefix: Sequence[Message], delta: Sequence[Message]) -> Sequence[Message]:
    """The messages of a prefix, and the new ones."""
    if isinstance(prefix, RememberedMessages):
        return prefix.followed_by(delta)
    if isinstance(prefix, Prefix):
        return RememberedMessages(prefix, delta)
    return (*prefix, *delta)


class PrefixCache:
    """A tree of turns, and the results that are to become part of it. If it is too large, what nobody has asked for the
    longest time goes first, be it a branch or a result. Not thread-safe: it belongs to the worker's event loop."""

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.hits = 0
        """Model turns that found all that they needed here."""
        self.misses = 0
        """Those that had to read the history."""
        self._counted = (0, 0)
        self._nodes: dict[str, _Node] = {}
        self._leaves: OrderedDict[str, _Node] = OrderedDict()
        self._results: OrderedDict[tuple[str, str], _KeptResult] = OrderedDict()
        self._clock = 0

    def take_counts(self) -> tuple[int, int]:
        """Hits and misses since this was last asked."""
        hits, misses = self._counted
        self._counted = (self.hits, self.misses)
        return self.hits - hits, self.misses - misses

    def knows(self, digest: str) -> bool:
        return digest in self._nodes

    def find(self, digest: str, length: int) -> Sequence[Message] | None:
        """The prefix with this digest; None if it is not remembered."""
        if length == 0:
            return ()
        node = self._nodes.get(digest)
        if node is None or node.length != length:
            return None
        self._touch(node)
        return Prefix(self, node)

    def remember_whole(self, digest: str, messages: Sequence[Message]) -> Sequence[Message]:
        """Remembers a whole prefix that was found elsewhere; returns it as `find` does. One that has no digest gets its
        own: there may be others without any."""
        digest = digest or digest_of(messages)
        if (
            messages
            and digest not in self._nodes
            and (size := _size_of(written := _all_in_pieces(messages))) <= self.max_bytes
        ):
            self._add_node(digest, None, written, size)
            self._forget_the_oldest()
        return self.find(digest, len(messages)) or messages

    def find_derived(self, node: _Node, key: Hashable) -> Any:
        self._bring_down(node)
        if (derived := node.derived.get(key)) is None:
            return None
        derived.used_at = node.turns
        return derived.value

    def _bring_down(self, node: _Node) -> None:
        """What was worked out goes along with the newest turn: a fork from an earlier one works it out anew, and has
        its own."""
        holder = next((above for above in _nodes_upwards(node) if above.derived), node)
        if holder is not node and self._nodes.get(node.digest) is node:
            node.derived = holder.derived
            holder.derived = {}

    def keep_derived(self, node: _Node, key: Hashable, value: Any, size: int) -> None:
        if self._nodes.get(node.digest) is not node:
            return  # it was forgotten in the meantime
        self._bring_down(node)
        stale = [name for name, derived in node.derived.items() if derived.used_at < node.turns - STALE_TURNS]
        for name in (key, *stale):
            self._drop_derived(node, name)
        if node.branch_bytes + node.derived_bytes + size > self.max_bytes:
            return
        node.derived[key] = _DerivedValue(value, size, node.turns)
        self.bytes += size
        self._forget_the_oldest()

    def _drop_derived(self, node: _Node, key: Hashable) -> None:
        if (derived := node.derived.pop(key, None)) is not None:
            self.bytes -= derived.bytes

    def remember(self, prefix_digest: str, messages: Sequence[Message], delta: Sequence[Message]) -> str:
        """Remembers `messages` followed by `delta`; returns the digest of both together."""
        prefix_digest = prefix_digest or digest_of(messages)
        if not delta:
            self.remember_whole(prefix_digest, messages)
            return prefix_digest
        digest = chain_digest(prefix_digest, delta)
        if (node := self._nodes.get(digest)) is not None:
            self._touch(node)
            return digest
        parent = self._nodes.get(prefix_digest)
        pieces_before: tuple[Written, ...] = ()
        if parent is None:
            pieces_before = _all_in_pieces(messages)
        written = _all_in_pieces(delta)
        bytes_above = parent.branch_bytes if parent else _size_of(pieces_before)
        size = _size_of(written)
        if bytes_above + size > self.max_bytes:
            return digest  # it would push everything else out, and then itself
        if pieces_before:
            parent = self._add_node(prefix_digest, None, pieces_before, bytes_above)
        self._add_node(digest, parent, written, size)
        self._forget_the_oldest()
        return digest

    def _add_node(self, digest: str, parent: _Node | None, written: tuple[Written, ...], size: int) -> _Node:
        length = len(written)
        branch_bytes = size
        turns = 1
        if parent:
            length += parent.length
            turns += parent.turns
            branch_bytes += parent.branch_bytes
            parent.children += 1
            self._leaves.pop(parent.digest, None)
        node = _Node(digest, parent, written, length, size, branch_bytes, turns)
        self._nodes[digest] = self._leaves[digest] = node
        node.used = self._tick()
        self.bytes += size
        return node

    def _touch(self, node: _Node) -> None:
        node.used = self._tick()
        if not node.children:
            self._leaves.move_to_end(node.digest)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    # ------------------------------------------------------------ results that the deltas only name

    def remember_result(self, run_id: str, result: ToolResult) -> None:
        size = getsizeof(result.model_dump_json()) + RESULT_OVERHEAD_BYTES
        self.forget_results(run_id, [result.call_id])  # an earlier attempt's, which nobody got
        if size > self.max_bytes:
            return
        self._results[run_id, result.call_id] = _KeptResult(result, size, self._tick())
        self.bytes += size
        self._forget_the_oldest()

    def has_result(self, run_id: str, result: ToolResult) -> bool:
        """Whether it is what is remembered of its call."""
        kept = self._results.get((run_id, result.call_id))
        return kept is not None and kept.result == result

    def find_results(self, run_id: str, call_ids: Sequence[str]) -> dict[str, ToolResult] | None:
        """The results of these calls; None unless all are here."""
        keys = [(run_id, call_id) for call_id in call_ids]
        if not all(key in self._results for key in keys):
            return None
        return {call_id: self._results[run_id, call_id].result for call_id in call_ids}

    def forget_results(self, run_id: str, call_ids: Sequence[str]) -> None:
        """For results that are in a prefix now."""
        for call_id in call_ids:
            if entry := self._results.pop((run_id, call_id), None):
                self.bytes -= entry.bytes

    # ------------------------------------------------------------ limits

    def clear(self) -> None:
        self._nodes.clear()
        self._leaves.clear()
        self._results.clear()
        self.bytes = 0

    def _forget_the_oldest(self) -> None:
        while self.bytes > self.max_bytes and (self._leaves or self._results):
            leaf = next(iter(self._leaves.values()), None)
            kept = next(iter(self._results.values()), None)
            if leaf and (kept is None or leaf.used < kept.used):
                self._cut_branch(self._leaves.popitem(last=False)[1])
            else:
                self.bytes -= self._results.popitem(last=False)[1].bytes

    def _cut_branch(self, leaf: _Node) -> None:
        """Forgets a branch, up to the first node that another branch shares."""
        for node in _nodes_upwards(leaf):
            if node.children:
                break
            del self._nodes[node.digest]
            self.bytes -= node.bytes + node.derived_bytes
            if node.parent:
                node.parent.children -= 1


def _nodes_upwards(node: _Node | None) -> Iterator[_Node]:
    while node:
        yield node
        node = node.parent


def digest_of(messages: Sequence[Message]) -> str:
    return chain_digest("", messages)


def chain_digest(digest: str, messages: Sequence[Message]) -> str:
    """The digest of a prefix followed by these messages."""
    for message in messages:
        written = message.model_dump_json().encode()
        digest = urlsafe_b64encode(blake2b(written, key=digest.encode(), digest_size=15).digest()).decode()
    return digest


def _all_in_pieces(messages: Sequence[Message]) -> tuple[Written, ...]:
    """Each message as JSON, in pieces."""
    return tuple(map(_message_in_pieces, messages))


def _message_in_pieces(message: Message) -> Written:
    written = message.model_dump_json().encode()
    if len(written) < LONG_TEXT_BYTES:
        return (written,)
    return tuple(in_pieces(written, long_texts_of(message.model_dump(mode="json"))))


def _read_message(written: Written) -> Message:
    """The conversation has read the same JSON from its history, or it would not have gone on with it."""
    return Message.model_validate_json(b"".join(written))


def _size_of(written: Sequence[Written]) -> int:
    """Bytes in memory."""
    pieces = [len(piece) for message in written for piece in message]
    return NODE_BYTES + MESSAGE_BYTES * len(written) + CHUNK_OVERHEAD_BYTES * len(pieces) + sum(pieces)
