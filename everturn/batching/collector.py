"""A collector: a workflow that gathers the turns of all workers into a provider's batches, one for each provider and
key, and tells each conversation what became of its turn.

Each batch is an activity that sends it, and one that follows it: that one fails while the batch runs, and Temporal
tries it again later and later. So a batch costs two activities, however long it takes, and no worker waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, TemporalError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from everturn import names
from everturn.batching.due_batches import GatheredLines
from everturn.batching.records import (
    Batch,
    BatchLine,
    BatchNotice,
    CollectorStart,
    CollectorStatus,
    LeaveBatch,
    SentBatch,
)
from everturn.calls.causes import FailureCause, cause_of
from everturn.text.iso_times import iso_time_at
from everturn.workflows import continue_as_new, message_dispatch
from everturn.workflows.timeouts import LONGEST_QUEUE, batch_options

IDLE_SECONDS: Final = 3600.0
"""A collector with nothing to do ends after so long. The next turn starts another."""

TAKEN_WITHIN: Final = timedelta(minutes=5)
"""If no worker goes on following a batch for so long, who waits is told."""
NOT_TAKEN: Final = "No worker has taken it up for {seconds:g} seconds."
NOT_TAKEN_CURE: Final = "Start a worker that hosts the agent, with its key. Then it goes on by itself."


class _SentBatch:
    """A batch in hand."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.left: set[str] = set()
        """Lines that nobody waits for any more."""

    @property
    def is_unwanted(self) -> bool:
        return all(line.id in self.left for line in self.batch.lines)

    @property
    def is_with_provider(self) -> bool:
        return bool(self.batch.batch_id)

    @property
    def wanted(self) -> Batch:
        """The batch, with the lines that somebody waits for; all of them if nobody does."""
        if self.is_unwanted:
            return self.batch
        lines = tuple(line for line in self.batch.lines if line.id not in self.left)
        return self.batch.model_copy(update={"lines": lines})


