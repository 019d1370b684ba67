"""Turns a conversation's events into what a page has to be told, in terms that suit both protocols.

A page may know a part of the answer already, for instance when it sends a decision. That part is not told again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from everturn import events
from everturn.events import Event
from everturn.payloads import WaitingCall
from everturn.records import Image, Message, Thinking, ToolCall, ToolResult
from everturn.ui.shown_text import ShownText

Kind = Literal["text", "thinking"]

STALLED: Final = "This needs help from somebody. It goes on once that has come."
"""What visitors read in the place of a stall's cause."""


@dataclass(frozen=True)
class SeenByPage:
    """What the page already has of the answer that it continues."""

    calls: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    questions: frozenset[str] = frozenset()
    """The ids of the approval questions."""


@dataclass(frozen=True)
class TurnBegan:
    turn: int


@dataclass(frozen=True)
class Words:
    turn: int
    kind: Kind
    text: str


@dataclass(frozen=True)
class Withdrawn:
    """The model was asked again and said something else: all words of the turn so far are void."""

    turn: int


@dataclass(frozen=True)
class Picture:
    turn: int
    image: Image


@dataclass(frozen=True)
class TurnEnded:
    """All words of the turn are told."""

    turn: int


@dataclass(frozen=True)
class Called:
    turn: int
    call: ToolCall


@dataclass(frozen=True)
class ApprovalAsked:
    waiting: WaitingCall
    question_id: str


@dataclass(frozen=True)
class Progressed:
    call_id: str
    progress: JsonValue


@dataclass(frozen=True)
class Finished:
    result: ToolResult
    asked: bool
    """Whether the page was asked to approve the call."""


@dataclass(frozen=True)
class HeldUp:
    """Why the conversation does not go on now, or that it goes on again. The page has nothing to do."""

    state: Literal["worker_awaited", "limited", "paused", "resumed"]


PageStep = TurnBegan | Words | Withdrawn | Picture | TurnEnded | Called | ApprovalAsked | Progressed | Finished | HeldUp


def question_id(waiting: WaitingCall) -> str:
    """Names one question about a call. If the same call is asked about again, that question has another id, so a late
    answer to the first one does not count for it."""
    digest = hashlib.sha256(f"{waiting.since} {waiting.reason} {waiting.why}".encode(errors="replace")).hexdigest()
    return f"{waiting.call_id}.{digest[:16]}"


@dataclass
class Narrator:
    """`tell` takes the events of one answer from its beginning; `ask` takes the calls that wait once it is at rest."""

    seen: SeenByPage = field(default_factory=SeenByPage)
    decides: bool = True
    _quiet_turn: int = 0
    """The page already has all turns up to this one."""
    _began: set[int] = field(default_factory=set)
    _shown: dict[Kind, ShownText] = field(default_factory=dict)
    _calls: set[str] = field(default_factory=set)
    """The calls that the page knows."""
    _results: set[str] = field(default_factory=set)
    _questions: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._calls, self._results, self._questions = {*self.seen.calls}, {*self.seen.results}, {*self.seen.questions}

    def look_ahead(self, so_far: Iterable[Event]) -> None:
        """Reads all events so far, before the first is told: finds the turns that the page already has."""
        for event in so_far:
            if isinstance(event, events.Replied) and any(
                call.call_id in self.seen.calls for call in event.message.tool_calls
            ):
                self._quiet_turn = max(self._quiet_turn, event.turn)

    def tell(self, event: Event) -> Iterator[PageStep]:
        match event:
            case events.TurnStarted():
                self._start_over(event.turn)
            case events.TurnRetried():
                self._start_over()
            case events.TextDelta(turn=turn, text=text):
                yield from self._words(turn, "text", text)
            case events.ThinkingDelta(turn=turn, text=text):
                yield from self._words(turn, "thinking", text)
            case events.Replied(turn=turn, message=message):
                yield from self._reply(turn, message)
            case events.ToolCalled(turn=turn, call=call) if turn > self._quiet_turn:
                self._calls.add(call.call_id)
                yield Called(turn, call)
            case events.ToolProgress(call_id=call_id, progress=progress) if call_id in self._calls:
                yield Progressed(call_id, progress)
            case events.ToolFinished(result=result) if result.call_id in self._calls - self._results:
                self._results.add(result.call_id)
                yield Finished(result, asked=result.call_id in {one.rpartition(".")[0] for one in self._questions})
            case events.WorkerAwaited():
                yield HeldUp("worker_awaited")
            case events.TurnLimited():
                yield HeldUp("limited")
            case events.Switched(name="pause"):
                yield HeldUp("paused")
            case events.Switched(name="resume"):
                yield HeldUp("resumed")
            case _:
                pass

    def ask(self, waiting: Iterable[WaitingCall], *, again: bool = False) -> Iterator[ApprovalAsked]:
        """The approvals to ask the page for: those that it was not asked for yet; with `again`, all that wait."""
        for one in waiting:
            if one.needs != "approval" or not self.decides or one.call_id not in self._calls:
                continue
            question = question_id(one)
            if again or question not in self._questions:
                self._questions.add(question)
                yield ApprovalAsked(one, question)

    def _start_over(self, turn: int | None = None) -> None:
        """A turn begins, or begins again: the page keeps its words for as long as the new attempt says the same."""
        if turn is not None and turn not in self._began:
            self._shown = _nothing()
        for one in self._shown.values():
            one.said = ""

    def _begin(self, turn: int) -> Iterator[PageStep]:
        if turn not in self._began:
            self._began.add(turn)
            self._shown = self._shown or _nothing()
            yield TurnBegan(turn)

    def _words(self, turn: int, kind: Kind, delta: str) -> Iterator[PageStep]:
        if turn <= self._quiet_turn:
            return
        yield from self._begin(turn)
        self._shown[kind].said += delta
        yield from self._show(turn)

    def _reply(self, turn: int, message: Message) -> Iterator[PageStep]:
        if turn <= self._quiet_turn:
            return
        yield from self._begin(turn)
        self._shown["thinking"].said = "".join(part.text for part in message.parts if isinstance(part, Thinking))
        self._shown["text"].said = message.text
        yield from self._show(turn, whole=True)
        for part in message.parts:
            if isinstance(part, Image):
                yield Picture(turn, part)
        yield TurnEnded(turn)
        self._shown = {}

    def _show(self, turn: int, *, whole: bool = False) -> Iterator[PageStep]:
        if any(one.is_wrong(whole=whole) for one in self._shown.values()):
            yield Withdrawn(turn)
            for one in self._shown.values():
                one.shown = ""
        for kind, one in self._shown.items():
            if more := one.take_more():
                yield Words(turn, kind, more)


def _nothing() -> dict[Kind, ShownText]:
    return {"thinking": ShownText(), "text": ShownText()}
