"""Gives a model turn the messages that its conversation has in memory, if both are on the same worker. The turn then
need not read them from the history.

A worker that has just replayed a conversation knows its prefix. A worker that runs a conversation knows all its
results, whichever worker the tools ran on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import Any

from temporalio import workflow
from temporalio.worker import StartActivityInput, WorkflowInboundInterceptor, WorkflowOutboundInterceptor

from everturn.activities.prefix_cache import PrefixCache
from everturn.payloads import ModelRequest
from everturn.workflows.recent_messages import MessagesInMemory


class KnownMessages:
    """Copies messages from a worker's conversations to its memory. A conversation's step runs in the thread of the
    worker's event loop, or in one of its own (workflow_steps.py); the memory belongs to the event loop."""

    def __init__(self, prefixes: PrefixCache) -> None:
        self._prefixes = prefixes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0

    def begin(self) -> None:
        """Called in the worker's event loop once it runs."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = get_ident()

    @property
    def interceptor(self) -> type[WorkflowInboundInterceptor]:
        """For the SDK, which makes one for each conversation that it has in memory."""
        known = self

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        class Outbound(WorkflowOutboundInterceptor):
            replayed = False

            def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
                replaying = workflow.unsafe.is_replaying()
                self.replayed |= replaying
                request = next(iter(input.args), None)
                if isinstance(request, ModelRequest) and not replaying:
                    in_memory: MessagesInMemory = workflow.instance().messages_in_memory
                    known.lend_messages(request, in_memory, workflow.info().run_id, replayed=self.replayed)
                    self.replayed = False
                return self.next.start_activity(input)

        return Inbound

    def lend_messages(self, request: ModelRequest, in_memory: MessagesInMemory, run_id: str, *, replayed: bool) -> None:
        """Called before the activity with this request can begin."""
        if request.named:
            for result in in_memory.unseen_results(request.named):
                if not self._prefixes.has_result(run_id, result):
                    self._in_loop(self._prefixes.remember_result, run_id, result)
        # Only after a replay: if turns run on another worker, handing over each prefix is not worth it.
        if replayed and not self._prefixes.knows(request.digest) and (prefix := in_memory.prefix):
            self._in_loop(self._prefixes.remember, "", (), prefix)

    def _in_loop(self, change: Callable[..., object], *arguments: Any) -> None:
        if self._loop_thread == get_ident():  # to wake the loop from its own thread costs three system calls
            change(*arguments)
        elif self._loop:
            self._loop.call_soon_threadsafe(change, *arguments)
