"""What a worker remembers of the conversations that it serves: their prefixes, found by digest, bounded by bytes.

A digest is a hash chained over messages, so equal digests mean equal prefixes: a retried turn, a reset, a fork or a
reused id can never take the wrong one. The cache may forget anything at any time; the history is the truth.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from everturn.records import Message, ToolResult

DIGESTS_PER_BRANCH = 4
"""The last turns of a branch that can still be found: a retry asks for the one before."""

MESSAGE_OVERHEAD_BYTES = 1_500
"""What a message takes in memory beyond its JSON: of short ones, by far the most. Measured."""


@dataclass(eq=False)
class _Branch:
    """The messages of one conversation, and the lengths at which they were seen, by digest."""

    messages: list[Message]
    bytes: int
    digests: OrderedDict[str, int] = field(default_factory=OrderedDict)


class Prefixes:
    """An LRU of branches. Not thread-safe: it belongs to the worker's event loop."""

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._branches: OrderedDict[int, _Branch] = OrderedDict()
        self._by_digest: dict[str, _Branch] = {}
        self._results: OrderedDict[tuple[str, str], tuple[ToolResult, int]] = OrderedDict()

    def knows(self, digest: str) -> bool:
        return digest in self._by_digest

    def find(self, digest: str, length: int) -> Sequence[Message] | None:
        """The prefix with this digest; None where it is not remembered."""
        if length == 0:
            return ()
        branch = self._by_digest.get(digest)
        if branch is None or branch.digests[digest] != length:
            self.misses += 1
            return None
        self.hits += 1
        self._branches.move_to_end(id(branch))
        return branch.messages[:length]

    def remember(self, prefix_digest: str, messages: Sequence[Message], new: Sequence[Message]) -> str:
        """Remembers `messages` followed by `new`; returns the digest of both together."""
        digest, size = chained(prefix_digest or digest_of(messages), new)
        branch = self._by_digest.get(prefix_digest)
        if branch is None or branch.digests[prefix_digest] != len(branch.messages):
            # Unknown, or somebody else went on from here already: then this is a branch of its own.
            branch = _Branch(list(messages), sum(map(size_of, messages)))
            self._branches[id(branch)] = branch
            self.bytes += branch.bytes
        branch.messages += new
        branch.bytes += size
        self.bytes += size
        self._name(branch, digest)
        self._forget_the_oldest()
        return digest

    def _name(self, branch: _Branch, digest: str) -> None:
        if (other := self._by_digest.get(digest)) is not None:
            other.digests.pop(digest, None)
        branch.digests[digest] = len(branch.messages)
        self._by_digest[digest] = branch
        self._branches.move_to_end(id(branch))
        while len(branch.digests) > DIGESTS_PER_BRANCH:
            self._by_digest.pop(branch.digests.popitem(last=False)[0])

    # ------------------------------------------------------------ results that the deltas only name

    def remember_result(self, run_id: str, result: ToolResult) -> None:
        size = len(result.model_dump_json())
        self._results[run_id, result.call_id] = (result, size)
        self.bytes += size
        self._forget_the_oldest()

    def find_results(self, run_id: str, call_ids: Sequence[str]) -> dict[str, ToolResult] | None:
        """The results of these calls; None unless all are here."""
        keys = [(run_id, call_id) for call_id in call_ids]
        if not all(key in self._results for key in keys):
            return None
        return {call_id: self._results[run_id, call_id][0] for call_id in call_ids}

    # ------------------------------------------------------------ bounds

    def clear(self) -> None:
        self._branches.clear()
        self._by_digest.clear()
        self._results.clear()
        self.bytes = 0

    def _forget_the_oldest(self) -> None:
        while self.bytes > self.max_bytes and self._results:
            self.bytes -= self._results.popitem(last=False)[1][1]
        while self.bytes > self.max_bytes and self._branches:
            _, branch = self._branches.popitem(last=False)
            self.bytes -= branch.bytes
            for digest in branch.digests:
                del self._by_digest[digest]


def digest_of(messages: Sequence[Message]) -> str:
    return chained("", messages)[0]


def chained(digest: str, messages: Sequence[Message]) -> tuple[str, int]:
    """The digest of a prefix followed by these messages, and the messages' size in bytes of JSON."""
    size = 0
    for message in messages:
        written = message.model_dump_json().encode()
        size += len(written) + MESSAGE_OVERHEAD_BYTES
        digest = urlsafe_b64encode(blake2b(written, key=digest.encode(), digest_size=15).digest()).decode()
    return digest, size


def size_of(message: Message) -> int:
    return len(message.model_dump_json()) + MESSAGE_OVERHEAD_BYTES
