"""What a worker knows of a tenant's budget, and what it has yet to tell it.

A conversation asks at the first turn of an answer, and tells at its end: before that only if its turns have spent so
much that the budget has to know. What is not told yet goes from turn to turn in the conversation's own history, so a
worker that is killed takes nothing with it. Questions and reports go in batches, one at a time and a few a second,
however many turns there are.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities.patience import spend
from everturn.activities.retry_delays import retry_delay
from everturn.budgets.calls import ANSWER_SECONDS, BudgetCalls, NoAnswer
from everturn.budgets.records import (
    BudgetNote,
    Refusal,
    Spending,
    SpendingAnswer,
    SpendingBatch,
    SpendingRoom,
    UnreportedSpending,
)
from everturn.logs import get_logger
from everturn.payloads import ModelReply
from everturn.text.commands import command_about

LOOK_AGAIN_SECONDS: Final = 10.0
"""How long no budget is looked for after a tenant was found to have none."""

PACE_SECONDS: Final = 0.25
"""Between two batches of a tenant."""

AGAIN_SECONDS: Final = 1.0
"""How soon a batch that was not answered is sent again."""

LATE_SECONDS: Final = 300.0
"""What a conversation has not told is told for it after so long without a turn: perhaps none comes any more."""

MOST_ITEMS: Final = 50
"""In a batch."""

MOST_UNTOLD: Final = 10_000
"""Conversations for which this is remembered."""

PLACE_ASKS = 4
ASKS = 2
"""The parts of a lease for which a turn need not ask, with a place and without. A place is kept from the last report
on, so those who hold one say so more often."""

PATIENCE: Final = timedelta(minutes=30)
"""How long a budget may fail to answer before the conversation stalls."""

_log = get_logger("everturn.budget")


class TenantSpending:
    def __init__(self, budget: BudgetCalls, *, worker: str) -> None:
        self._budget = budget
        self._worker = worker
        self._number = 0
        self._none_until = 0.0
        """Until then, it is known that the tenant has no budget."""
        self._over = False
        self._room: SpendingRoom | None = None
        """As the budget said last; None if this worker has not asked it yet."""
        self._lease = SpendingAnswer().lease
        self._let = UnreportedSpending(since=0)
        """What turns have spent here, without telling, since the budget said so. Its turns are not counted."""
        self._untold: dict[str, tuple[float, Spending]] = {}
        """What conversations had not told after their last turn here, and when that was. The next turn tells it, here
        or elsewhere."""
        self._unsaid: list[tuple[Spending, asyncio.Future[SpendingAnswer | None]]] = []
        self._sent_at = 0.0
        self._speaking: asyncio.Task[None] | None = None
        self._late: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._speaking is not None or bool(self._untold)

    async def ask_for_turn(self, conversation_id: str, note: BudgetNote, *, is_question: bool) -> BudgetNote:
        """Returns if the conversation may take a turn, with what it then knows. Raises ApplicationError if it may not,
        or if the budget does not answer."""
        self._untold.pop(conversation_id, None)
        # A try before this one may have given the place back.
        may = note.run == _run_mark() and self._holds_lease(note) and activity.info().attempt == 1
        if self._none_until > time.monotonic() or (may and not self._over and self._room):
            return note
        reply = self._queue_spending(
            Spending(conversation=conversation_id, asks=True, asked=is_question, untold=note.untold)
        )
        try:
            answer = await asyncio.wait_for(asyncio.shield(reply), ANSWER_SECONDS)
        except TimeoutError:
            raise self._silent_error("it has not answered in time") from None
        except NoAnswer as error:
            raise self._silent_error(str(error)) from None
        if answer is None:
            return BudgetNote()
        if refused := next((refusal for refusal in answer.refused if refusal.conversation == conversation_id), None):
            raise _refusal_error(refused)
        return _note_after(answer, place=answer.places and not is_question)

    async def report_turn(
        self, conversation_id: str, note: BudgetNote, turn: int, reply: ModelReply, *, is_question: bool, done: bool
    ) -> BudgetNote | None:
        """Reports what the conversation has not told, if it has to, and returns what its next turn is to know. Without
        an answer, the next turn tells it once more. Nothing here fails the turn, whose reply is paid for."""
        if self._none_until > time.monotonic():
            return None
        spent = reply.usage.total_tokens, reply.cost_usd
        untold_spending = (note.untold or UnreportedSpending(since=turn, run=_run_mark())).plus_turn(*spent)
        note = note.model_copy(update={"untold": untold_spending})
        spending = Spending(
            conversation=conversation_id,
            untold=untold_spending,
            tokens=untold_spending.tokens,  # for a budget that an older worker keeps
            cost_usd=None if untold_spending.unpriced else untold_spending.cost_usd,
            done=done,
        )
        let = self._let.plus_turn(*spent).model_copy(update={"turns": 0})
        room = None
        if self._holds_lease(note) and not self._over:
            room = self._room
        if not done and room and room.left_by(untold_spending) and room.left_by(let):
            self._let = let
            self._remember_untold(conversation_id, spending)
            return note
        reported = self._queue_spending(spending)
        with suppress(TimeoutError, NoAnswer):
            answer = await asyncio.wait_for(asyncio.shield(reported), ANSWER_SECONDS)
            place = answer is not None and answer.places and not is_question
            # With its final reply it gave its place back, and asks for one next time.
            if answer is None or (done and place):
                return None
            return _note_after(answer, place=place)
        return note.given_back()

    def leave_turn(self, conversation_id: str, note: BudgetNote) -> None:
        """The conversation's turn was cancelled, and with it the answer, or it waits for a batch: it gives its place
        back. Nobody waits for that."""
        if self._none_until <= time.monotonic():
            self._queue_spending(
                Spending(conversation=conversation_id, untold=note.untold or _nothing_spent(), done=True)
            )

    def _holds_lease(self, note: BudgetNote) -> bool:
        """Whether its turns need not ask. A worker whose clock is ahead may have promised too much."""
        return 0 < note.asked_until - time.time() <= self._lease

    async def close(self) -> None:
        for task in filter(None, (self._speaking, self._late)):
            task.cancel()
            await asyncio.wait({task})

    def _remember_untold(self, conversation_id: str, spending: Spending) -> None:
        self._untold[conversation_id] = time.monotonic() + LATE_SECONDS, spending.model_copy(update={"late": True})
        while len(self._untold) > MOST_UNTOLD:
            self._untold.pop(next(iter(self._untold)))
        if self._late is None:
            self._late = asyncio.create_task(self._tell_late())

    async def _tell_late(self) -> None:
        try:
            while self._untold:
                conversation, (late_at, spending) = next(iter(self._untold.items()))
                if (seconds := late_at - time.monotonic()) > 0:
                    await asyncio.sleep(seconds)
                elif self._untold.pop(conversation, None):
                    self._queue_spending(spending)
        finally:
            self._late = None

    def _queue_spending(self, spending: Spending) -> asyncio.Future[SpendingAnswer | None]:
        answer: asyncio.Future[SpendingAnswer | None] = asyncio.get_running_loop().create_future()
        self._unsaid.append((spending, answer))
        if self._speaking is None:
            self._speaking = asyncio.create_task(self._send_batches())
        return answer

    async def _send_batches(self) -> None:
        try:
            while self._unsaid:
                await asyncio.sleep(self._sent_at + PACE_SECONDS - time.monotonic())
                entries = self._unsaid[:MOST_ITEMS]
                self._unsaid = self._unsaid[MOST_ITEMS:]
                answer = await self._send_until_answered(entries)
                for _, waits in entries:
                    if not waits.done():
                        waits.set_result(answer)
        finally:
            self._speaking = None

    async def _send_until_answered(
        self, entries: list[tuple[Spending, asyncio.Future[SpendingAnswer | None]]]
    ) -> SpendingAnswer | None:
        """The answer to a batch, which is sent until there is one. The budget counts it only once."""
        self._number += 1
        items = tuple(spending for spending, _ in entries)
        batch = SpendingBatch(worker=self._worker, number=self._number, items=items, declared=self._budget.declared)
        while True:
            self._sent_at = time.monotonic()
            try:
                answer = await self._budget.count_spending(batch)
            except NoAnswer as error:
                _log.warning("budget.silent", tenant=self._budget.tenant, why=str(error))
                for _, waits in entries:
                    if not waits.done():
                        waits.set_exception(NoAnswer(str(error)))
                        waits.exception()  # whoever asked may have gone
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self._let = UnreportedSpending(since=0)
            if answer is None:
                self._none_until = time.monotonic() + LOOK_AGAIN_SECONDS
                self._over = False
                self._room = None
            else:
                self._none_until = 0.0
                self._over = answer.over
                self._room = answer.room
                self._lease = answer.lease
            return answer

    def _silent_error(self, reason: str) -> ApplicationError:
        """The error of a budget that does not answer: the turn is tried again while patience lasts."""
        tenant = self._budget.tenant
        delay = retry_delay(None, attempt=activity.info().attempt, longest=PATIENCE)
        remove = f"`{command_about('budget', tenant)} --remove`"
        return ApplicationError(
            f"The budget of tenant {tenant!r} does not answer: {reason}.",
            {"cure": f"It moves here if its workers are gone; {remove} removes it."},
            type=names.BUDGET_SILENT,
            next_retry_delay=delay,
            non_retryable=not spend(delay, PATIENCE),
        )


def _refusal_error(refused: Refusal) -> ApplicationError:
    return ApplicationError(refused.cause, {"cure": refused.cure}, type=names.OVER_BUDGET, non_retryable=True)


def _note_after(answer: SpendingAnswer, *, place: bool) -> BudgetNote:
    """What a conversation knows once its budget has answered."""
    return BudgetNote(
        run=_run_mark(), asked_until=round(time.time() + answer.lease / (PLACE_ASKS if place else ASKS), 1)
    )


def _run_mark() -> str:
    return (activity.info().workflow_run_id or "")[:8]


def _nothing_spent() -> UnreportedSpending:
    """An older worker that keeps the budget counts a turn without tokens."""
    return UnreportedSpending(since=0, run=_run_mark())
