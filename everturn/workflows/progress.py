"""What a conversation has come to: its transcript, what the model has seen of it, and the counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice

from pydantic import JsonValue

from everturn.carryover import CarryOver, Earlier, View
from everturn.cutting import cut, shortened, without_content
from everturn.models import Limits
from everturn.payloads import ModelReply
from everturn.records import Message, Text, ToolResult, Usage, cost_with, results_in
from everturn.sizes import INLINE_BYTES, MAX_DELTA_BYTES, MAX_PAGE_BYTES, fits, how_many_fit, larger, size_of
from everturn.workflows import web_ui

MAX_REPAIRS = 2
"""Times that the model is asked to mend a final reply."""

MAX_HELD_CHARS = 256_000
"""Of what the model has seen, in the memory of the worker: the latest of it. All of it is in the history."""


@dataclass
class Progress:
    base: int = 0
    """So many messages came before this run's."""
    earlier: Earlier | None = None
    """Where those are."""
    keep_by: float | None = None
    """When they have to be brought here, since the histories of earlier runs are deleted some day."""
    position: int = 0
    """The length of the prefix, counted through all runs: what the model has seen, or said."""
    digest: str = ""
    """Of the prefix."""
    held: deque[str] = field(default_factory=deque)
    """The prefix's last messages, as JSON: short ones take an eighth of the memory that their records take."""
    held_chars: int = 0
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=web_ui.LATEST_LINES))
    """The prefix's last messages, in short."""
    unseen: list[Message] = field(default_factory=list)
    """The messages after the prefix."""
    turn: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    last_text: str = ""
    """What the model said last."""
    output: JsonValue = None
    """The same as the agent's output type, if it has one."""
    output_problem: str | None = None
    repairs: int = 0
    view: View | None = None
    """How the transcript is shown to the model."""
    summary_due: bool = False
    model: str = ""
    """The one that is asked, as its worker says."""
    recorded: frozenset[str] = frozenset()
    """Calls whose results are in their tool activities' own events."""
    handed: frozenset[str] = frozenset()
    """Calls whose results the run before handed over."""

    @classmethod
    def from_carry(cls, carry: CarryOver) -> Progress:
        return cls(
            base=carry.length,
            earlier=carry.earlier,
            keep_by=carry.keep_by,
            position=carry.length,
            digest=carry.digest,
            unseen=list(carry.unseen),
            handed=frozenset(results_in(carry.unseen)),
            turn=carry.turn,
            tool_calls=carry.tool_calls,
            usage=carry.usage,
            cost_usd=carry.cost_usd,
            last_text=carry.last_text,
            lines=deque(web_ui.lines([_said(carry.last_text)] if carry.last_text else []), maxlen=web_ui.LATEST_LINES),
            repairs=carry.repairs,
            view=carry.view,
            summary_due=carry.summary_due,
            model=carry.facts.model if carry.facts else "",
        )

    @property
    def held_from(self) -> int:
        """The position of the first message that is held."""
        return self.position - len(self.held)

    def latest(self, count: int) -> list[str]:
        """The last messages in short, those that no model has seen included."""
        return [*self.lines, *web_ui.lines(self.unseen)][-count:]

    @property
    def told(self) -> tuple[str, ...]:
        """The unseen calls whose results events tell, of this run or of one before."""
        return tuple(call_id for call_id in results_in(self.unseen) if call_id in self.recorded | self.handed)

    def delta(self) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """The messages since the last reply, and the ids of the calls whose results they leave out for their size."""
        return self._sent(self.unseen, room=MAX_DELTA_BYTES)

    def said(self, room: int) -> tuple[str, JsonValue]:
        """The last reply's text and output, as an outcome of so many bytes can carry them."""
        if size_of(self.last_text) + size_of(self.output) <= room:
            return self.last_text, self.output
        # An output that is cut is none, and its text is the same.
        return shortened(self.last_text, max_bytes=room), None

    def tail(self, inbox: list[Message], *, room: int) -> tuple[Message, ...]:
        """What no model has seen, as an outcome can carry it beside its text and output: like a delta, but for what has
        no room at all."""
        sent, _ = self._sent([*self.unseen, *inbox], room=max(0, room))
        return sent[: how_many_fit(sent, room)]

    def page(self, start: int, limit: int) -> list[Message]:
        """The messages from position `start` on: as many as fit an answer, and at least one, cut if it has to be."""
        page: list[Message] = []
        room = MAX_PAGE_BYTES
        first = start - self.held_from
        known: Iterable[str | Message] = chain(self.held, self.unseen)
        for one in islice(known, first, first + limit):
            message = Message.model_validate_json(one) if isinstance(one, str) else one
            if page and not fits([message], room):
                break
            room -= size_of(message)
            page.append(message)
        return list(cut(page, MAX_DELTA_BYTES))

    def _sent(self, messages: list[Message], *, room: int) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        named = tuple(
            call_id
            for call_id, result in results_in(messages).items()
            if call_id in self.recorded and larger(result, INLINE_BYTES)
        )
        return cut(without_content(messages, named) if named else messages, room), named

    def take_reply(self, reply: ModelReply) -> None:
        self._take_in([*self.unseen, reply.message])
        self.unseen = []
        self.last_text = reply.message.text
        self.output, self.output_problem = reply.output, reply.output_problem
        self.summary_due = reply.summary_due
        self._count(reply)

    def take_in_unseen(self, digest: str) -> None:
        """What no model has seen is a part of the prefix now, which has this digest."""
        self._take_in(self.unseen)
        self.unseen, self.digest = [], digest

    def take_summary(self, reply: ModelReply) -> None:
        """It comes after what the model has seen, and before what it has not."""
        self.summary_due = False
        if reply.message.parts:
            self._take_in([reply.message])
            self._count(reply)

    def _take_in(self, messages: list[Message]) -> None:
        """From now on, these are the end of the prefix."""
        self.position += len(messages)
        self.lines.extend(web_ui.lines(messages))
        written = [message.model_dump_json() for message in messages]
        self.held.extend(written)
        self.held_chars += sum(map(len, written))
        while self.held_chars > MAX_HELD_CHARS:
            self.held_chars -= len(self.held.popleft())

    def _count(self, reply: ModelReply) -> None:
        self.digest = reply.digest
        self.view = reply.view or self.view
        self.tool_calls += len(reply.message.tool_calls)
        self.spend(reply.usage, reply.cost_usd)

    def spend(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage, self.cost_usd = self.usage + usage, cost_with(self.cost_usd, cost_usd)

    def ask_for_repair(self) -> bool:
        """Tells the model what is wrong with a reply that does not fit the agent's output type; bounded."""
        if self.output_problem is None or self.repairs >= MAX_REPAIRS:
            self.repairs = 0
            return False
        self.repairs += 1
        text = f"Your reply does not fit the output's schema:\n{self.output_problem}\nReply again, with the JSON only."
        self.unseen.append(Message.user(text).model_copy(update={"author": "everturn"}))
        return True

    def take_results(self, results: tuple[ToolResult, ...], *, recorded: Iterable[str] = ()) -> None:
        self.unseen.append(Message(role="tool", parts=results))
        self.recorded = frozenset(recorded)

    def calls_left(self, limits: Limits) -> int | None:
        """How many tool calls the next reply may make; None if nothing limits them."""
        return None if limits.max_tool_calls is None else max(0, limits.max_tool_calls - self.tool_calls)

    def limit_reached(self, limits: Limits, *, seconds: float) -> str | None:
        """The first limit that is used up, in words; None while there is room for another turn."""
        if self.turn >= limits.max_turns:
            return f"the limit of {limits.max_turns} turns"
        if limits.max_tool_calls is not None and self.tool_calls >= limits.max_tool_calls:
            return f"the limit of {limits.max_tool_calls} tool calls"
        if limits.max_total_tokens is not None and self.usage.total_tokens >= limits.max_total_tokens:
            return f"the limit of {limits.max_total_tokens} tokens"
        if limits.max_cost_usd is not None and (self.cost_usd or 0) >= limits.max_cost_usd:
            return f"the limit of {limits.max_cost_usd} USD"
        if limits.max_duration is not None and seconds >= limits.max_duration.total_seconds():
            return f"the limit of {limits.max_duration}"
        return None


def _said(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text=text),))
