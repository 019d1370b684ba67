"""What a client has seen of its conversations when they were answered last, so that the next reply costs no look at all
that came before."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from temporalio.client import Client

from everturn.history.reader import Reading
from everturn.history.state_by_history import StateByHistory

MOST_REMEMBERED = 1_000


@dataclass
class Seen:
    """How far a run was read, and what the conversation had come to there."""

    by_history: StateByHistory
    reading: Reading

    @property
    def run_id(self) -> str:
        return self.by_history.run_id


class Answered:
    """The conversations of a client, by their ids. It holds no messages."""

    def __init__(self, temporal: Client) -> None:
        self._temporal = temporal
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    def take(self, conversation_id: str, run_id: str) -> Seen:
        """What was seen of the run, for who reads on, and is the only one to have it."""
        seen = self._seen.pop(conversation_id, None)
        if seen is None or seen.run_id != run_id:
            return Seen(StateByHistory(run_id=run_id), Reading(self._temporal))
        return seen

    def keep(self, conversation_id: str, seen: Seen) -> None:
        """All that was said is answered, as far as was seen."""
        seen.by_history.transcript.forget()
        self._seen[conversation_id] = seen
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
