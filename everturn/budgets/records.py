"""What a tenant's conversations may use together: the records that workers, clients and the tenant's budget workflow
send each other, and the setting that declares budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Self

from pydantic import Field, field_validator

from everturn.errors import InvalidSetting
from everturn.limits import Budget
from everturn.records import ClosedRecord, Record
from everturn.sizes import MAX_ID_BYTES, MAX_NAME_CHARS


class BudgetTerms(Record):
    """A Budget on the wire."""

    tokens_per_day: int | None = None
    usd_per_day: float | None = None
    tokens_per_month: int | None = None
    usd_per_month: float | None = None
    tokens_total: int | None = None
    usd_total: float | None = None
    conversations: int | None = None
    lease: float = 900.0
    """Seconds."""

    @classmethod
    def from_budget(cls, budget: Budget) -> BudgetTerms:
        return cls(**{**dict(budget), "lease": budget.lease.total_seconds()})

    def as_budget(self) -> Budget:
        return Budget(**{**dict(self), "lease": timedelta(seconds=self.lease)})


class SetBudget(ClosedRecord):
    """`set_budget`, a signal."""

    budget: BudgetTerms | None = None
    """None removes the budget: no conversation waits for it any more."""
    by: str = ""

    @field_validator("budget", mode="before")
    @classmethod
    def _refuse_unknown_limits(cls, budget: Any) -> Any:
        """A limit that is misspelt would be none."""
        if isinstance(budget, Mapping) and (unknown := set(budget) - set(BudgetTerms.model_fields)):
            known = ", ".join(BudgetTerms.model_fields)
            raise ValueError(f"there is no limit {min(map(str, unknown))!r:.100}; there are {known}")
        return budget


class UnreportedSpending(Record):
    """What a conversation's turns have spent since its budget was last told."""

    since: int
    """The first of these turns. A report of the same turns, or of more of them, counts only what is new in it."""
    run: str = ""
    """The run that made it. A reset makes other turns of the same numbers, in another run."""
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    """Turns whose price is not known."""

    def plus_turn(self, tokens: int, cost_usd: float | None) -> UnreportedSpending:
        """With one more turn."""
        return self.model_copy(
            update={
                "turns": self.turns + 1,
                "tokens": self.tokens + max(0, tokens),
                "cost_usd": round(self.cost_usd + max(0.0, cost_usd or 0.0), 9),
                "unpriced": self.unpriced + (cost_usd is None),
            }
        )


class BudgetNote(Record):
    """What a conversation's turns hand on about its budget, each to the next one, whichever worker takes that."""

    run: str = ""
    """The run in which it asked."""
    asked_until: float = 0.0
    """Its turns need not ask until then, in seconds since 1970. 0: the next one does."""
    untold: UnreportedSpending | None = None

    def given_back(self) -> BudgetNote:
        """Without its place: the next turn asks."""
        return self.model_copy(update={"asked_until": 0.0})


class Spending(Record):
    """What a worker reports about a conversation."""

    conversation: str = Field(max_length=MAX_ID_BYTES)
    asks: bool = False
    """It wants to take a turn."""
    asked: bool = False
    """Another conversation called this one: it needs no place of its own."""
    untold: UnreportedSpending | None = None
    """What to count. None, if it does not ask: one turn of these `tokens` and this `cost_usd`, from an older worker."""
    tokens: int = 0
    cost_usd: float | None = 0.0
    """None if the price is not known."""
    done: bool = False
    """It has its final reply."""
    late: bool = False
    """No turn of it came for a while, and perhaps none ever will: its place is not kept for longer."""


class SpendingBatch(Record):
    """`count_spending`, an update."""

    worker: str = Field(max_length=MAX_NAME_CHARS)
    number: int
    """The batch's number at its worker: a batch that comes again counts once."""
    items: tuple[Spending, ...] = ()
    declared: BudgetTerms | None = None
    """The budget in the worker's settings. It holds unless somebody has set another one."""


class SpendingRoom(Record):
    """How much a conversation may spend before it tells."""

    turns: int = 0
    """As many at most. 0: each one tells."""
    tokens: int | None = None
    """None: no limit."""
    cost_usd: float | None = None

    def left_by(self, untold: UnreportedSpending) -> bool:
        """Whether there is room for another turn."""
        tokens = self.tokens is None or untold.tokens < self.tokens
        usd = self.cost_usd is None or untold.cost_usd < self.cost_usd
        return untold.turns < self.turns and tokens and usd


class Refusal(Record):
    conversation: str
    cause: str
    cure: str


class SpendingAnswer(Record):
    """The answer to `count_spending`."""

    refused: tuple[Refusal, ...] = ()
    over: bool = False
    """The budget is used up, for now or for good: whoever takes a turn asks first."""
    lease: float = 900.0
    places: bool = True
    """Conversations need a place: each answer asks for one."""
    room: SpendingRoom = SpendingRoom()


class Waiter(Record):
    """A conversation that is stalled for the budget."""

    conversation: str
    asked: bool = False
    since: float = 0.0
    until: float = 0.0
    """After it was resumed: the time by which it has to ask again."""
    wakes: int = 0


