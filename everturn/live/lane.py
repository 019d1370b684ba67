"""What carries text from a worker to those who follow it, beside Temporal."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from everturn.streamed import Streamed


class LaneDown(Exception):
    """It can't be reached. Text then comes with the ordinary heartbeats."""


@dataclass(frozen=True)
class TurnKey:
    """A model turn that runs, over all its tries."""

    namespace: str
    run_id: str
    activity_id: str


class Lane(Protocol):
    """One answer. Nobody depends on it: whoever hears nothing here hears it by heartbeats, later."""

    async def write(self, key: TurnKey, streamed: Streamed) -> None:
        """What is new. Raises LaneDown."""

    async def end(self, key: TurnKey) -> None:
        """Nothing more is written by this try. Raises LaneDown."""

    def follow(self, key: TurnKey) -> AsyncGenerator[Streamed]:
        """All that was written, from the turn's beginning, and what comes, for as long as somebody asks. What is out of
        reach is tried again."""

    async def so_far(self, key: TurnKey) -> list[Streamed]:
        """All that was written. Raises LaneDown."""

    async def check(self) -> None:
        """Raises LaneDown if it is out of reach."""

    async def close(self) -> None: ...
