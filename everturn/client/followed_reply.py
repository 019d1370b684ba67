"""One answer of a conversation: the events from a message until the conversation needs a person again.

For programs that show one answer at a time, such as a chat in a browser. They need not store anything: an answer is
read from the history, so it can be opened while it is written, opened again, or opened by another process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

from temporalio.client import WorkflowExecutionDescription

from everturn.client.held_signals import holds_back
from everturn.client.missing_worker import MissingWorkerWatch
from everturn.corrections import unfit_reason
from everturn.events import AnswerRequested, ApprovalRequested, Decided, Event, Replied, ToolFinished
from everturn.history import steps
from everturn.history.endings import final_reply
from everturn.history.event_reader import EventReader
from everturn.history.open_calls import settled_result
from everturn.history.transcript import read_transcript
from everturn.live.live_activities import LiveActivities, interleave_events
from everturn.payloads import WaitingCall, address_of
from everturn.records import Message, Outcome, Stop, ToolCall, ToolResult, results_in
from everturn.state import LastReply
from everturn.subagents.followed import FollowedAgents
from everturn.temporal.any_status import held_up
from everturn.temporal.ids import known_id


@dataclass(frozen=True)
class WhyAtRest:
    """Why no more events come until somebody acts."""

    why: Literal["answered", "unfit", "waiting", "stalled", "cancelled", "ended"]
    """`answered`: it has its final reply. `unfit`: that does not fit the agent's `output` type. `waiting`: calls wait
    for people. `stalled`: it needs help. `cancelled`: its turn was cancelled. `ended`: the conversation is over without
    a final reply."""
    waiting: tuple[WaitingCall, ...] = ()
    cause: str = ""
    """In words, if it is unfit, stalled, cancelled or over."""
    outcome: Outcome | None = None
    stop: Stop = "end"
    """Why the model stopped in its last reply; anything but `end` means that it is not whole."""


class _AnsweringConversation(Protocol):
    """The parts of a Conversation that are used here."""

    id: str
    _client: Any
    _temporal: Any
    _runs: Any

    async def _describe(self) -> WorkflowExecutionDescription: ...
    def _open_conversation(self, conversation_id: str) -> Any: ...


class _Position(NamedTuple):
    run_id: str
    step_id: int
    """The last event of the run's history."""


