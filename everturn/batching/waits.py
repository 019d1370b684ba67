"""A conversation's turn that waits for a provider's batch. It waits here, in the workflow: no activity is open
meanwhile, and no worker holds anything.

`call_model` says that the turn may wait, and fails with the batch that it can join. The conversation joins that by a
signal of its own, so it joins exactly once, whatever is killed. The collector says by signal what became of the line;
then `call_model` is asked again, with that, and reads the reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, TemporalError

from everturn import names
from everturn.batching.records import BatchLine, BatchNotice, BatchTurn, LeaveBatch
from everturn.calls.causes import FailureCause, cause_of
from everturn.payloads import ModelRequest
from everturn.text.iso_times import iso_time
from everturn.workflows.cancellation import begin_signal, send_signal
from everturn.workflows.message_dispatch import read_signal

LONGEST_WAIT: Final = timedelta(days=4)
"""Providers answer or give up within one day, Gemini within two. After this, the collector itself must be gone."""

CURE: Final = "It goes on by itself, within a day. Cancel the turn to wait no longer."
GONE: Final = "The batch's collector, {collector!r}, has said nothing for {days} days."
GONE_CURE: Final = "`resume` asks the model anew. If the batch was answered after all, that is paid twice."

UNREACHED: Final = "The batch's collector, {collector!r}, could not be reached, {times} times in a row."
UNREACHED_CURE: Final = "`resume` tries again."

MOST_MISSED: Final = 5
"""So often a turn finds that the collector which it was to join has just ended."""


class BatchWaits:
    def __init__(self, *, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._missed = 0
        self._line: BatchLine | None = None
        """That the current turn waits for."""
        self._since = ""
        self._notice: BatchNotice | None = None
        self._kept: ModelRequest | None = None
        """The request of a turn that stalled before its reply was read, although its batch is over: `resume` reads it,
        and pays nothing."""

    @property
    def cause(self) -> str | None:
        """What the turn waits for, in words; None if it does not wait for a batch."""
        if self._line is None:
            return None
        provider = self._line.turn.provider
        if self._notice and self._notice.batch_id:
            waits = f"The turn waits for batch {self._notice.batch_id} of {provider}, since {self._notice.sent_at}."
        else:
            waits = f"The turn waits for the next batch of {provider}, since {self._since}."
        return waits if self._awaited is None else f"{waits} {self._awaited.cause}"

    @property
    def cure(self) -> str | None:
        if self._line is None:
            return None
        return CURE if self._awaited is None else self._awaited.cure

    @property
    def holds_reply(self) -> bool:
        """Whether a reply that is paid is still to be read, by this run and of the same model: neither is to change."""
        return self._kept is not None

    @property
    def collector(self) -> str:
        """The workflow that collects the batch; empty if no turn waits for one."""
        return self._line.turn.collector if self._line else ""

    @property
    def joined_at(self) -> str:
        return self._since if self._line else ""

    def take_notice(self, *inputs: Any) -> None:
        """The signal `batch`. One that is about another line, or comes again, changes nothing."""
        notice = read_signal(BatchNotice, names.BATCH, inputs)
        if notice is None or self._line is None or notice.line != self._line.id or self._is_over():
            return
        self._notice = notice
        self._on_change()

    def with_kept_notice(self, request: ModelRequest) -> ModelRequest:
        """The request; if it is that of a turn whose reply could not be read, with where the reply is."""
        kept = self._kept
        self._kept = None
        if kept is None or (kept.position, kept.delta, kept.model) != (request.position, request.delta, request.model):
            return request
        return request.model_copy(update={"batch": kept.batch})

    async def wait_after(self, error: ActivityError, request: ModelRequest) -> ModelRequest:
        """The request of the turn whose try ended with this error, to be made again: its batch is over. Raises the
        error if it is about something else."""
        failure = cause_of(error)
        turn = failure.batch_turn
        if turn is None:
            if request.batch and request.batch.has_result and _is_unread(failure):
                self._kept = request
            raise error
        notice = await self._wait_for_notice(turn, error)
        return request.model_copy(update={"batch": notice})

    async def _wait_for_notice(self, turn: BatchTurn, error: ActivityError) -> BatchNotice | None:
        """What became of the line; None if there was no collector to join any more."""
        line = self._next_line(turn, error.activity_id)
        collector = workflow.get_external_workflow_handle(turn.collector)
        self._line = line
        self._notice = None
        self._since = iso_time(workflow.now())
        self._on_change()
        try:
            await send_signal(collector.signal(names.JOIN_BATCH, line))
            self._missed = 0
            await self._wait_until_over()
            return self._notice
        except asyncio.CancelledError:
            self._leave(collector, line)
            raise
        except TimeoutError:
            cause = GONE.format(collector=turn.collector, days=LONGEST_WAIT.days)
            return BatchNotice(line=line.id, state="failed", cause=cause, cure=GONE_CURE)
        except TemporalError:
            self._missed += 1
            if self._missed > MOST_MISSED:
                cause = UNREACHED.format(collector=turn.collector, times=self._missed)
                self._missed = 0  # `resume` has as many tries
                raise error from ApplicationError(cause, {"cure": UNREACHED_CURE})
            return None
        finally:
            self._line = None
            self._on_change()

    async def _wait_until_over(self) -> None:
        """Raises TimeoutError if nothing was heard for too long, not even that a worker is waited for."""
        while True:
            try:
                await workflow.wait_condition(
                    self._is_over, timeout=LONGEST_WAIT, timeout_summary="until its batch is over"
                )
            except TimeoutError:
                if self._awaited is None:
                    raise
            else:
                return

    def _next_line(self, turn: BatchTurn, activity_id: str) -> BatchLine:
        info = workflow.info()
        return BatchLine(
            # After a reset, what had joined by then has the same id, and what joins anew has another.
            id=workflow.uuid4().hex,
            conversation=info.workflow_id,
            run_id=info.run_id,
            activity_id=activity_id,
            turn=turn,
        )

    @property
    def _awaited(self) -> BatchNotice | None:
        """What says that no worker can send or follow the batch, if that is so."""
        return self._notice if self._notice and self._notice.state == "awaited" else None

    def _is_over(self) -> bool:
        return self._notice is not None and self._notice.is_over

    def _leave(self, collector: workflow.ExternalWorkflowHandle[Any], line: BatchLine) -> None:
        """Nobody waits for whether the collector hears it."""
        begin_signal(collector.signal(names.LEAVE_BATCH, LeaveBatch(id=line.id)))


def _is_unread(failure: FailureCause) -> bool:
    """Whether the turn failed before it had read its line's result."""
    return failure.keeps_batch or failure.not_hosted or failure.kind in (names.NOT_PREPARED, names.MODEL_NOT_ASKED)
