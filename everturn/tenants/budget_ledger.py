"""A tenant's budget as its workflow keeps it: who may take a turn, and who waits.

Pure: it is told the time. Workers send batches, so the workflow's load does not grow with the tenant's turns. Nothing
here grows with a conversation, nor with the day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from everturn.sizes import MAX_WAITING_BYTES, size_of
from everturn.temporal.ids import known_id
from everturn.tenants.budgets import (
    BudgetStart,
    BudgetStatus,
    Refusal,
    Reported,
    Room,
    Spending,
    SpendingAnswer,
    SpendingBatch,
    SpentOn,
    Terms,
    Untold,
    Waiter,
)

DAY_SECONDS: Final = 86_400.0

WAKE_SECONDS: Final = 30.0
"""A resumed conversation that has not asked again after this time is resumed once more."""

MOST_WAKES: Final = 3

MOST_WAITING: Final = 1_000
"""Waiting conversations that are resumed by themselves. Further ones wait for a person's `resume`."""

MOST_WOKEN: Final = 50
"""Conversations that were resumed and have not asked yet. The next ones are resumed after them."""

MOST_WORKERS: Final = 200
"""Workers whose last batch's number is remembered. So no batch counts twice."""

MOST_REPORTED: Final = 1_000
"""Conversations whose last report is remembered. So what comes again counts once."""

UNTOLD_TURNS: Final = 10
"""A conversation tells after so many turns at the latest."""

UNTOLD_SHARE: Final = 0.1
"""And so that all conversations together have not told more than this share of what is left of the day's budget."""

FEWEST_ACTIVE: Final = 2
"""As many as this always count as active: another one may begin."""

MOST_OTHER_DAYS: Final = 4
"""Days besides the one that counts now whose spending is remembered; the one that was left first is forgotten."""

SHOWN_AT_WORK: Final = 20


