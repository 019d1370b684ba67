"""What models cost that an evaluator asks by `generate`, counted without its doing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from everturn.records import Usage, cost_with


class EvaluatorSpending:
    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd: float | None = 0.0

    def add_usage(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage += usage
        self.cost_usd = cost_with(self.cost_usd, cost_usd)


_current: Final = ContextVar[EvaluatorSpending | None]("everturn_spending", default=None)


@contextmanager
def counted_spending() -> Iterator[EvaluatorSpending]:
    """Counts what is spent in this block, also in threads and tasks that begin in it."""
    token = _current.set(spending := EvaluatorSpending())
    try:
        yield spending
    finally:
        _current.reset(token)


def current_spending() -> EvaluatorSpending | None:
    """None outside of evaluators."""
    return _current.get()