# The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
@workflow.defn(name=names.BATCHES, sandboxed=False)
class BatchCollectorWorkflow:
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        start, self._problem = message_dispatch.read_start(CollectorStart, inputs)
        start = start or CollectorStart()
        self._provider = start.provider
        self._gathering = GatheredLines(zip(start.gathered, start.gathered_since, strict=False))
        self._batches_before = start.batches
        self._sent: dict[str, _SentBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cancelled = False
        """It ends once nothing is in hand: conversations wait for what is paid."""

    @workflow.run
    async def run(self, *_: Any) -> None:
        if self._problem:
            raise message_dispatch.invalid_start(f"These batches can't be collected: {self._problem}")
        for batch in self._batches_before:
            self._begin(batch)
        while True:
            for lines in self._gathering.take_due(workflow.time()):
                self._begin(_batch_of(lines))
            if self._may_move:
                self._go_on()
            try:
                if not await self._something_to_do():
                    return
            except asyncio.CancelledError:
                self._is_cancelled = True
            if self._is_cancelled and self._is_idle:
                raise asyncio.CancelledError

    @property
    def _is_idle(self) -> bool:
        return not self._sent and not len(self._gathering)

    async def _something_to_do(self) -> bool:
        """Waits for the next batch to be due; False if nothing came for long."""
        next_due = self._gathering.next_due
        seconds = IDLE_SECONDS if next_due is None else max(0.001, next_due - workflow.time())

        def changed() -> bool:
            is_over = self._is_cancelled and self._is_idle
            return is_over or self._gathering.has_full or self._gathering.next_due != next_due or self._may_move

        with suppress(TimeoutError):
            await workflow.wait_condition(
                changed, timeout=seconds, timeout_summary="until the next batch is sent" if next_due else "idle"
            )
            return True
        return next_due is not None or not self._is_idle

    @property
    def _may_move(self) -> bool:
        """Not while a batch is being sent: the activity would go on, and the next run would send it, too."""
        if not continue_as_new.is_due(updates=0, full=False):
            return False
        return all(sent.is_with_provider and not sent.is_unwanted for sent in self._sent.values())

    def _go_on(self) -> None:
        gathered = list(self._gathering)
        continue_as_new.begin_next_run(
            CollectorStart(
                provider=self._provider,
                gathered=tuple(entry.line for entry in gathered),
                gathered_since=tuple(entry.since for entry in gathered),
                batches=tuple(sent.wanted for sent in self._sent.values()),
            ).model_dump(mode="json")
        )

    # ------------------------------------------------------------ one batch

    def _begin(self, batch: Batch) -> None:
        sent = self._sent[batch.name] = _SentBatch(batch)
        task = asyncio.create_task(self._to_its_end(sent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _to_its_end(self, sent: _SentBatch) -> None:
        try:
            if not sent.is_with_provider:
                await self._send(sent)
            if sent.is_with_provider:
                await self._follow(sent)
        except ActivityError as error:
            failure = cause_of(error)
            lines = [line.id for line in sent.batch.lines]
            await self._tell(sent, lines, state="failed", cause=failure.cause, cure=failure.cure)
        finally:
            del self._sent[sent.batch.name]

    async def _send(self, sent: _SentBatch) -> None:
        answer: SentBatch = await self._run_when_hosted(
            sent,
            names.SEND_BATCH,
            result_type=SentBatch,
            summary=f"{len(sent.batch.lines)} turns of {sent.batch.agent}",
        )
        lines = {line.id: line for line in sent.batch.lines}
        for line_id in answer.put_back:
            if line_id not in sent.left:
                self._gathering.add(lines[line_id], workflow.time())
        await self._tell(sent, answer.again, state="again")
        kept = tuple(
            lines[line_id].model_copy(update={"number": number}) for number, line_id in enumerate(answer.lines, 1)
        )
        sent.batch = sent.batch.model_copy(
            update={"lines": kept, "batch_id": answer.batch_id, "sent_at": answer.sent_at}
        )

    async def _follow(self, sent: _SentBatch) -> None:
        """Until it is over; or cancels it, if nobody waits for any of its lines."""
        following = asyncio.create_task(
            self._run_when_hosted(sent, names.FOLLOW_BATCH, taken_within=TAKEN_WITHIN, summary=sent.batch.batch_id)
        )
        await workflow.wait_condition(lambda: following.done() or sent.is_unwanted)
        if following.done():
            await following
            return
        following.cancel()
        await workflow.execute_activity(names.CANCEL_BATCH, sent.wanted, summary=sent.batch.batch_id, **batch_options())

    async def _run_when_hosted(
        self, sent: _SentBatch, activity: str, *, taken_within: timedelta | None = None, **options: Any
    ) -> Any:
        """What the activity brings, once a worker can do it. If none can for some seconds, who waits is told so.

        `taken_within`: the same if no worker takes it. Not for sending: what its tries have left would be lost.
        """
        try:
            return await workflow.execute_activity(activity, sent.wanted, **options, **batch_options(taken_within))
        except ActivityError as error:
            failure = _awaited_cause(error)
            if failure is None:
                raise
        facts = {"hand_back_for": LONGEST_QUEUE.total_seconds(), "left": failure.left}
        batch = sent.wanted.model_copy(update=facts)
        await self._tell(
            sent,
            [line.id for line in batch.lines],
            state="awaited",
            batch_id=batch.batch_id,
            sent_at=iso_time_at(batch.sent_at),
            cause=failure.cause,
            cure=failure.cure,
        )
        return await workflow.execute_activity(activity, batch, **options, **batch_options())

    async def _tell(self, sent: _SentBatch, line_ids: Collection[str], **facts: Any) -> None:
        waiting = (line for line in sent.batch.lines if line.id in line_ids and line.id not in sent.left)
        await asyncio.gather(*(self._tell_one(line, BatchNotice.about(line, **facts)) for line in waiting))

    async def _tell_one(self, line: BatchLine, notice: BatchNotice) -> None:
        with suppress(TemporalError):  # the conversation may have ended by now
            await workflow.get_external_workflow_handle(line.conversation).signal(names.BATCH, notice)

    # ------------------------------------------------------------ what others say and see

    @workflow.signal(name=names.JOIN_BATCH, description="A conversation's turn joins the next batch.")
    def join_batch(self, *inputs: Any) -> None:
        if line := message_dispatch.read_signal(BatchLine, names.JOIN_BATCH, inputs):
            self._gathering.add(line, workflow.time())

    @workflow.signal(name=names.LEAVE_BATCH, description="Nobody waits for this turn any more.")
    def leave_batch(self, *inputs: Any) -> None:
        leaves = message_dispatch.read_signal(LeaveBatch, names.LEAVE_BATCH, inputs)
        if leaves is None or self._gathering.remove(leaves.id):
            return
        for sent in self._sent.values():
            if any(line.id == leaves.id for line in sent.batch.lines):
                sent.left.add(leaves.id)

    @workflow.query(
        name=names.BATCHES_QUERY, description="What is gathered, and the batches that are with the provider."
    )
    def batches(self, *_: Any) -> dict[str, Any]:
        with_provider = tuple(sent.wanted for sent in self._sent.values() if sent.is_with_provider)
        return CollectorStatus(provider=self._provider, gathered=len(self._gathering), batches=with_provider).as_json()


def _batch_of(lines: tuple[BatchLine, ...]) -> Batch:
    """Of lines of one group."""
    turn = lines[0].turn
    return Batch(
        name=f"everturn-{workflow.uuid4().hex}",
        agent=turn.agent,
        model=turn.model,
        lines=lines,
    )


def _awaited_cause(error: ActivityError) -> FailureCause | None:
    """Why no worker does it, if that is so."""
    if isinstance(error.cause, ActivityTimeout) and error.cause.type is TimeoutType.SCHEDULE_TO_START:
        return FailureCause(NOT_TAKEN.format(seconds=TAKEN_WITHIN.total_seconds()), cure=NOT_TAKEN_CURE)
    failure = cause_of(error)
    return failure if failure.not_hosted else None