class FollowedReply:
    """The latest answer of a conversation, or the one to a message.

        async with FollowedReply(conversation) as answer:
            ...  # answer.events, as far as it has come; answer.rest says whether it goes on
            async for event in answer.follow_on():
                ...

    The calls of sub-agents that wait for people are among the events and in `waiting`, with their addresses as their
    ids: the same id may be that of another call.

    Raises NotFound and Unreachable, as `Conversation.events` does.
    """

    def __init__(
        self,
        conversation: _AnsweringConversation,
        *,
        message_id: str | None = None,
        decides: bool = True,
        shown_addresses: Collection[str] = (),
    ) -> None:
        """`message_id`: the message that it answers; the latest one if None or not found. `decides`: whether the caller
        decides on approvals. If so, the answer is at rest while calls wait for them; if not, it waits until somebody
        else has decided. `shown_addresses`: the calls that the caller shows as open."""
        self._conversation = conversation
        self._shown = shown_addresses
        self._agents = self._followed_agents()
        self._message_id = None if message_id is None else known_id(message_id)
        self._decides = decides
        self._reader = EventReader()
        self._now = _Position("", 0)
        """How far it had gone when this was opened. `rest` is not set before that point: the
        conversation may have gone on since."""
        self._held = False
        """More had perhaps been said by then than that history has."""
        self._held_up: tuple[str, str] | None = None
        """Cause and cure, if an operator had paused it by then."""
        self._caught_up = False
        self._found = False
        """The message that it answers was read."""
        self._said = False
        """Any message was."""
        self._stop: Stop = "end"
        """Of the last reply."""
        self._told: AsyncGenerator[Event | None] | None = None
        self.events: list[Event] = []
        """The events of this answer from before it was opened."""
        self.rest: WhyAtRest | None = None
        """None while more comes by itself."""

    async def __aenter__(self) -> Self:
        await self._note_position()
        await self._catch_up(self._conversation._runs.follow(self._now.run_id))
        if not self._said:  # an earlier run began it: this one goes on with it
            await self._close()
            self._reader = EventReader()
            self._caught_up = False
            self.events = []
            self._agents = self._followed_agents()
            await self._catch_up(self._conversation._runs.follow_all())
        return self

    async def _note_position(self) -> None:
        described = await self._conversation._describe()
        self._now = _Position(described.run_id, described.history_length)
        self._held = holds_back(described)
        self._held_up = held_up(described)

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def follow_on(self) -> AsyncIterator[Event]:
        """The events from now on, until the answer is at rest."""
        assert self._told is not None
        while self.rest is None:
            event = await anext(self._told, _OVER)
            if event is _OVER:
                return
            if event is not None:
                yield event

    async def transcript(self) -> list[Message]:
        """The messages of the whole conversation, up to the last event that was read. Raises NotFound and
        ConversationError."""
        conversation = self._conversation
        return await read_transcript(conversation._temporal, conversation.id, self._reader.by_history.transcript)

    @property
    def waiting(self) -> tuple[WaitingCall, ...]:
        """The calls that wait for people, also if other things are still going on."""
        own = (pending.as_waiting() for pending in self._reader.by_history.state.pending.values())
        below = (call.model_copy(update={"call_id": call.address}) for call in self._agents.waiting_calls)
        return (*own, *below)

    def is_below(self, call_id: str) -> bool:
        """Whether it is a call of a sub-agent that is at work."""
        return self._agents.works_on(call_id)

    @property
    def untaken_messages(self) -> tuple[Message, ...]:
        """What was said and no turn has read yet, oldest first."""
        state = self._reader.by_history.state
        return tuple(state.inbox.everything)

    def result_of(self, call: ToolCall) -> ToolResult | None:
        """The result of a call that has ended, but that no turn has read yet; None if there is no such result. A call
        that was cut short has one: the model is told with its next turn. So has one that was denied, say, while others
        of its reply are open."""
        by_history = self._reader.by_history
        state = by_history.state
        transcript = by_history.transcript
        result = results_in(state.unseen.messages).get(call.call_id)
        if result is None:
            return settled_result(call, by_history)
        if result.content:
            return result
        if written := transcript.results_of([call.call_id]):
            return written[call.call_id]
        cause = state.cancelled
        if not cause and self.rest:
            cause = self.rest.cause
        cause = cause or "its answer has ended"
        return ToolResult.cut_short(call, cause, running=transcript.has_begun(call.call_id))

    # ------------------------------------------------------------ underneath

    async def _catch_up(self, source: AsyncIterator[tuple[str, steps.Step]]) -> None:
        self._told = self._tell_events(source)
        async for event in self._told:
            if event is not None:
                self.events.append(event)
            elif self._caught_up and self._has_message and self._agents.caught_up:
                return

    async def _tell_events(self, source: AsyncIterator[tuple[str, steps.Step]]) -> AsyncGenerator[Event | None]:
        """Yields each event, and None after each step, when `rest` is up to date."""
        temporal = self._conversation._temporal
        live = LiveActivities(temporal, self._conversation.id, lane=self._conversation._client.live)
        silence = MissingWorkerWatch(temporal, self._conversation.id)
        async with aclosing(interleave_events(source, live, silence, self._agents)) as steps_with_events:
            async for run_id, step, between in steps_with_events:
                for event in between:
                    yield _with_address(event) if event.path else event
                if step is None:
                    if self._agents.has_agents and self._caught_up and self.rest is None:
                        self.rest = self._why_at_rest(False)
                    yield None
                    continue
                final = final_reply(self._reader.by_history, step) is not None
                self._note_message(step)
                events = self._reader.read_step(step, run_id=run_id)
                if self._held and (run_id != self._now.run_id or step.id > self._now.step_id):
                    await self._note_position()
                    self._held = False
                self._caught_up |= run_id == self._now.run_id and step.id >= self._now.step_id and not self._held
                for event in events:
                    if isinstance(event, Replied):
                        self._stop = event.stop
                    yield event
                self.rest = self._why_at_rest(final) if self._caught_up else None
                yield None

    def _note_message(self, step: steps.Step) -> None:
        """An answer begins with the latest message, or with the message that was asked for."""
        match step:
            case steps.RunStarted(start=start) if start.message:
                message_id = start.message_id
            case steps.MessageSent(said=said):
                message_id = said.message_id
            case _:
                return
        self._said = True
        if self._found:
            return
        self._found = message_id is not None and known_id(message_id) == self._message_id
        self.events.clear()

    @property
    def _has_message(self) -> bool:
        """Whether the message is in the history. One that was just sent may reach it a moment later."""
        if self._message_id is None or self._found:
            return True
        by_history = self._reader.by_history
        return by_history.state.has_taken([self._message_id]) and not by_history.signals.has_message

    def _why_at_rest(self, final: bool) -> WhyAtRest | None:
        by_history = self._reader.by_history
        state = by_history.state
        if finished := by_history.finished:
            return None if finished.next_run_id else _why_ended(finished, self._stop, state.last_reply)
        is_taken = self._has_message and not by_history.signals.has_message
        is_answered = is_taken and (state.is_answered or final)
        if self._held_up and not is_answered:
            return WhyAtRest("stalled", cause=self._held_up[0])
        if not is_taken or not self._agents.caught_up:
            return None
        if is_answered:
            problem = state.last_reply.output_problem
            if problem:
                return WhyAtRest("unfit", cause=unfit_reason(problem), stop=self._stop)
            return WhyAtRest("answered", stop=self._stop)
        if state.stall:
            return WhyAtRest("stalled", cause=state.stall.cause)
        if state.cancelled and not (state.inbox.messages or state.answering):
            return WhyAtRest("cancelled", cause=state.cancelled)
        match self._agents.find_rest(by_history, decides=self._decides):
            case "waiting":
                return WhyAtRest("waiting", waiting=self.waiting)
            case "stalled":
                return WhyAtRest("stalled", cause=self._agents.stall)
            case "working":
                return None

    def _followed_agents(self) -> FollowedAgents:
        return FollowedAgents(self._conversation._open_conversation, self._conversation.id, shown_addresses=self._shown)

    async def _close(self) -> None:
        if self._told is not None:
            await self._told.aclose()


