"""What is measured. One file each, with `async def measure(rig: Rig, plan: Plan) -> Measured`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.contestants import Contestant

Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """What the command line asks for."""

    contestants: Sequence[Contestant]
    rounds: int
    turns: int
    to_death: bool = False
    whole: bool = False
    """Throughput: until all conversations are done, not for a window of time."""
    tool_seconds: float = 60.0
    """long_tool: how long the tool takes."""
    conversations: int = 200
    """deploy_checks: how many are looked through."""

    def shuffled(self, number: int) -> list[Contestant]:
        """The contestants, in another order in each round: each one leaves the server something to do for the next."""
        return random.Random(number).sample(self.contestants, len(self.contestants))


@dataclass(frozen=True)
class Column:
    key: str
    head: str
    form: str = ".1f"
    better: Literal["low", "high"] | None = "low"
    against: str = ""
    """Show the ratio to this contestant beside the number."""


@dataclass(frozen=True)
class Measured:
    """A table, `rows` by contestant; None stands for what could not be measured."""

    title: str
    columns: Sequence[Column]
    rows: Rows
    notes: Sequence[str] = ()
    samples: Any = field(default=None, repr=False)
