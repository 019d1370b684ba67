"""Turns that wait in a provider's batches: what conversations, workers and a collector send each other.

A collector is a workflow, one for each provider and key. A turn joins it as a line, by the conversation's own signal.
No request and no reply is in any of these records: the worker that sends a batch makes the requests from the
conversations' histories, and the worker that takes up a turn reads its reply from the provider.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from everturn.records import Record
from everturn.sizes import MAX_CAUSE_BYTES, MAX_ID_BYTES, MAX_NAME_CHARS

MAX_LINE_ID_CHARS: Final = 64
"""Of a line's id. Anthropic takes letters, digits, `_` and `-`, and so many of them."""
MAX_BATCH_ID_CHARS: Final = 500
CREATING: Final = "everturn_creating"
"""The key of what a try to send a batch leaves to the next: that it may have been created, when, and of which lines."""
MOST_ROUNDS: Final = 3
"""So often a turn joins a batch: a line that expires again and again is for a person to look at."""


class BatchTurn(Record):
    """What `call_model` says of a turn that may wait, in the details of its error: which batch it can join."""

    collector: str = Field(max_length=MAX_ID_BYTES)
    """The id of the collector's workflow, which runs."""
    provider: str = Field(max_length=MAX_NAME_CHARS)
    agent: str = Field(max_length=MAX_NAME_CHARS)
    model: str = Field(max_length=MAX_NAME_CHARS)
    size: int = Field(default=0, ge=0)
    """The request's bytes."""
    most_bytes: int = Field(default=0, ge=0)
    """Of a batch, by the provider's limit."""
    gather_seconds: float = Field(default=60.0, ge=0, le=86_400, allow_inf_nan=False)
    """How long a batch is gathered, by the settings of the worker."""
    most_turns: int = Field(default=500, ge=1)
    """In a batch, likewise."""
    round: int = Field(default=1, ge=1)
    """How often the turn has joined a batch, with this time."""
    without_thoughts: bool = False
    """The provider has refused the thoughts in the transcript."""

    @property
    def group(self) -> tuple[str, str]:
        """Lines of one group may be in one batch: one worker has to host their agent, and OpenAI and Gemini take one
        model in a batch."""
        return self.agent, self.model


class BatchLine(Record):
    """`join_batch`, a signal to the collector: one turn that waits."""

    id: str = Field(min_length=1, max_length=MAX_LINE_ID_CHARS)
    conversation: str = Field(max_length=MAX_ID_BYTES)
    run_id: str = Field(max_length=MAX_ID_BYTES)
    activity_id: str = Field(max_length=MAX_ID_BYTES)
    """Of the `call_model` that has the turn's request as its input."""
    turn: BatchTurn
    number: int = 0
    """Its place in the batch, from 1 on; 0 until that is sent."""


class LeaveBatch(Record):
    """`leave_batch`, a signal to the collector: nobody waits for this line any more."""

    id: str = Field(max_length=MAX_LINE_ID_CHARS)


class BatchNotice(Record):
    """`batch`, a signal to a conversation: what became of its line."""

    line: str = Field(max_length=MAX_LINE_ID_CHARS)
    state: Literal["sent", "ended", "again", "failed", "awaited"] = "sent"
    """It is in the batch; the batch is over, and the line's result can be read; it has to join once more; the batch
    could not be sent, for this `cause`; no worker can send or follow the batch now, for this `cause`."""
    batch_id: str = Field(default="", max_length=MAX_BATCH_ID_CHARS)
    """As the provider calls it."""
    number: int = 0
    """Of the line in the batch, from 1 on."""
    round: int = 1
    without_thoughts: bool = False
    sent_at: str = Field(default="", max_length=MAX_NAME_CHARS)
    """When the batch was sent: ISO 8601, UTC."""
    collector: str = Field(default="", max_length=MAX_ID_BYTES)
    """The id of the collector's workflow, which stands for the key that the batch was sent with."""
    cause: str = Field(default="", max_length=MAX_CAUSE_BYTES)
    cure: str = Field(default="", max_length=MAX_CAUSE_BYTES)

    @classmethod
    def about(cls, line: BatchLine, **facts: Any) -> BatchNotice:
        turn = line.turn
        return cls(
            line=line.id,
            round=turn.round,
            without_thoughts=turn.without_thoughts,
            collector=turn.collector,
            **facts,
        )

    @property
    def is_over(self) -> bool:
        """Whether the turn can be taken up."""
        return self.state not in ("sent", "awaited")

    @property
    def has_result(self) -> bool:
        """Whether the line's result, which is paid, is there to be read."""
        return self.state == "ended"


class Batch(Record):
    """One batch, and the input of the activities that send, follow and cancel it."""

    name: str
    """Ours. The provider keeps it with the batch, if it can."""
    agent: str = ""
    model: str = ""
    lines: tuple[BatchLine, ...] = ()
    batch_id: str = ""
    """The provider's; empty until it is sent."""
    sent_at: float = 0.0
    """Seconds since 1970."""
    hand_back_for: float | None = None
    """How long workers that do not host the agent hand it on, in seconds."""
    left: dict[str, Any] | None = None
    """What tries of an activity before this one have left, if workers have handed that back: CREATING."""


class SentBatch(Record):
    """What `send_turn_batch` returns."""

    batch_id: str = ""
    """Empty if no line was left to send."""
    sent_at: float = 0.0
    lines: tuple[str, ...] = ()
    """The ids of the lines in it, in their order."""
    put_back: tuple[str, ...] = ()
    """Lines that have to be in another batch: it would be too large, or has other headers."""
    again: tuple[str, ...] = ()
    """Lines whose conversation has to look anew: their request could not be made."""


class CollectorStart(Record):
    """The collector's input."""

    provider: str = ""
    gathered: tuple[BatchLine, ...] = ()
    gathered_since: tuple[float, ...] = ()
    """When each of them came."""
    batches: tuple[Batch, ...] = ()
    """Those that are with the provider."""


class CollectorStatus(Record):
    """The answer to the collector's query `batches`."""

    provider: str
    gathered: int = 0
    batches: tuple[Batch, ...] = ()

    def as_json(self) -> dict[str, Any]:
        batches = [
            {"id": batch.batch_id, "model": batch.model, "turns": len(batch.lines), "sent_at": batch.sent_at}
            for batch in self.batches
        ]
        return {"provider": self.provider, "gathered": self.gathered, "batches": batches}
