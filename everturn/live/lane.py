"""Lanes: they carry a model's text from workers to readers, outside of Temporal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from everturn.heartbeats.details import LiveAt, StreamedText


class LaneDown(Exception):
    """The lane can't be reached, or the text can't be encoded. Text then comes with the ordinary heartbeats."""


async def encode_text(converter: DataConverter, streamed: StreamedText) -> bytes:
    """The text as a Temporal payload, encoded by the same codec. Raises LaneDown."""
    try:
        [payload] = await converter.encode([streamed])
    except Exception as error:  # codecs raise all kinds
        raise LaneDown(f"It can't be encoded: {type(error).__name__}.") from error
    return payload.SerializeToString()


async def decode_text(converter: DataConverter, data: bytes) -> StreamedText | None:
    """None if it can't be read: somebody else may have written it."""
    with suppress(Exception):
        [streamed] = await converter.decode([Payload.FromString(data)], [StreamedText])
        if isinstance(streamed, StreamedText):
            return streamed
    return None


@dataclass(frozen=True)
class TurnKey:
    """Names a running model turn; the same for all its tries."""

    namespace: str
    run_id: str
    activity_id: str


class Lane(ABC):
    """One way to carry text. Nothing depends on it: text that does not arrive here comes later, by heartbeats.

    Some lanes have one address for all turns. Others use the turn's worker, and have to say its address (LiveAt).
    """

    # ------------------------------------------------------------ workers

    async def open(self) -> None:  # noqa: B027 - one address for all turns is there without
        """Called before the first turn. Raises InvalidSetting."""

    def announced_address(self) -> LiveAt | None:
        """The address for a turn's request, where readers find it; None if they need none. May be called from any
        thread."""
        return None

    def begin_try(self, key: TurnKey, attempt: int, announced: LiveAt | None) -> LiveAt | None:  # noqa: ARG002
        """Begins a try, on this worker, of a turn whose request says `announced`. Returns the address that the try
        has to say instead; None if `announced` is right."""
        return None

    @abstractmethod
    async def write_text(self, key: TurnKey, streamed: StreamedText) -> None:
        """Sends new text. Raises LaneDown."""

    @abstractmethod
    async def end_try(self, key: TurnKey, attempt: int) -> None:
        """Says that this try writes no more. Raises LaneDown."""

    def is_followed(self, key: TurnKey) -> bool:  # noqa: ARG002
        """Whether anybody may be reading this turn's text."""
        return True

    # ------------------------------------------------------------ clients

    @abstractmethod
    def follow(self, key: TurnKey, live_at: LiveAt | None = None) -> AsyncGenerator[StreamedText]:
        """The turn's text from its beginning, and then new text, until the caller stops. Tries again while the lane is
        out of reach. `at`: the address in the turn's request."""

    def hear_of(self, key: TurnKey, live_at: LiveAt) -> None:  # noqa: B027
        """Tells readers of the turn its new address."""

    def is_silent(self, key: TurnKey) -> bool:  # noqa: ARG002
        """Whether the lane can't reach the turn, so that text has to come by heartbeats."""
        return False

    @property
    def has_addresses(self) -> bool:
        """Whether each turn has an address of its own, without which its text can't be requested."""
        return False

    @abstractmethod
    async def so_far(self, key: TurnKey, live_at: LiveAt | None = None) -> list[StreamedText]:
        """All text of the turn so far. Raises LaneDown."""

    @abstractmethod
    async def check(self) -> str:
        """Says in words what works. Raises LaneDown if the lane is out of reach, and InvalidSetting."""

    @abstractmethod
    async def close(self) -> None: ...