class LastReport(Record):
    """What is counted of a conversation's last report, so that it counts once, and how long the conversation counts as
    one that spends."""

    of: UnreportedSpending
    until: float = 0.0


class Expenses(Record):
    """What was spent in some time."""

    tokens: int = 0
    cost_usd: float = 0.0
    turns: int = 0
    unpriced: int = 0
    """Turns whose price is not known."""

    def plus(self, spent: UnreportedSpending | Expenses, *, counted: UnreportedSpending | None = None) -> Self:
        """With this; `counted`: the part of it that is in already."""
        had = counted or UnreportedSpending(since=0)
        names = ("tokens", "cost_usd", "turns", "unpriced")
        return self.model_copy(
            update={name: getattr(self, name) + getattr(spent, name) - getattr(had, name) for name in names}
        )


class SpentOn(Expenses):
    """What was spent on a day."""

    day: int
    """Days since 1970."""


class SpentIn(Expenses):
    """What was spent in a month."""

    month: int
    """Months since the year 0: twelve times the year, and 0 for January."""
    last_at: float = 0.0
    """When it was the month that counts: seconds since 1970."""


class BudgetStart(Record):
    """The input of a tenant's budget workflow, and what its run hands to the next."""

    tenant: str = Field(max_length=MAX_NAME_CHARS)
    budget: BudgetTerms
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
    other_days: tuple[SpentOn, ...] = ()
    """Days that were counted besides: clocks differ, and one that is wrong is put right."""
    month: SpentIn | None = None
    """None from an older version, which counted days."""
    other_months: tuple[SpentIn, ...] = ()
    total: Expenses | None = None
    at_work: dict[str, float] = Field(default_factory=dict)
    """When each conversation's place expires: seconds since 1970. By its id, or by a digest of a long id."""
    waiting: tuple[Waiter, ...] = ()
    woken: tuple[Waiter, ...] = ()
    counted: dict[str, int] = Field(default_factory=dict)
    """The number of the last batch, by worker."""
    reported: dict[str, LastReport] = Field(default_factory=dict)
    """By a digest of the conversation's id."""


class BudgetStatus(Record):
    """The answer to the `budget` query: all fields are written."""

    tenant: str
    budget: BudgetTerms
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
    month: str = ""
    """The month that is counted, in UTC: 2026-11."""
    tokens_this_month: int = 0
    cost_usd_this_month: float = 0.0
    tokens_total: int = 0
    """Since the tenant first had a budget."""
    cost_usd_total: float = 0.0
    at_work: int = 0
    """Conversations that hold a place; counted only if the budget limits them."""
    conversations: tuple[str, ...] = ()
    """The first twenty conversations that hold a place."""
    waiting: int = 0
    """Conversations that are stalled for this budget, and resumed by themselves."""

    def as_json(self) -> dict[str, Any]:
        written = {name: getattr(self, name) for name in BudgetStatus.model_fields}
        terms = {name: getattr(self.budget, name) for name in BudgetTerms.model_fields}
        return {**written, "budget": terms, "conversations": list(self.conversations)}


def declared_budgets(given: Mapping[str, Budget] | str) -> dict[str, BudgetTerms]:
    """What a worker's settings say, by tenant: `acme=tokens:1000000+usd-month:50,*=conversations:20`. Raises
    InvalidSetting."""
    budgets = _read_budgets(given) if isinstance(given, str) else given
    for tenant, budget in budgets.items():
        if not tenant or not isinstance(tenant, str) or len(tenant) > MAX_NAME_CHARS:
            raise InvalidSetting(f"A budget is for {tenant!r:.100}, which is no tenant.", cure="Name one, or all: '*'.")
        if not isinstance(budget, Budget):
            raise InvalidSetting(
                f"The budget of {tenant!r} is {budget!r:.100}.", cure="Write Budget(tokens_per_day=1_000_000)."
            )
    return {tenant: BudgetTerms.from_budget(budget) for tenant, budget in budgets.items()}


_WORDS: Final = {
    "tokens": "tokens_per_day",
    "usd": "usd_per_day",
    "tokens-month": "tokens_per_month",
    "usd-month": "usd_per_month",
    "tokens-total": "tokens_total",
    "usd-total": "usd_total",
    "conversations": "conversations",
}


def _read_budgets(written: str) -> dict[str, Budget]:
    budgets = {}
    for item in filter(None, (part.strip() for part in written.split(","))):
        tenant, _, terms = item.rpartition("=")
        try:
            pairs = [part.split(":") for part in terms.split("+")]
            numbers = {_WORDS[name]: float(number) if name.startswith("usd") else int(number) for name, number in pairs}
            budgets[tenant.strip()] = Budget(**numbers)
        except (KeyError, ValueError, InvalidSetting):
            raise InvalidSetting(
                f"EVERTURN_TENANT_BUDGETS has {item!r:.100}, which is no budget.",
                cure="Write acme=tokens:1000000+usd:50+conversations:20, with commas between tenants; '*' is for all. "
                f"It knows {', '.join(_WORDS)}.",
            ) from None
    return budgets