_OVER: Any = object()


def _with_address(event: Event) -> Event:
    """An event about a sub-agent's call, with its address in the place of its id."""
    match event:
        case ApprovalRequested(call=call) | AnswerRequested(call=call):
            address = address_of(event.path, call.call_id)
            return event.model_copy(update={"call": call.model_copy(update={"call_id": address})})
        case ToolFinished(result=result):
            address = address_of(event.path, result.call_id)
            return event.model_copy(update={"result": result.model_copy(update={"call_id": address})})
        case Decided(call_id=call_id):
            return event.model_copy(update={"call_id": address_of(event.path, call_id)})
        case _:
            return event


def _why_ended(finished: steps.RunClosed, stop: Stop, last_reply: LastReply) -> WhyAtRest:
    outcome = finished.outcome
    cause = finished.why
    if not cause and outcome:
        cause = outcome.reason or ""
    if outcome and outcome.status == "completed" and last_reply.final:
        return WhyAtRest("answered", outcome=outcome, stop=stop)
    if outcome and outcome.status == "failed" and last_reply.output_problem:
        return WhyAtRest("unfit", cause=cause, outcome=outcome, stop=stop)
    if outcome and outcome.status == "cancelled":
        return WhyAtRest("cancelled", cause=cause, outcome=outcome)
    return WhyAtRest("ended", cause=cause, outcome=outcome)
