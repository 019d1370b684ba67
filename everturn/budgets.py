"""What a tenant's conversations may use together, and who is to wait: what the tenant's budget workflow keeps.

Pure: it is told the time. Workers send batches, so the workflow's load does not grow with the tenant's turns. Nothing
here grows with a conversation, nor with the day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import Field

from everturn.errors import InvalidSetting
from everturn.ids import known_id
from everturn.limits import Budget
from everturn.records import Record
from everturn.sizes import MAX_ID_BYTES, MAX_NAME_CHARS, MAX_WAITING_BYTES, size_of

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

SHOWN_AT_WORK: Final = 20


class Terms(Record):
    """A Budget on the wire."""

    tokens_per_day: int | None = None
    usd_per_day: float | None = None
    conversations: int | None = None
    lease: float = 900.0
    """Seconds."""

    @classmethod
    def of(cls, budget: Budget) -> Terms:
        return cls(
            tokens_per_day=budget.tokens_per_day,
            usd_per_day=budget.usd_per_day,
            conversations=budget.conversations,
            lease=budget.lease.total_seconds(),
        )


class SetBudget(Record):
    """`set_budget`, a signal."""

    budget: Terms | None = None
    """None removes the budget: no conversation waits for it any more."""
    by: str = ""


class Spending(Record):
    """What a worker reports about a conversation."""

    conversation: str = Field(max_length=MAX_ID_BYTES)
    asks: bool = False
    """It wants to take a turn."""
    asked: bool = False
    """Another conversation called this one: it needs no place of its own."""
    tokens: int = 0
    cost_usd: float | None = 0.0
    """None if the price is not known."""
    done: bool = False
    """It has its final reply."""


class SpendingBatch(Record):
    """`count_spending`, an update."""

    worker: str = Field(max_length=MAX_NAME_CHARS)
    number: int
    """The batch's number at its worker: a batch that comes again counts once."""
    items: tuple[Spending, ...] = ()
    declared: Terms | None = None
    """The budget in the worker's settings. It holds unless somebody has set another one."""


class Refusal(Record):
    conversation: str
    cause: str
    cure: str


class SpendingAnswer(Record):
    """The answer to `count_spending`."""

    refused: tuple[Refusal, ...] = ()
    over: bool = False
    """The day's budget is used up: whoever takes a turn asks first."""
    lease: float = 900.0


class Waiter(Record):
    """A conversation that is stalled for the budget."""

    conversation: str
    asked: bool = False
    since: float = 0.0
    until: float = 0.0
    """After it was resumed: the time by which it has to ask again."""
    wakes: int = 0


class BudgetStart(Record):
    """The input of a tenant's budget workflow, and what its run hands to the next."""

    tenant: str = Field(max_length=MAX_NAME_CHARS)
    budget: Terms
    declared: bool = False
    """The budget comes from a worker's settings, and nobody has set another one."""
    by: str = ""
    day: int = 0
    """Days since 1970."""
    tokens: int = 0
    cost_usd: float = 0.0
    turns: int = 0
    unpriced: int = 0
    """Turns whose price is not known."""
    at_work: dict[str, float] = Field(default_factory=dict)
    """When each conversation's place expires: seconds since 1970. By its id, or by a digest of a long id."""
    waiting: tuple[Waiter, ...] = ()
    woken: tuple[Waiter, ...] = ()
    counted: dict[str, int] = Field(default_factory=dict)
    """The number of the last batch, by worker."""


class BudgetStatus(Record):
    """The answer to the `budget` query: all fields are written."""

    tenant: str
    budget: Terms
    declared: bool = False
    """The budget comes from the workers' settings; False: somebody has set it."""
    by: str = ""
    """Who set it."""
    day: str = ""
    """The day that is counted, in UTC: 2026-11-22."""
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced_turns: int = 0
    """Turns of models without a known price, which `cost_usd` leaves out."""
    at_work: int = 0
    """Conversations that hold a place; counted only if the budget limits them."""
    conversations: tuple[str, ...] = ()
    """The first twenty conversations that hold a place."""
    waiting: int = 0
    """Conversations that are stalled for this budget, and resumed by themselves."""

    def as_json(self) -> dict[str, Any]:
        written = {name: getattr(self, name) for name in BudgetStatus.model_fields}
        terms = {name: getattr(self.budget, name) for name in Terms.model_fields}
        return {**written, "budget": terms, "conversations": list(self.conversations)}


