"""Which calls have begun to wait for a person, for what tells others of them: each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from everturn.payloads import WaitingCall
from everturn.state import State
from everturn.workflows.eviction_guard import OwnLoop


class NewWaits:
    """`announced`: the calls that the run before has announced already. `look`: is called once something may have
    changed, after everything that is ready to run then, so that the calls of one reply are taken together."""

    def __init__(self, state: State, *, announced: Iterable[str], look: Callable[[], None]) -> None:
        self._state = state
        self._announced = set(announced)
        self._look = look
        self._own_loop = OwnLoop()
        self.is_due = False
        """Whether `look` is about to be called."""

    def look_soon(self) -> None:
        if self.is_due or not self._own_loop.is_running:
            return
        self.is_due = True
        asyncio.get_running_loop().call_soon(self._look_now)

    def _look_now(self) -> None:
        self.is_due = False
        self._look()

    def take(self) -> list[WaitingCall]:
        """The calls that have begun to wait since it was asked last. One that waits again is new again."""
        pending = self._state.pending
        self._announced &= pending.keys()
        new = [waiting.as_waiting() for call_id, waiting in pending.items() if call_id not in self._announced]
        self._announced.update(call.call_id for call in new)
        return new
