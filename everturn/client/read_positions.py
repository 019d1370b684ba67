"""Remembers how far a client has read each conversation, so that the next `reply()` need not read it all again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from temporalio.client import Client

from everturn.history.reader import RunReading
from everturn.history.state_by_history import StateByHistory

MOST_REMEMBERED = 1_000


@dataclass
class ReadPosition:
    """How far a run was read, and the conversation's state at that point."""

    by_history: StateByHistory
    reading: RunReading

    @property
    def run_id(self) -> str:
        return self.by_history.run_id


class ReadPositions:
    """What was read of a client's conversations, by their ids. It holds no messages."""

    def __init__(self, temporal: Client) -> None:
        self._temporal = temporal
        self._seen: OrderedDict[str, ReadPosition] = OrderedDict()

    def take_position(self, conversation_id: str, run_id: str) -> ReadPosition:
        """Takes out what was read of this run, for the one caller that reads on; a new one if there is nothing."""
        seen = self._seen.pop(conversation_id, None)
        if seen is None or seen.run_id != run_id:
            return ReadPosition(StateByHistory(run_id=run_id), RunReading(self._temporal))
        return seen

    def keep_position(self, conversation_id: str, seen: ReadPosition) -> None:
        """Remembers `seen`. To be called only if every message up to there is answered."""
        seen.by_history.transcript.forget()
        self._seen[conversation_id] = seen
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
