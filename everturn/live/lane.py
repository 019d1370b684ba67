"""What carries text from a worker to those who follow it, beside Temporal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from everturn.streamed import LiveAt, Streamed


class LaneDown(Exception):
    """It can't be reached, or what is said can't be encoded. Text then comes with the ordinary heartbeats."""


async def encoded(converter: DataConverter, streamed: Streamed) -> bytes:
    """As payloads are, and so by the same codec. Raises LaneDown."""
    try:
        [payload] = await converter.encode([streamed])
    except Exception as error:  # codecs raise all kinds
        raise LaneDown(f"It can't be encoded: {type(error).__name__}.") from error
    return payload.SerializeToString()


async def decoded(converter: DataConverter, data: bytes) -> Streamed | None:
    """None for what can't be read: others may have written it."""
    with suppress(Exception):
        said: list[Any] = await converter.decode([Payload.FromString(data)], [Streamed])
        return said[0] if isinstance(said[0], Streamed) else None
    return None


@dataclass(frozen=True)
class TurnKey:
    """A model turn that runs, over all its tries."""

    namespace: str
    run_id: str
    activity_id: str


class Lane(ABC):
    """One answer. Nobody depends on it: whoever hears nothing here hears it by heartbeats, later.

    Some answers are at one address for all turns, and others at the worker of each: those say where (LiveAt).
    """

    # ------------------------------------------------------------ workers

    async def open(self) -> None:  # noqa: B027 - one address for all turns is there without
        """Before the first turn. Raises InvalidSetting."""

    def announced(self) -> LiveAt | None:
        """What a turn's request says, so that those who follow find it; None if they do without. May be called from any
        thread."""
        return None

    def begin(self, key: TurnKey, attempt: int, announced: LiveAt | None) -> LiveAt | None:  # noqa: ARG002
        """A try begins here, of a turn whose request says `announced`. What it has to say in its place; None if that
        holds."""
        return None

    @abstractmethod
    async def write(self, key: TurnKey, streamed: Streamed) -> None:
        """What is new. Raises LaneDown."""

    @abstractmethod
    async def end(self, key: TurnKey, attempt: int) -> None:
        """Nothing more is written by this try. Raises LaneDown."""

    def is_followed(self, key: TurnKey) -> bool:  # noqa: ARG002
        """Whether somebody may hear what is written there."""
        return True

    # ------------------------------------------------------------ clients

    @abstractmethod
    def follow(self, key: TurnKey, at: LiveAt | None = None) -> AsyncGenerator[Streamed]:
        """All that was written, from the turn's beginning, and what comes, for as long as somebody asks. What is out of
        reach is tried again. `at`: as the turn's request says."""

    def hear_of(self, key: TurnKey, at: LiveAt) -> None:  # noqa: B027
        """The turn that is followed says that it is there from now on."""

    def is_silent(self, key: TurnKey) -> bool:  # noqa: ARG002
        """Whether it is tried in vain, so that heartbeats have to do."""
        return False

    @property
    def has_addresses(self) -> bool:
        """Whether each turn has one of its own, without which it can't be asked."""
        return False

    @abstractmethod
    async def so_far(self, key: TurnKey, at: LiveAt | None = None) -> list[Streamed]:
        """All that was written. Raises LaneDown."""

    @abstractmethod
    async def check(self) -> str:
        """What works, in words. Raises LaneDown if it is out of reach, and InvalidSetting."""

    @abstractmethod
    async def close(self) -> None: ...