def declared_budgets(given: Mapping[str, Budget] | str) -> dict[str, Terms]:
    """What a worker's settings say, by tenant: `acme=tokens:1000000+usd:50,*=conversations:20`. Raises
    InvalidSetting."""
    budgets = _read(given) if isinstance(given, str) else given
    for tenant, budget in budgets.items():
        if not tenant or not isinstance(tenant, str) or len(tenant) > MAX_NAME_CHARS:
            raise InvalidSetting(f"A budget is for {tenant!r:.100}, which is no tenant.", cure="Name one, or all: '*'.")
        if not isinstance(budget, Budget):
            raise InvalidSetting(
                f"The budget of {tenant!r} is {budget!r:.100}.", cure="Write Budget(tokens_per_day=1_000_000)."
            )
    return {tenant: Terms.of(budget) for tenant, budget in budgets.items()}


_WORDS: Final = {"tokens": "tokens_per_day", "usd": "usd_per_day", "conversations": "conversations"}


def _read(written: str) -> dict[str, Budget]:
    found = {}
    for item in filter(None, (part.strip() for part in written.split(","))):
        tenant, _, terms = item.rpartition("=")
        try:
            pairs = [part.split(":") for part in terms.split("+")]
            numbers = {_WORDS[name]: float(number) if name == "usd" else int(number) for name, number in pairs}
            found[tenant.strip()] = Budget(**numbers)
        except (KeyError, ValueError, InvalidSetting):
            raise InvalidSetting(
                f"EVERTURN_TENANT_BUDGETS has {item!r:.100}, which is no budget.",
                cure="Write acme=tokens:1000000+usd:50+conversations:20, with commas between tenants; '*' is for all.",
            ) from None
    return found


