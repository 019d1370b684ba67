"""Tells another workflow, such as the one that asked, when calls begin to wait for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import TemporalError

from everturn.payloads import Notify, WaitingCall, WaitNotice
from everturn.sizes import MAX_NOTICE_BYTES, MAX_NOTICE_WHY_BYTES, size_of
from everturn.state import State
from everturn.text.shortening import shortened
from everturn.workflows.new_waits import NewWaits


class WaitNotices:
    """`announced`: the calls that the run before has announced already."""

    def __init__(self, state: State, *, announced: Iterable[str]) -> None:
        self._state = state
        self._new_waits = NewWaits(state, announced=announced, look=self._send_new)
        self._sending: set[asyncio.Task[None]] = set()

    def send_if_new(self) -> None:
        """To be called whenever something has changed."""
        if self._state.start.notify:
            self._new_waits.look_soon()

    def _send_new(self) -> None:
        notify = self._state.start.notify
        new = self._new_waits.take()
        if notify and new:
            notice = notice_of(new, conversation_id=workflow.info().workflow_id, agent=self._state.agent)
            sending = asyncio.create_task(self._send(notify, notice))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send(self, notify: Notify, notice: WaitNotice) -> None:
        with suppress(TemporalError):  # it is over by now, and nobody is to be told
            await workflow.get_external_workflow_handle(notify.workflow_id).signal(notify.signal, notice)


def notice_of(calls: Iterable[WaitingCall], *, conversation_id: str, agent: str) -> WaitNotice:
    """Without arguments, and with short reasons, if the whole is large."""
    whole_notice = WaitNotice(conversation_id=conversation_id, agent=agent, waiting=tuple(calls))
    if size_of(whole_notice) <= MAX_NOTICE_BYTES:
        return whole_notice
    short = [
        call.model_copy(update={"arguments": {}, "why": shortened(call.why, max_bytes=MAX_NOTICE_WHY_BYTES)})
        for call in whole_notice.waiting
    ]
    return whole_notice.model_copy(update={"waiting": tuple(short)})
