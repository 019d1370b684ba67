"""What a conversation was, as evals look at it: what people said, each call with its result, the answer, the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Final

from pydantic import JsonValue

from everturn import names
from everturn.client.client import Client
from everturn.exporting.reading import Exported, read_conversation
from everturn.policy import same_json
from everturn.records import (
    CUT_OFF,
    Decision,
    Message,
    ResultPart,
    Stop,
    ToolCall,
    ToolResult,
    Usage,
    is_said_by_person,
    results_in,
)
from everturn.truncation import edit_notice

BAD_ENDS: Final = ("limit_reached", "cancelled", "failed", "terminated", "timed_out")


@dataclass(frozen=True)
class RecordedCall:
    """A call of a tool, as the model made it, and what came back."""

    call: ToolCall
    turn: int
    result: ToolResult | None = None
    """None if it has none yet."""
    effect: str = ""
    """`read`, `idempotent` or `once`; empty if it is not known, as of calls that people or other agents answer."""
    started: bool = False
    """It ran, or may have."""
    times_spoken: int = 0
    """How often people had spoken by then: what one reply answers counts once."""

    @property
    def decision(self) -> Decision | None:
        """What a person made of it, in person or by a rule of theirs; None if nobody decided, or only the clock or a
        model."""
        decision = self.result and self.result.decision
        if not decision or not decision.at or decision.by == names.THE_CLOCK or decision.by_model:
            return None
        return decision

    @property
    def is_denied(self) -> bool:
        """A person wanted it not to be made. (Of one that had started, a denial says only that it is not to be run
        once more.)"""
        return self.decision is not None and self.decision.verdict == "deny" and not self.started

    @property
    def own_content(self) -> tuple[ResultPart, ...]:
        """What came back, without what the model was told of the approval."""
        if self.result is None:
            return ()
        notice = edit_notice(self.result.decision)
        if notice and self.result.content[: len(notice)] == notice:
            return self.result.content[len(notice) :]
        return self.result.content

    def result_for(self, call: ToolCall) -> ToolResult | None:
        """The result for a call that is the same. If it was made as the person had corrected it, the result says
        nothing of a correction."""
        if self.result is None or same_json(self.call.arguments, call.arguments):
            return self.result
        return self.result.model_copy(update={"content": self.own_content})

    @property
    def edited_arguments(self) -> dict[str, JsonValue] | None:
        """What a person put in place of the model's arguments; None if they were left alone."""
        if not self.decision or self.decision.arguments is None:
            return None
        if same_json(self.decision.arguments, self.call.arguments):
            return None
        return self.decision.arguments

    def is_same(self, call: ToolCall) -> bool:
        """The same tool with the same arguments: the model's, or those that a person put in their place."""
        if self.call.name != call.name:
            return False
        if same_json(self.call.arguments, call.arguments):
            return True
        return self.edited_arguments is not None and same_json(self.edited_arguments, call.arguments)

    def as_json(self) -> dict[str, JsonValue]:
        written: dict[str, JsonValue] = {"turn": self.turn, "tool": self.call.name, "arguments": self.call.arguments}
        if self.result:
            written |= {"result": self.result.text, "is_error": self.result.is_error}
            if decision := self.result.decision:
                written["decision"] = decision.model_dump(mode="json", exclude_none=True)
        return written


@dataclass(frozen=True)
class Recorded:
    """A conversation, or a rerun of one, up to now."""

    id: str
    agent: str
    model: str
    status: str
    messages: tuple[Message, ...]
    asked: tuple[Message, ...]
    """What people said, in order."""
    replies: dict[int, Message]
    """The model's replies, by turn."""
    calls: tuple[RecordedCall, ...]
    text: str
    """The last reply's."""
    output: JsonValue = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    """None if a price is not known."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    """None while it runs."""
    metadata: dict[str, JsonValue] = field(default_factory=dict)
    tenant: str | None = None
    stalled: bool = False
    """It has stalled at least once."""
    stops: dict[int, Stop] = field(default_factory=dict)
    """Why replies were cut off, by turn; without those that are whole."""
    reason: str = ""
    """Why it ended, if it did not simply complete."""
    key: str = ""
    """Set if it was read from a case: by this, the rerun finds it. Of the same case, it is the same."""

    @property
    def turns(self) -> int:
        return len(self.replies)

    @property
    def seconds(self) -> float | None:
        """From its start to its end, with the time that it waited for people; None while it runs."""
        if not (self.started_at and self.ended_at):
            return None
        return (self.ended_at - self.started_at).total_seconds()

    def ending(self, at_turn: int | None = None) -> str:
        """How it ended: the outcome's status, if it is not `completed`; else why its last reply, or that of a turn, was
        cut off; else `completed`, also while it runs."""
        if self.status in BAD_ENDS:
            return self.status
        turn = max(self.replies, default=0) if at_turn is None else at_turn
        return self.stops.get(turn, "completed")

    def at_turn(self, turn: int) -> tuple[RecordedCall, ...]:
        """The calls of that turn's reply."""
        return tuple(call for call in self.calls if call.turn == turn)


async def read_recorded(client: Client, conversation_id: str) -> Recorded:
    """Reads a conversation. Raises NotFound, and Unreachable if Temporal does not answer."""
    return recorded_of(await read_conversation(client, conversation_id))


def recorded_of(exported: Exported) -> Recorded:
    results = results_in(exported.messages)
    replies: dict[int, Message] = {}
    calls: list[RecordedCall] = []
    stops: dict[int, Stop] = {}
    counts = spoken_counts(exported.messages)
    for position, message in enumerate(exported.messages):
        if message.role != "assistant":
            continue
        known = exported.facts.get(position)
        turn = known.turn if known else len(replies) + 1
        replies[turn] = message
        if known and known.stop in CUT_OFF:
            stops[turn] = known.stop
        calls += [
            RecordedCall(
                call,
                turn,
                results.get(call.call_id),
                effect=exported.effects.get(call.call_id, ""),
                started=call.call_id in exported.calls,
                times_spoken=counts[position],
            )
            for call in message.tool_calls
        ]
    outcome = exported.outcome
    labels = exported.labels
    return Recorded(
        id=exported.id,
        agent=exported.agent,
        model=exported.model,
        status=exported.status,
        messages=exported.messages,
        asked=tuple(filter(is_said_by_person, exported.messages)),
        replies=replies,
        calls=tuple(calls),
        text=outcome.text if outcome else last_text(replies),
        output=outcome.output if outcome else None,
        usage=exported.usage,
        cost_usd=exported.cost_usd,
        started_at=exported.started_at,
        ended_at=exported.ended_at,
        metadata=dict(labels.get("metadata") or {}),
        tenant=labels.get("tenant"),
        stalled=exported.stalled,
        stops=stops,
        reason=(outcome and outcome.reason) or "",
    )


def spoken_counts(messages: Sequence[Message]) -> list[int]:
    """How often people had spoken, for each message: several messages in a row count once."""
    by_person = [is_said_by_person(message) for message in messages]
    starts = [now and not before for before, now in pairwise([False, *by_person])]
    return list(accumulate(map(int, starts)))


def last_text(replies: Mapping[int, Message]) -> str:
    """Of the last reply; empty if there is none."""
    return next((reply.text for reply in reversed([*replies.values()])), "")
