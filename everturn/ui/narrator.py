"""Turns a conversation's events into what a page has to be told, in terms that suit both protocols.

A page may know a part of the answer already, for instance when it sends a decision. That part is not told again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from everturn import events
from everturn.client.followed_reply import FollowedReply, WhyAtRest
from everturn.events import Event
from everturn.payloads import AskedAgent, WaitingCall
from everturn.records import Image, Message, Text, TextKind, Thinking, ToolCall, ToolResult, results_in
from everturn.ui.shown_text import ShownText

STALLED: Final = "This needs help from somebody. It goes on once that has come."
"""What visitors read in the place of a stall's cause."""

UNFIT: Final = "This answer does not have the form that was asked for."
"""In the place of why it does not: that quotes the answer."""

OVER: Final = "The conversation is over."


def why_it_failed(why_at_rest: WhyAtRest, *, show_causes: bool) -> str:
    """What a page's visitor reads of an answer that comes no further."""
    neutral_words = {"stalled": STALLED, "unfit": UNFIT}.get(why_at_rest.why, OVER)
    return (why_at_rest.cause if show_causes else "") or neutral_words


@dataclass(frozen=True)
class SeenByPage:
    """What the page already has of the answer that it continues."""

    calls: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    questions: frozenset[str] = frozenset()
    """The ids of the approval questions."""
    unapproved: frozenset[str] = frozenset()
    """The calls that it shows as not approved yet, as far as it knows."""


@dataclass(frozen=True)
class TurnBegan:
    turn: int


@dataclass(frozen=True)
class Words:
    turn: int
    kind: TextKind
    text: str


@dataclass(frozen=True)
class WordsWithdrawn:
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
class CallMade:
    turn: int
    call: ToolCall
    path: tuple[AskedAgent, ...] = ()
    """The agents that led to it, if it is a sub-agent's: the page shows those of these calls that wait for a person."""
    held: bool = False
    """It runs outside of workers, and may have to be approved first: the page may run it once it is `Released`."""


@dataclass(frozen=True)
class CallReleased:
    """A call that runs outside of workers may begin, with these arguments."""

    call: ToolCall


@dataclass(frozen=True)
class ApprovalAsked:
    waiting: WaitingCall
    question_id: str


@dataclass(frozen=True)
class CallProgressed:
    call_id: str
    progress: JsonValue


@dataclass(frozen=True)
class AnswerFinished:
    result: ToolResult
    was_asked: bool
    """Whether the page was asked to approve the call."""


@dataclass(frozen=True)
class HeldUp:
    """Why the conversation does not go on now, or that it goes on again. The page has nothing to do."""

    state: Literal["worker_awaited", "limited", "batched", "paused", "resumed"]


PageStep = (
    TurnBegan
    | Words
    | WordsWithdrawn
    | Picture
    | TurnEnded
    | CallMade
    | CallReleased
    | ApprovalAsked
    | CallProgressed
    | AnswerFinished
    | HeldUp
)


def question_id(waiting: WaitingCall) -> str:
    """Names one question about a call and its arguments. If the same call is asked about again, that question has
    another id, so a late answer to the first one does not count for it."""
    what = f"{waiting.since} {waiting.reason} {waiting.why} {json.dumps(waiting.arguments, sort_keys=True)}"
    digest = hashlib.sha256(what.encode(errors="replace")).hexdigest()
    return f"{waiting.call_id}.{digest[:16]}"


def calls_below(so_far: Iterable[Event]) -> dict[str, list[CallMade]]:
    """The calls of sub-agents that wait or have waited, by the conversation's own call that led to them."""
    calls: dict[str, dict[str, CallMade]] = {}
    for event in so_far:
        if event.path and isinstance(event, events.ApprovalRequested | events.AnswerRequested):
            of_agent = calls.setdefault(event.path[0].call_id, {})
            of_agent[event.call.call_id] = CallMade(event.turn, event.call, event.path)
    return {call_id: [*of_agent.values()] for call_id, of_agent in calls.items()}


