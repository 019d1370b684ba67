"""Tells another workflow, such as the one that asked, when calls begin to wait for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import TemporalError

from everturn.payloads import Notify, WaitingCall, WaitNotice
from everturn.sizes import MAX_NOTICE_BYTES, MAX_NOTICE_WHY_BYTES, shortened, size_of
from everturn.state import State
from everturn.workflows.eviction_guard import OwnLoop


class WaitNotices:
    """`announced`: the calls that the run before has announced already."""

    def __init__(self, state: State, *, announced: Iterable[str]) -> None:
        self._state = state
        self._announced = set(announced)
        self._due = False
        self._own_loop = OwnLoop()
        self._sending: set[asyncio.Task[None]] = set()

    def send_if_new(self) -> None:
        """To be called whenever something has changed."""
        if self._state.start.notify is None or self._due or not self._own_loop.is_running:
            return
        # After everything that is ready to run now: the calls of one reply come in one notice.
        self._due = True
        asyncio.get_running_loop().call_soon(self._send_new, self._state.start.notify)

    def _send_new(self, notify: Notify) -> None:
        self._due = False
        pending = self._state.pending
        self._announced &= pending.keys()  # one that waits again is new again
        new = [waiting.as_waiting() for call_id, waiting in pending.items() if call_id not in self._announced]
        self._announced.update(call.call_id for call in new)
        if new:
            notice = notice_of(new, conversation_id=workflow.info().workflow_id, agent=self._state.agent)
            sending = asyncio.create_task(self._send(notify, notice))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send(self, notify: Notify, notice: WaitNotice) -> None:
        with suppress(TemporalError):  # it is over by now, and nobody is to be told
            await workflow.get_external_workflow_handle(notify.workflow_id).signal(notify.signal, notice)


def notice_of(calls: Iterable[WaitingCall], *, conversation_id: str, agent: str) -> WaitNotice:
    """Without arguments, and with short reasons, if the whole is large."""
    whole = WaitNotice(conversation_id=conversation_id, agent=agent, waiting=tuple(calls))
    if size_of(whole) <= MAX_NOTICE_BYTES:
        return whole
    short = [
        call.model_copy(update={"arguments": {}, "why": shortened(call.why, max_bytes=MAX_NOTICE_WHY_BYTES)})
        for call in whole.waiting
    ]
    return whole.model_copy(update={"waiting": tuple(short)})