class Ledger:
    """A tenant's budget as it is kept: who may take a turn, and who waits. Ask `wake` after each change."""

    def __init__(self, start: BudgetStart) -> None:
        self.tenant, self.terms = start.tenant, start.budget
        self._declared, self._by = start.declared, start.by
        self._day, self._turns, self._unpriced = start.day, start.turns, start.unpriced
        self._tokens, self._usd = start.tokens, start.cost_usd
        self._at_work = dict(start.at_work)
        self._waiting = {one.conversation: one for one in start.waiting}
        self._woken = {one.conversation: one for one in start.woken}
        self._counted = dict(start.counted)

    # ------------------------------------------------------------ what comes in

    def set(self, terms: Terms, *, by: str) -> None:
        self.terms, self._by, self._declared = terms, by, False

    def take(self, batch: SpendingBatch, *, now: float) -> SpendingAnswer:
        self._pass_time(now)
        if batch.declared and self._declared:
            self.terms = batch.declared
        new = batch.number > self._counted.get(batch.worker, -1)
        self._counted.pop(batch.worker, None)
        self._counted[batch.worker] = batch.number
        while len(self._counted) > MOST_WORKERS:
            self._counted.pop(next(iter(self._counted)))
        for item in batch.items if new else ():
            self._count(item, now)
        refused = [found for item in batch.items if item.asks and (found := self._ask(item, now))]
        return SpendingAnswer(refused=tuple(refused), over=bool(self._over()), lease=self.terms.lease)

    def _count(self, item: Spending, now: float) -> None:
        if not item.asks:
            self._turns += 1
            self._tokens += max(0, item.tokens)
            self._usd += max(0.0, item.cost_usd or 0.0)
            self._unpriced += item.cost_usd is None
        if (name := known_id(item.conversation)) in self._at_work:
            self._at_work[name] = now + self.terms.lease
        if item.done:
            self._at_work.pop(name, None)

    def _ask(self, item: Spending, now: float) -> Refusal | None:
        """The refusal; None if the conversation may take its turn."""
        name = item.conversation
        self._woken.pop(name, None)
        cause, cure = self._over() or self._full(item) or ("", "")
        if not cause:
            self._waiting.pop(name, None)
            if self.terms.conversations and not item.asked:
                self._at_work[known_id(name)] = now + self.terms.lease
            return None
        self._at_work.pop(known_id(name), None)
        room = sum(map(size_of, self._waiting)) + size_of(name) <= MAX_WAITING_BYTES
        if name not in self._waiting and room and len(self._waiting) < MOST_WAITING:
            self._waiting[name] = Waiter(conversation=name, asked=item.asked, since=now)
        if name not in self._waiting:
            cure = f"Too many wait already to be resumed by themselves: `everturn resume {name}` once there is room."
        return Refusal(conversation=name, cause=cause, cure=cure)

    def _over(self) -> tuple[str, str] | None:
        """Cause and cure if the day's budget is used up."""
        most, usd, name = self.terms.tokens_per_day, self.terms.usd_per_day, self.tenant
        if most is not None and self._tokens >= most:
            used, option = f"{self._tokens:,} tokens today, and may use {most:,}", "--tokens-per-day"
        elif usd is not None and self._usd >= usd:
            used, option = f"{self._usd:,.2f} dollars today, and may use {usd:,.2f}", "--usd-per-day"
        else:
            return None
        return (
            f"Tenant {name!r} has used {used}.",
            f"It goes on by itself at 00:00 UTC, or with more: `everturn budget {name} {option} …`.",
        )

    def _full(self, item: Spending) -> tuple[str, str] | None:
        """Cause and cure if the conversation needs a place, and there is none."""
        most, name = self.terms.conversations, self.tenant
        if most is None or item.asked or known_id(item.conversation) in self._at_work or len(self._at_work) < most:
            return None
        return (
            f"Tenant {name!r} has {len(self._at_work):,} conversations at work, and may have {most:,}.",
            f"It goes on by itself after one of them, or with more: `everturn budget {name} --conversations …`.",
        )

    # ------------------------------------------------------------ who goes on

    def wake(self, now: float) -> list[str]:
        """The conversations that are to be resumed now: they have a place until they ask."""
        self._pass_time(now)
        again = [one for one in self._woken.values() if one.until <= now]
        for one in again:
            del self._woken[one.conversation]
            self._at_work.pop(known_id(one.conversation), None)
        tired = {one.conversation for one in again if one.wakes >= MOST_WAKES}
        due = [one for one in again if one.conversation not in tired]
        due += [one for one in self._waiting.values() if one not in due]
        return [one.conversation for one in due if self._wakes(one, now)]

    def _wakes(self, one: Waiter, now: float) -> bool:
        free = self.terms.conversations is None or one.asked or len(self._at_work) < self.terms.conversations
        if self._over() or not free or len(self._woken) >= MOST_WOKEN:
            self._waiting.setdefault(one.conversation, one)
            return False
        self._waiting.pop(one.conversation, None)
        until = now + WAKE_SECONDS
        self._woken[one.conversation] = one.model_copy(update={"until": until, "wakes": one.wakes + 1})
        if self.terms.conversations and not one.asked:
            self._at_work[known_id(one.conversation)] = until
        return True

    def forget(self, conversation: str) -> None:
        """The conversation is over: it waits for nothing, and holds no place."""
        self._waiting.pop(conversation, None)
        self._woken.pop(conversation, None)
        self._at_work.pop(known_id(conversation), None)

    def next_wake(self, now: float) -> float | None:
        """When to ask `wake` again, if nothing comes before; None if nobody waits."""
        return min(self._moments(now), default=None)

    def _moments(self, now: float) -> Iterator[float]:
        yield from (one.until for one in self._woken.values())
        if self._waiting:
            yield from self._at_work.values()
            if self._over():
                yield (now // DAY_SECONDS + 1) * DAY_SECONDS

    def _pass_time(self, now: float) -> None:
        """A new day begins with nothing spent. What is reported after midnight counts for the new day."""
        if (day := int(now // DAY_SECONDS)) > self._day:
            self._day, self._tokens, self._usd, self._turns, self._unpriced = day, 0, 0.0, 0, 0
        for name in [name for name, until in self._at_work.items() if until <= now]:
            del self._at_work[name]
        if self.terms.conversations is None:
            self._at_work.clear()

    # ------------------------------------------------------------ read off it

    @property
    def waiting(self) -> list[str]:
        return [*self._woken, *self._waiting]

    def status(self, now: float) -> BudgetStatus:
        """As it is at that time."""
        today = Ledger(self.carried())
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
            waiting=len(self.waiting),
        )

    def carried(self) -> BudgetStart:
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
            at_work=dict(self._at_work),
            waiting=tuple(self._waiting.values()),
            woken=tuple(self._woken.values()),
            counted=dict(self._counted),
        )
