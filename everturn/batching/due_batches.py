"""What a collector has gathered, by group, and when a group is due. Pure: the caller passes the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from everturn.batching.records import BatchLine


@dataclass(frozen=True, slots=True)
class GatheredLine:
    line: BatchLine
    since: float
    """Seconds since 1970."""


class GatheredLines:
    def __init__(self, lines: Iterable[tuple[BatchLine, float]] = ()) -> None:
        self._groups: dict[tuple[str, str], list[GatheredLine]] = {}
        self._known: set[str] = set()
        for line, since in lines:
            self.add(line, since)

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[GatheredLine]:
        return (gathered for group in self._groups.values() for gathered in group)

    def add(self, line: BatchLine, since: float) -> None:
        if line.id not in self._known:
            self._known.add(line.id)
            self._groups.setdefault(line.turn.group, []).append(GatheredLine(line, since))

    def remove(self, line_id: str) -> bool:
        """Whether it was gathered, and is not any more."""
        if line_id not in self._known:
            return False
        self._known.discard(line_id)
        for key, group in list(self._groups.items()):
            self._keep(key, [entry for entry in group if entry.line.id != line_id])
        return True

    @property
    def has_full(self) -> bool:
        return any(map(_is_full, self._groups.values()))

    @property
    def next_due(self) -> float | None:
        """When the first group is due, in seconds since 1970; None if nothing is gathered."""
        return min(map(_due_at, self._groups.values()), default=None)

    def take_due(self, now: float) -> list[tuple[BatchLine, ...]]:
        """The lines of the batches that are to be sent now."""
        due_batches: list[tuple[BatchLine, ...]] = []
        for key, group in list(self._groups.items()):
            if _is_full(group) or _due_at(group) <= now:
                count = _how_many(group)
                lines = tuple(entry.line for entry in group[:count])
                due_batches.append(lines)
                self._known -= {line.id for line in lines}
                self._keep(key, group[count:])
        return due_batches

    def _keep(self, key: tuple[str, str], group: list[GatheredLine]) -> None:
        """No group is ever empty."""
        if group:
            self._groups[key] = group
        else:
            del self._groups[key]


def _due_at(group: list[GatheredLine]) -> float:
    return group[0].since + min(entry.line.turn.gather_seconds for entry in group)


def _is_full(group: list[GatheredLine]) -> bool:
    turn = group[-1].line.turn
    return len(group) >= turn.most_turns or sum(entry.line.turn.size for entry in group) >= turn.most_bytes


def _how_many(group: list[GatheredLine]) -> int:
    """How many lines fit into one batch: at least one."""
    turn = group[-1].line.turn
    size = 0
    for count, entry in enumerate(group[: turn.most_turns]):
        size += entry.line.turn.size
        if size > turn.most_bytes and count:
            return count
    return min(len(group), turn.most_turns)
