"""A conversation that is stalled or paused waits until a person sends `resume`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from temporalio import workflow

from everturn import names
from everturn.calls.unreadable_inputs import MOST_NAMED, SEND_AGAIN, STALLED_BY_SIGNALS, signals_problem
from everturn.state import State
from everturn.workflows.early_decisions import EarlyDecisions
from everturn.workflows.message_dispatch import Handlers, Later
from everturn.workflows.tracing import Tracing


class StallsAndPauses:
    def __init__(self, state: State, handlers: Handlers, tracing: Tracing, *, on_change: Callable[[], None]) -> None:
        self._state = state
        self._handlers = handlers
        self._tracing = tracing
        self._on_change = on_change
        self._early = EarlyDecisions()
        self._held: set[str] = set()
        """Why the conversation waits for `resume`."""
        self.ended_by = "", ""
        """The last command that ended a stall or pause, and who sent it."""

    @property
    def is_held(self) -> bool:
        """Whether something waits for `resume`."""
        return bool(self._held)

    def keep_early(self, resume: Later) -> bool:
        """Keeps a `resume` that came before the stall that it is for."""
        return self._early.keep(names.RESUME, resume, waits=False)

    async def stall_if_signals_were_lost(self) -> None:
        """Waits for a person if a signal can't be read: it may have mattered, and only a person can send it again."""
        while (lost := self._handlers.lost) and not self._state.closing:
            named = lost[:MOST_NAMED]
            self._handlers.lost = lost[MOST_NAMED:]
            numbers = ",".join(str(signal.number) for signal in named)
            workflow.patched(f"{STALLED_BY_SIGNALS}{numbers}")  # for those who read the history
            problem = next((signal.problem for signal in named if signal.problem), "")
            await self.wait_while_stalled(signals_problem([signal.name for signal in named], problem), SEND_AGAIN)

    async def wait_while_stalled(self, cause: str, cure: str | None) -> None:
        """Waits until a person sends `resume`."""
        state = self._state
        state.begin_stall(cause, cure)
        self._on_change()
        self._early.release(names.RESUME, until=lambda: state.stall is None)
        self._early.discard_late(names.RESUME)  # one is enough: further ones were not meant for a later stall
        await self._hold_until("stalled", lambda: state.stall is None)

    async def wait_while_paused(self) -> None:
        await self.stall_if_signals_were_lost()
        if self._state.paused:
            self._on_change()  # another agent may have taken over since
            await self._hold_until("paused", lambda: not self._state.paused)

    async def _hold_until(self, reason: Literal["stalled", "paused"], over: Callable[[], bool]) -> None:
        """Waits for a person. If several calls wait for the same `resume`, this is one wait."""
        if reason in self._held:
            await workflow.wait_condition(over)
            return
        since = workflow.time()
        self._held.add(reason)
        try:
            await workflow.wait_condition(over)
        finally:
            self._held.discard(reason)
            ended, sender = self.ended_by if over() else ("", "")
            self._tracing.was_held(reason, since=since, ended=ended, resumed_by=sender)
