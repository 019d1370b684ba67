"""A tenant's budget as its workflow keeps it: who may take a turn, and who waits.

Pure: it is told the time. Workers send batches, so the workflow's load does not grow with the tenant's turns. Nothing
here grows with a conversation, nor with the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from everturn.budgets.records import (
    BudgetStart,
    BudgetStatus,
    BudgetTerms,
    Expenses,
    LastReport,
    Refusal,
    Spending,
    SpendingAnswer,
    SpendingBatch,
    SpendingRoom,
    SpentIn,
    SpentOn,
    UnreportedSpending,
    Waiter,
)
from everturn.sizes import MAX_WAITING_BYTES, size_of
from everturn.temporal.ids import known_id
from everturn.text.commands import command_about

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
"""And so that all conversations together have not told more than this share of what is left of the budget."""

FEWEST_ACTIVE: Final = 2
"""As many as this always count as active: another one may begin."""

MOST_OTHER_DAYS: Final = 4
"""Days besides the one that counts now whose spending is remembered; the one that was left first is forgotten."""

MOST_OTHER_MONTHS: Final = 4

SHOWN_AT_WORK: Final = 20

_WHEN: Final = {"total": "in all", "per_month": "this month", "per_day": "today"}
"""From what opens last, or never, to what opens first: the words for when it was used."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """One of the budget's limits, and what is used of it."""

    unit: str
    """`tokens` or `usd`."""
    span: str
    most: float
    used: float

    @property
    def option(self) -> str:
        """As the command line has it."""
        return f"--{self.unit}-{self.span}".replace("_", "-")

    @property
    def in_words(self) -> str:
        when = _WHEN[self.span]
        if self.unit == "tokens":
            return f"{self.used:,} tokens {when}, and may use {self.most:,}"
        return f"{self.used:,.2f} dollars {when}, and may use {self.most:,.2f}"


def month_of(time: float) -> int:
    """Of seconds since 1970: months since the year 0."""
    date = datetime.fromtimestamp(time, UTC)
    return date.year * 12 + date.month - 1


def month_in_words(month: int) -> str:
    """As in 2026-11."""
    return f"{month // 12:04}-{month % 12 + 1:02}"