class Ledger:
    """A tenant's budget as it is kept: who may take a turn, and who waits. Ask `wake_waiting` after each change."""

    def __init__(self, start: BudgetStart) -> None:
        self.tenant = start.tenant
        self.terms = start.budget
        self._declared = start.declared
        self._by = start.by
        self._day = start.day
        self._turns = start.turns
        self._unpriced = start.unpriced
        self._tokens = start.tokens
        self._usd = start.cost_usd
        self._other_days = {spent.day: spent for spent in start.other_days}
        self._at_work = dict(start.at_work)
        self._waiting = {waiter.conversation: waiter for waiter in start.waiting}
        self._woken = {waiter.conversation: waiter for waiter in start.woken}
        self._counted = dict(start.counted)
        self._reported = dict(start.reported)

    # ------------------------------------------------------------ what comes in

    def set_terms(self, terms: Terms, *, set_by: str) -> None:
        self.terms = terms
        self._by = set_by
        self._declared = False

    def take_batch(self, batch: SpendingBatch, *, now: float) -> SpendingAnswer:
        self._pass_time(now)
        if batch.declared and self._declared:
            self.terms = batch.declared
        new = batch.number > self._counted.get(batch.worker, -1)
        self._counted.pop(batch.worker, None)
        self._counted[batch.worker] = batch.number
        while len(self._counted) > MOST_WORKERS:
            self._counted.pop(next(iter(self._counted)))
        if new:
            for spending in batch.items:
                self._count_spending(spending, now)
        asking = (spending for spending in batch.items if spending.asks)
        return SpendingAnswer(
            refused=tuple(filter(None, [self._ask_for_turn(spending, now) for spending in asking])),
            over=bool(self._why_over()),
            lease=self.terms.lease,
            places=self.terms.conversations is not None,
            room=self._room_to_spend(now),
        )

    def _count_spending(self, spending: Spending, now: float) -> None:
        if spending.untold:
            self._count_new(
                spending, spending.untold, until=0.0 if spending.done or spending.late else now + self.terms.lease
            )
        elif not spending.asks:
            self._add_spent(Untold(since=0).plus_turn(spending.tokens, spending.cost_usd))
        if (name := known_id(spending.conversation)) in self._at_work and not spending.late:
            self._at_work[name] = now + self.terms.lease
        if spending.done:
            self._at_work.pop(name, None)

    def _count_new(self, spending: Spending, untold: Untold, *, until: float) -> None:
        """Counts what no earlier report of these turns has told: one may come again, and with more turns."""
        before = self._last_report(spending.conversation)
        if before and before.run == untold.run and untold.since < before.since:
            untold = before  # it comes late, and a later one has told it
        elif before and (before.run, before.since) == (untold.run, untold.since):
            untold = Untold(
                **{key: max(had, getattr(untold, key)) for key, had in before if key != "run"}, run=untold.run
            )
            self._add_spent(untold, counted=before)
        else:
            self._add_spent(untold)
        self._remember_report(spending.conversation, Reported(of=untold, until=until))

    def _last_report(self, conversation: str) -> Untold | None:
        reported = self._reported.get(_digest_of(conversation))
        if reported is None:
            return None
        return reported.of

    def _remember_report(self, conversation: str, reported: Reported) -> None:
        self._reported.pop(_digest_of(conversation), None)
        self._reported[_digest_of(conversation)] = reported  # as the last one
        while len(self._reported) > MOST_REPORTED:
            self._reported.pop(next(iter(self._reported)))

    def _add_spent(self, spent: Untold, *, counted: Untold | None = None) -> None:
        had = counted or Untold(since=0)
        self._turns += spent.turns - had.turns
        self._tokens += spent.tokens - had.tokens
        self._usd += spent.cost_usd - had.cost_usd
        self._unpriced += spent.unpriced - had.unpriced

    def _room_to_spend(self, now: float) -> Room:
        """The nearer the limit and the more conversations spend, the less."""
        active = sum(reported.until > now for reported in self._reported.values())
        share = UNTOLD_SHARE / max(FEWEST_ACTIVE, active)
        most = self.terms.tokens_per_day
        usd = self.terms.usd_per_day
        return Room(
            turns=UNTOLD_TURNS,
            tokens=None if most is None else max(0, int((most - self._tokens) * share)),
            cost_usd=None if usd is None else max(0.0, (usd - self._usd) * share),
        )

    def _ask_for_turn(self, spending: Spending, now: float) -> Refusal | None:
        """The refusal; None if the conversation may take its turn."""
        name = spending.conversation
        self._woken.pop(name, None)
        cause, cure = self._why_over() or self._why_full(spending) or ("", "")
        before = self._last_report(name) or Untold(since=0)
        self._remember_report(name, Reported(of=before, until=0.0 if cause else now + self.terms.lease))
        if not cause:
            self._waiting.pop(name, None)
            if self.terms.conversations and not spending.asked:
                self._at_work[known_id(name)] = now + self.terms.lease
            return None
        self._at_work.pop(known_id(name), None)
        room = sum(map(size_of, self._waiting)) + size_of(name) <= MAX_WAITING_BYTES
        if name not in self._waiting and room and len(self._waiting) < MOST_WAITING:
            self._waiting[name] = Waiter(conversation=name, asked=spending.asked, since=now)
        if name not in self._waiting:
            cure = f"Too many wait already to be resumed by themselves: `everturn resume {name}` once there is room."
        return Refusal(conversation=name, cause=cause, cure=cure)

    def _why_over(self) -> tuple[str, str] | None:
        """Cause and cure if the day's budget is used up."""
        most = self.terms.tokens_per_day
        usd = self.terms.usd_per_day
        name = self.tenant
        if most is not None and self._tokens >= most:
            used = f"{self._tokens:,} tokens today, and may use {most:,}"
            option = "--tokens-per-day"
        elif usd is not None and self._usd >= usd:
            used = f"{self._usd:,.2f} dollars today, and may use {usd:,.2f}"
            option = "--usd-per-day"
        else:
            return None
        return (
            f"Tenant {name!r} has used {used}.",
            f"It goes on by itself at 00:00 UTC, or with more: `everturn budget {name} {option} …`.",
        )

    def _why_full(self, spending: Spending) -> tuple[str, str] | None:
        """Cause and cure if the conversation needs a place, and there is none."""
        most = self.terms.conversations
        name = self.tenant
        if (
            most is None
            or spending.asked
            or known_id(spending.conversation) in self._at_work
            or len(self._at_work) < most
        ):
            return None
        return (
            f"Tenant {name!r} has {len(self._at_work):,} conversations at work, and may have {most:,}.",
            f"It goes on by itself after one of them, or with more: `everturn budget {name} --conversations …`.",
        )

    # ------------------------------------------------------------ who goes on

    def wake_waiting(self, now: float) -> list[str]:
        """The conversations that are to be resumed now: they have a place until they ask."""
        self._pass_time(now)
        again = [waiter for waiter in self._woken.values() if waiter.until <= now]
        for waiter in again:
            del self._woken[waiter.conversation]
            self._at_work.pop(known_id(waiter.conversation), None)
        tired = {waiter.conversation for waiter in again if waiter.wakes >= MOST_WAKES}
        due = [waiter for waiter in again if waiter.conversation not in tired]
        due += [waiter for waiter in self._waiting.values() if waiter not in due]
        return [waiter.conversation for waiter in due if self._wake_if_free(waiter, now)]

    def _wake_if_free(self, waiter: Waiter, now: float) -> bool:
        free = self.terms.conversations is None or waiter.asked or len(self._at_work) < self.terms.conversations
        if self._why_over() or not free or len(self._woken) >= MOST_WOKEN:
            self._waiting.setdefault(waiter.conversation, waiter)
            return False
        self._waiting.pop(waiter.conversation, None)
        until = now + WAKE_SECONDS
        self._woken[waiter.conversation] = waiter.model_copy(update={"until": until, "wakes": waiter.wakes + 1})
        if self.terms.conversations and not waiter.asked:
            self._at_work[known_id(waiter.conversation)] = until
        return True

    def forget(self, conversation: str) -> None:
        """The conversation is over: it waits for nothing, and holds no place."""
        self._waiting.pop(conversation, None)
        self._woken.pop(conversation, None)
        self._at_work.pop(known_id(conversation), None)

    def next_wake(self, now: float) -> float | None:
        """When to ask `wake_waiting` again, if nothing comes before; None if nobody waits."""
        return min(self._wake_times(now), default=None)

    def _wake_times(self, now: float) -> Iterator[float]:
        yield from (waiter.until for waiter in self._woken.values())
        if self._waiting:
            yield from self._at_work.values()
            if self._why_over():
                yield (now // DAY_SECONDS + 1) * DAY_SECONDS

    def _pass_time(self, now: float) -> None:
        """A new day begins with nothing spent. What is reported after midnight counts for the new day.

        Each day counts by itself, by the clock of whoever reports. A clock that is weeks ahead, or back, opens a day of
        its own, and leaves today's as it is: nobody waits for that day, or gets today's budget twice.
        """
        if (day := int(now // DAY_SECONDS)) != self._day:
            if self._turns or self._tokens or self._usd:
                self._other_days[self._day] = SpentOn(
                    day=self._day, tokens=self._tokens, cost_usd=self._usd, turns=self._turns, unpriced=self._unpriced
                )
            spent = self._other_days.pop(day, None) or SpentOn(day=day)
            self._day = day
            self._tokens = spent.tokens
            self._usd = spent.cost_usd
            self._turns = spent.turns
            self._unpriced = spent.unpriced
            while len(self._other_days) > MOST_OTHER_DAYS:
                self._other_days.pop(next(iter(self._other_days)))
        for name in [name for name, until in self._at_work.items() if until <= now]:
            del self._at_work[name]
        # What a clock that was ahead has promised holds no longer than it may.
        longest = now + max(self.terms.lease, WAKE_SECONDS)
        self._at_work = {name: min(until, longest) for name, until in self._at_work.items()}
        for name, waiter in self._woken.items():
            if waiter.until > now + WAKE_SECONDS:
                self._woken[name] = waiter.model_copy(update={"until": now + WAKE_SECONDS})
        for name, reported in self._reported.items():
            if reported.until > longest:
                self._reported[name] = reported.model_copy(update={"until": longest})
        if self.terms.conversations is None:
            self._at_work.clear()

    # ------------------------------------------------------------ read off it

    @property
    def waiting_ids(self) -> list[str]:
        return [*self._woken, *self._waiting]

    def status(self, now: float) -> BudgetStatus:
        """As it is at that time."""
        today = Ledger(self.as_start())
        today._pass_time(now)
        return BudgetStatus(
            tenant=self.tenant,
            budget=self.terms,
            declared=self._declared,
            by=self._by,
            day=datetime.fromtimestamp(today._day * DAY_SECONDS, UTC).date().isoformat(),
            turns=today._turns,
            tokens=today._tokens,
            cost_usd=today._usd,
            unpriced_turns=today._unpriced,
            at_work=len(today._at_work),
            conversations=tuple(today._at_work)[:SHOWN_AT_WORK],
            waiting=len(self.waiting_ids),
        )

    def as_start(self) -> BudgetStart:
        """What the next run begins with."""
        return BudgetStart(
            tenant=self.tenant,
            budget=self.terms,
            declared=self._declared,
            by=self._by,
            day=self._day,
            tokens=self._tokens,
            cost_usd=self._usd,
            turns=self._turns,
            unpriced=self._unpriced,
            other_days=tuple(self._other_days.values()),
            at_work=dict(self._at_work),
            waiting=tuple(self._waiting.values()),
            woken=tuple(self._woken.values()),
            counted=dict(self._counted),
            reported=dict(self._reported),
        )


def _digest_of(conversation: str) -> str:
    return blake2b(conversation.encode("utf-8", "replace"), digest_size=8).hexdigest()