def held_call_ids(so_far: Iterable[Event]) -> set[str]:
    """The calls that run outside of workers and that nobody has approved yet."""
    call_ids: set[str] = set()
    for event in so_far:
        match event:
            case (
                events.ToolCalled(call=call, refused=None, awaits_answer=True)
                | events.ApprovalRequested(call=call, awaits_answer=True)
            ):
                call_ids.add(call.call_id)
            case events.AnswerRequested(call=call):
                call_ids.discard(call.call_id)
            case events.ToolFinished(result=result):
                call_ids.discard(result.call_id)
            case _:
                pass
    return call_ids


@dataclass
class Narrator:
    """`steps_for` takes the events of one answer from its beginning; `ask_approvals` takes the calls that wait once it
    is at rest."""

    seen: SeenByPage = field(default_factory=SeenByPage)
    decides: bool = True
    _quiet_turn: int = 0
    """The page already has all turns up to this one."""
    _began: set[int] = field(default_factory=set)
    _shown: dict[TextKind, ShownText] = field(default_factory=dict)
    _positions: dict[int, int] = field(default_factory=dict)
    """Where the replies of the turns are in the transcript."""
    _calls: dict[str, None] = field(default_factory=dict)
    """The calls that the page knows, in their order."""
    _turns: dict[str, int] = field(default_factory=dict)
    """The turns of the conversation's own calls."""
    _results: set[str] = field(default_factory=set)
    _questions: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._calls = dict.fromkeys(sorted(self.seen.calls))
        self._results = {*self.seen.results}
        self._questions = {*self.seen.questions}

    def position_of(self, turn: int) -> int:
        """Where the turn's reply is in the transcript. Ids are made of it, so a message has the same id in the stream
        and when it is loaded again."""
        return self._positions.get(turn, turn)

    def look_ahead(self, so_far: Iterable[Event]) -> None:
        """Reads all events so far, before the first is told: finds the turns that the page already has."""
        for event in so_far:
            if isinstance(event, events.Replied) and any(
                call.call_id in self.seen.calls for call in event.message.tool_calls
            ):
                self._quiet_turn = max(self._quiet_turn, event.turn)

    def steps_for(self, event: Event) -> Iterator[PageStep]:
        if isinstance(event, events.ToolCalled):
            self._turns[event.call.call_id] = event.turn
        match event:
            case events.TurnStarted(turn=turn, position=position):
                if position is not None and turn not in self._began:
                    self._positions[turn] = position
                self._start_over(turn)
            case events.TurnRetried():
                self._start_over()
            case events.TextDelta(turn=turn, text=text):
                yield from self._add_words(turn, "text", text)
            case events.ThinkingDelta(turn=turn, text=text):
                yield from self._add_words(turn, "thinking", text)
            case events.Replied(turn=turn, message=message):
                yield from self._tell_reply(turn, message)
            case events.ToolCalled(turn=turn, call=call) if turn > self._quiet_turn:
                self._calls[call.call_id] = None
                yield CallMade(turn, call, held=event.awaits_answer and event.refused is None)
            case events.ApprovalRequested(call=call) if event.path:
                yield from self._call_below(call, event.path, held=event.awaits_answer)
            case events.AnswerRequested(call=call):
                if event.path:
                    yield from self._call_below(call, event.path)
                if call.call_id in self._calls:
                    yield CallReleased(call)
            case events.ToolProgress(call_id=call_id, progress=progress) if call_id in self._calls:
                yield CallProgressed(call_id, progress)
            case events.ToolFinished(result=result):
                yield from self._finish_call(result)
            case events.WorkerAwaited():
                yield HeldUp("worker_awaited")
            case events.TurnLimited():
                yield HeldUp("limited")
            case events.TurnBatched():
                yield HeldUp("batched")
            case events.Switched(name="pause"):
                yield HeldUp("paused")
            case events.Switched(name="resume"):
                yield HeldUp("resumed")
            case _:
                pass

    def _call_below(self, call: ToolCall, path: tuple[AskedAgent, ...], *, held: bool = False) -> Iterator[CallMade]:
        """A call of a sub-agent that waits, or has waited."""
        if call.call_id not in self._calls:
            self._calls[call.call_id] = None
            yield CallMade(self._turns.get(path[0].call_id, 0), call, path, held)

    async def finish_all(self, answer: FollowedReply) -> list[AnswerFinished]:
        """The results of calls that the page still shows as open, though they have ended: cut short with their answer,
        or while this page did not look."""
        waiting = {call.call_id for call in answer.waiting}
        open_ids = [
            call_id
            for call_id in self._calls
            if call_id not in self._results and call_id not in waiting and not answer.is_below(call_id)
        ]
        if not open_ids:
            return []
        transcript = await answer.transcript()
        results = results_in(transcript)
        calls = {call.call_id: call for message in transcript for call in message.tool_calls}
        finished: list[AnswerFinished] = []
        for call_id in open_ids:
            call = calls.get(call_id)
            result = results.get(call_id) or (answer.result_of(call) if call else _unknown_result(call_id))
            if result:
                finished += self._finish_call(result)
        return finished

    def _finish_call(self, result: ToolResult) -> Iterator[AnswerFinished]:
        if result.call_id in self._calls and result.call_id not in self._results:
            self._results.add(result.call_id)
            asked_call_ids = {question.rpartition(".")[0] for question in self._questions}
            yield AnswerFinished(result, was_asked=result.call_id in asked_call_ids)

    def shows_any(self, waiting: Iterable[WaitingCall]) -> bool:
        """Whether the page shows one of these calls, so that it waits for a person, too."""
        return any(call.call_id in self._calls and call.call_id not in self._results for call in waiting)

    def ask_approvals(self, waiting: Iterable[WaitingCall], *, again: bool = False) -> Iterator[ApprovalAsked]:
        """The approvals to ask the page for: those that it was not asked for yet; with `again`, all that wait."""
        for call in waiting:
            if call.needs != "approval" or not self.decides or call.call_id not in self._calls:
                continue
            question = question_id(call)
            if again or question not in self._questions:
                self._questions.add(question)
                yield ApprovalAsked(call, question)

    def _start_over(self, turn: int | None = None) -> None:
        """A turn begins, or begins again: the page keeps its words for as long as the new attempt says the same."""
        if turn is not None and turn not in self._began:
            self._shown = _no_words()
        for shown_text in self._shown.values():
            shown_text.attempt_text = ""

    def _begin_turn(self, turn: int) -> Iterator[PageStep]:
        if turn not in self._began:
            self._began.add(turn)
            self._shown = self._shown or _no_words()
            yield TurnBegan(turn)

    def _add_words(self, turn: int, kind: TextKind, delta: str) -> Iterator[PageStep]:
        if turn <= self._quiet_turn:
            return
        yield from self._begin_turn(turn)
        self._shown[kind].attempt_text += delta
        yield from self._show_words(turn)

    def _tell_reply(self, turn: int, message: Message) -> Iterator[PageStep]:
        if turn <= self._quiet_turn:
            return
        yield from self._begin_turn(turn)
        self._shown["thinking"].attempt_text = "".join(
            part.text for part in message.parts if isinstance(part, Thinking)
        )
        self._shown["text"].attempt_text = message.text
        yield from self._show_words(turn, whole=True)
        for part in message.parts:
            if isinstance(part, Image):
                yield Picture(turn, part)
        yield TurnEnded(turn)
        self._shown = {}

    def _show_words(self, turn: int, *, whole: bool = False) -> Iterator[PageStep]:
        if any(shown_text.is_wrong(whole=whole) for shown_text in self._shown.values()):
            yield WordsWithdrawn(turn)
            for shown_text in self._shown.values():
                shown_text.page_text = ""
        for kind, shown_text in self._shown.items():
            if more := shown_text.take_more():
                yield Words(turn, kind, more)


def _unknown_result(call_id: str) -> ToolResult:
    problem = "This conversation has no such call. Load the page again."
    return ToolResult(call_id=call_id, content=(Text(text=problem),), is_error=True)


def _no_words() -> dict[TextKind, ShownText]:
    return {"thinking": ShownText(), "text": ShownText()}