class Ledger:
    """A tenant's budget as it is kept: who may take a turn, and who waits. Ask `wake_waiting` after each change."""

    def __init__(self, start: BudgetStart) -> None:
        self.tenant = start.tenant
        self.terms = start.budget
        self._declared = start.declared
        self._by = start.by
        self._today = SpentOn(
            day=start.day, tokens=start.tokens, cost_usd=start.cost_usd, turns=start.turns, unpriced=start.unpriced
        )
        self._other_days = {spent.day: spent for spent in start.other_days}
        known_days = (self._today, *start.other_days)
        self._month = start.month or _month_so_far(self._today.day, known_days)
        self._other_months = {spent.month: spent for spent in start.other_months}
        self._total = start.total or _sum_of(known_days)
        self._at_work = dict(start.at_work)
        self._waiting = {waiter.conversation: waiter for waiter in start.waiting}
        self._woken = {waiter.conversation: waiter for waiter in start.woken}
        self._counted = dict(start.counted)
        self._reported = dict(start.reported)

    # ------------------------------------------------------------ what comes in

    def set_terms(self, terms: BudgetTerms, *, set_by: str) -> None:
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
            over=self._used_up is not None,
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
            self._add_spent(UnreportedSpending(since=0).plus_turn(spending.tokens, spending.cost_usd))
        if (name := known_id(spending.conversation)) in self._at_work and not spending.late:
            self._at_work[name] = now + self.terms.lease
        if spending.done:
            self._at_work.pop(name, None)

    def _count_new(self, spending: Spending, untold: UnreportedSpending, *, until: float) -> None:
        """Counts what no earlier report of these turns has told: one may come again, and with more turns."""
        last_report = self._last_report(spending.conversation)
        if last_report and last_report.run == untold.run and untold.since < last_report.since:
            untold = last_report  # it comes late, and a later one has told it
        elif last_report and (last_report.run, last_report.since) == (untold.run, untold.since):
            untold = UnreportedSpending(
                **{key: max(had, getattr(untold, key)) for key, had in last_report if key != "run"}, run=untold.run
            )
            self._add_spent(untold, counted=last_report)
        else:
            self._add_spent(untold)
        self._remember_report(spending.conversation, LastReport(of=untold, until=until))

    def _last_report(self, conversation_id: str) -> UnreportedSpending | None:
        reported = self._reported.get(_digest_of(conversation_id))
        if reported is None:
            return None
        return reported.of

    def _remember_report(self, conversation_id: str, reported: LastReport) -> None:
        self._reported.pop(_digest_of(conversation_id), None)
        self._reported[_digest_of(conversation_id)] = reported  # as the last one
        while len(self._reported) > MOST_REPORTED:
            self._reported.pop(next(iter(self._reported)))

    def _add_spent(self, spent: UnreportedSpending, *, counted: UnreportedSpending | None = None) -> None:
        self._today = self._today.plus(spent, counted=counted)
        self._month = self._month.plus(spent, counted=counted)
        self._total = self._total.plus(spent, counted=counted)

    @property
    def _limits(self) -> Iterator[_Limit]:
        """Those that the budget has; first those that open last."""
        spent_in = {"total": self._total, "per_month": self._month, "per_day": self._today}
        for span in _WHEN:
            spent = spent_in[span]
            for unit, used in (("tokens", spent.tokens), ("usd", spent.cost_usd)):
                most = getattr(self.terms, f"{unit}_{span}")
                if most is not None:
                    yield _Limit(unit, span, most, used)

    @property
    def _used_up(self) -> _Limit | None:
        """The limit that holds; if there are several, the one that opens last."""
        return next((limit for limit in self._limits if limit.used >= limit.most), None)

    def _room_to_spend(self, now: float) -> SpendingRoom:
        """The nearer the limit and the more conversations spend, the less."""
        active = sum(reported.until > now for reported in self._reported.values())
        share = UNTOLD_SHARE / max(FEWEST_ACTIVE, active)
        allowance: dict[str, list[float]] = {"tokens": [], "usd": []}
        for limit in self._limits:
            allowance[limit.unit].append(max(0.0, (limit.most - limit.used) * share))
        tokens = min(allowance["tokens"], default=None)
        return SpendingRoom(
            turns=UNTOLD_TURNS,
            tokens=None if tokens is None else int(tokens),
            cost_usd=min(allowance["usd"], default=None),
        )

    def _ask_for_turn(self, spending: Spending, now: float) -> Refusal | None:
        """The refusal; None if the conversation may take its turn."""
        name = spending.conversation
        self._woken.pop(name, None)
        cause, cure = self._why_over() or self._why_full(spending) or ("", "")
        before = self._last_report(name) or UnreportedSpending(since=0)
        self._remember_report(name, LastReport(of=before, until=0.0 if cause else now + self.terms.lease))
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
            resume = f"`{command_about('resume', name)}`"
            cure = f"Too many wait already to be resumed by themselves: {resume} once there is room."
        return Refusal(conversation=name, cause=cause, cure=cure)

    def _why_over(self) -> tuple[str, str] | None:
        """Cause and cure if the budget is used up."""
        limit = self._used_up
        if limit is None:
            return None
        name = self.tenant
        next_month = month_in_words(self._month.month + 1)
        opens = {
            "total": "It goes on with more only",
            "per_month": f"It goes on by itself on {next_month}-01 at 00:00 UTC, or with more",
            "per_day": "It goes on by itself at 00:00 UTC, or with more",
        }
        return (
            f"Tenant {name!r} has used {limit.in_words}.",
            f"{opens[limit.span]}: `{command_about('budget', name)} {limit.option} …`.",
        )

    def _why_full(self, spending: Spending) -> tuple[str, str] | None:
        """Cause and cure if the conversation needs a place, and there is none."""
        most_conversations = self.terms.conversations
        name = self.tenant
        if (
            most_conversations is None
            or spending.asked
            or known_id(spending.conversation) in self._at_work
            or len(self._at_work) < most_conversations
        ):
            return None
        return (
            f"Tenant {name!r} has {len(self._at_work):,} conversations at work, and may have {most_conversations:,}.",
            "It goes on by itself after one of them, or with more: "
            f"`{command_about('budget', name)} --conversations …`.",
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
        if self._used_up or not free or len(self._woken) >= MOST_WOKEN:
            self._waiting.setdefault(waiter.conversation, waiter)
            return False
        self._waiting.pop(waiter.conversation, None)
        until = now + WAKE_SECONDS
        self._woken[waiter.conversation] = waiter.model_copy(update={"until": until, "wakes": waiter.wakes + 1})
        if self.terms.conversations and not waiter.asked:
            self._at_work[known_id(waiter.conversation)] = until
        return True

    def forget(self, conversation_id: str) -> None:
        """The conversation is over: it waits for nothing, and holds no place."""
        self._waiting.pop(conversation_id, None)
        self._woken.pop(conversation_id, None)
        self._at_work.pop(known_id(conversation_id), None)

    def next_wake(self, now: float) -> float | None:
        """When to ask `wake_waiting` again, if nothing comes before; None if nobody waits."""
        return min(self._wake_times(now), default=None)

    def _wake_times(self, now: float) -> Iterator[float]:
        yield from (waiter.until for waiter in self._woken.values())
        if self._waiting:
            yield from self._at_work.values()
            if (limit := self._used_up) and limit.span != "total":
                # Also for a month: what a clock that was wrong has set rings within a day.
                yield (now // DAY_SECONDS + 1) * DAY_SECONDS

    def _pass_time(self, now: float) -> None:
        """A new day begins with nothing spent. What is reported after midnight counts for the new day.

        Each day counts by itself, by the clock of whoever reports. A clock that is weeks ahead, or back, opens a day of
        its own, and leaves today's as it is: nobody waits for that day, or gets today's budget twice.
        """
        self._begin_day(int(now // DAY_SECONDS))
        self._begin_month(month_of(now), now)
        for name in [name for name, until in self._at_work.items() if until <= now]:
            del self._at_work[name]
        # What a clock that was ahead has promised holds no longer than it may.
        latest_end = now + max(self.terms.lease, WAKE_SECONDS)
        self._at_work = {name: min(until, latest_end) for name, until in self._at_work.items()}
        for name, waiter in self._woken.items():
            if waiter.until > now + WAKE_SECONDS:
                self._woken[name] = waiter.model_copy(update={"until": now + WAKE_SECONDS})
        for name, reported in self._reported.items():
            if reported.until > latest_end:
                self._reported[name] = reported.model_copy(update={"until": latest_end})
        if self.terms.conversations is None:
            self._at_work.clear()

    def _begin_day(self, day: int) -> None:
        if day == self._today.day:
            return
        if self._today.turns:
            self._other_days[self._today.day] = self._today
        self._today = self._other_days.pop(day, SpentOn(day=day))
        while len(self._other_days) > MOST_OTHER_DAYS:
            self._other_days.pop(next(iter(self._other_days)))

    def _begin_month(self, month: int, now: float) -> None:
        """As with days. But what a clock that was weeks ahead has counted for a month to come was not spent in it: it
        would lock the tenant out for weeks, and is forgotten then."""
        if month != self._month.month:
            if self._month.turns:
                self._other_months[self._month.month] = self._month
            known = self._other_months.pop(month, None)
            if known is None or known.last_at > now + DAY_SECONDS:
                known = SpentIn(month=month)
            self._month = known
            while len(self._other_months) > MOST_OTHER_MONTHS:
                self._other_months.pop(next(iter(self._other_months)))
        self._month = self._month.model_copy(update={"last_at": now})

    # ------------------------------------------------------------ read off it

    @property
    def waiting_ids(self) -> list[str]:
        return [*self._woken, *self._waiting]

    def status(self, now: float) -> BudgetStatus:
        """As it is at that time."""
        current = Ledger(self.as_start())
        current._pass_time(now)
        return BudgetStatus(
            tenant=self.tenant,
            budget=self.terms,
            declared=self._declared,
            by=self._by,
            day=datetime.fromtimestamp(current._today.day * DAY_SECONDS, UTC).date().isoformat(),
            turns=current._today.turns,
            tokens=current._today.tokens,
            cost_usd=current._today.cost_usd,
            unpriced_turns=current._today.unpriced,
            month=month_in_words(current._month.month),
            tokens_this_month=current._month.tokens,
            cost_usd_this_month=current._month.cost_usd,
            tokens_total=current._total.tokens,
            cost_usd_total=current._total.cost_usd,
            at_work=len(current._at_work),
            conversations=tuple(current._at_work)[:SHOWN_AT_WORK],
            waiting=len(self.waiting_ids),
        )

    def as_start(self) -> BudgetStart:
        """What the next run begins with."""
        return BudgetStart(
            tenant=self.tenant,
            budget=self.terms,
            declared=self._declared,
            by=self._by,
            day=self._today.day,
            tokens=self._today.tokens,
            cost_usd=self._today.cost_usd,
            turns=self._today.turns,
            unpriced=self._today.unpriced,
            other_days=tuple(self._other_days.values()),
            month=self._month,
            other_months=tuple(self._other_months.values()),
            total=self._total,
            at_work=dict(self._at_work),
            waiting=tuple(self._waiting.values()),
            woken=tuple(self._woken.values()),
            counted=dict(self._counted),
            reported=dict(self._reported),
        )


def _sum_of(spent: Iterable[Expenses]) -> Expenses:
    total = Expenses()
    for part in spent:
        total = total.plus(part)
    return total


def _month_so_far(day: int, known_days: Iterable[SpentOn]) -> SpentIn:
    """What is known of that day's month, if only days were counted."""
    month = month_of(day * DAY_SECONDS)
    spent = _sum_of(known for known in known_days if month_of(known.day * DAY_SECONDS) == month)
    return SpentIn(**dict(spent), month=month, last_at=day * DAY_SECONDS)


def _digest_of(conversation_id: str) -> str:
    return blake2b(conversation_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
