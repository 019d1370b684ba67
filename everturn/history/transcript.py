"""The transcript: by definition, the fold over the model turns of a conversation's history."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.calls.result_checks import check_of_event
from everturn.carryover import CarryOver, Earlier, OpenReply, StoredInRun
from everturn.errors import ConversationError, NotFound
from everturn.heartbeats.details import SeenReply, longer_reply
from everturn.history.reader import read_steps
from everturn.history.steps import (
    ActivityEnded,
    CommandSent,
    PrefixExtended,
    RunClosed,
    RunStarted,
    Step,
    ToolCompleted,
    ToolScheduled,
    TranscriptKept,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnScheduled,
)
from everturn.packed_messages import unpack
from everturn.payloads import Control, ModelRequest
from everturn.plans import PlannedCall
from everturn.records import Message, ToolCall, ToolResult, results_in
from everturn.temporal.temporal_errors import not_found
from everturn.validation.explaining import explain


class Transcript:
    """The fold: each turn puts its delta at its position, and its reply after the delta. So a turn that is asked again
    replaces the earlier one; a summary is put before what no model has seen. Holds the messages of one run;
    `read_transcript` also has those of earlier runs."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.base = 0
        """How many messages came before this run's."""
        self.earlier: Earlier | None = None
        """Where those messages are."""
        self._seen = 0
        """How many messages the model has seen or said, counted through all runs."""
        self._results: dict[str, ToolResult] = {}
        self._plans: dict[str, PlannedCall] = {}
        """Of the calls of the last reply."""
        self._open: tuple[ToolCall, ...] = ()
        """The calls of the last reply, until the message with their results follows it."""
        self._asked: ModelRequest | None = None
        """The request of the turn that runs, or that failed."""
        self._cut: SeenReply | None = None
        """What is known of its reply, since somebody cancelled it."""
        self._runs = False
        """That turn runs."""
        self._begun: set[str] = set()
        """The calls among them that may have taken effect."""

    def take_step(self, step: Step) -> None:
        match step:
            case RunStarted(start=start):
                carry = start.carry or CarryOver()
                self.messages = list(carry.unseen)
                self.base = carry.length
                self.earlier = carry.earlier
                self._seen = carry.length
                open_reply = carry.open or OpenReply()
                self._results = results_in(carry.unseen) | {result.call_id: result for result in open_reply.results}
                self._plans = {call_id: plan for call_id, (_, plan) in open_reply.planned.items()}
                self._open = open_reply.calls
                self._begun = {question.call_id for question in open_reply.waits if question.doubtful}
            case TranscriptKept():
                self.earlier = step.messages
            case ToolScheduled(request=call):
                self._begun.add(call.call_id)
            case ToolCompleted() | ActivityEnded() if step.request.result is None and check_of_event(
                self._plans.get(step.result.call_id)
            ):
                pass  # it is a result once hooks have seen it
            case ToolCompleted() | ActivityEnded():
                self._results[step.result.call_id] = step.result
            case TurnScheduled(request=request):
                self._asked = self._cut = None
                self._runs = True
                if not request.summarise:  # what no model has seen waits behind the summary
                    self._put_messages(request.position, filled_delta(request, self._results))
                    self._asked = request
            case TurnFailed():
                self._runs = False
            case TurnCancelled():
                self._take_seen(step.said)
                self._asked = None
            case CommandSent(name=names.CANCEL_TURN):
                self._take_seen(Control.model_validate(step.payload).seen)
                if not self._runs:
                    self._asked = None
            case PrefixExtended():
                self._put_messages(step.request.position, filled_delta(step.request, self._results))
                self._seen = self.base + len(self.messages)
            case TurnCompleted() if step.reply.message.cut_short and not step.reply.message.parts:
                self._asked = None  # it has only counted
            case TurnCompleted(request=request) if request.summarise:
                self._asked = None
                if step.reply.message.parts:
                    self._insert_summary(request.position, step.reply.message)
            case TurnCompleted(request=request):
                self._put_messages(request.position + len(request.delta), [step.reply.message])
                self._seen = self.base + len(self.messages)
                self._open = step.reply.message.tool_calls
                self._asked = None
                self._plans = {plan.call_id: plan for plan in step.reply.plan}
            case RunClosed(outcome=None, next_run_id="") if self._open:
                # It was terminated, say: nobody wrote down what its last calls brought.
                known = self.results_of([call.call_id for call in self._open])
                parts = tuple(
                    known.get(call.call_id) or ToolResult.cut_short(call, step.why, running=call.call_id in self._begun)
                    for call in self._open
                )
                self._put_messages(self._seen, [Message(role="tool", parts=parts)])
            case RunClosed() if step.outcome:
                # A result that is in its tool's own event is not written into the outcome again.
                bare = [result.call_id for result in results_in(step.outcome.tail).values() if not result.content]
                # All that the model has not seen: some may be here already, by the run's start or by a turn cut short.
                self._put_messages(
                    self._seen, _fill_messages(step.outcome.tail, tuple(self.results_of(bare)), self._results)
                )

    def _take_seen(self, seen: SeenReply | None) -> None:
        """Takes what was seen of a reply that was cut short. If more of it comes after all, that replaces it."""
        request = self._asked
        if request and seen and seen.turn == request.turn:
            self._cut = cut = longer_reply(self._cut, seen) or seen
            self._put_messages(
                request.position + len(request.delta), [cut.as_message(request.agent if request.signed else "")]
            )

    def _put_messages(self, position: int, messages: list[Message]) -> None:
        self.messages[position - self.base :] = messages
        self._open = ()

    def _insert_summary(self, position: int, summary: Message) -> None:
        """It comes after what the model has seen, and before what it has not: the last reply's calls stay open."""
        self.messages.insert(position - self.base, summary)
        self._seen = position + 1

    def put_unseen(self, position: int, messages: Sequence[Message]) -> None:
        """Puts what the model has not seen behind what it has, with the results that are known."""
        still_open = self._open
        bare = [call_id for call_id, result in results_in(messages).items() if not result.content]
        self._put_messages(position, _fill_messages(messages, tuple(self.results_of(bare)), self._results))
        if not results_in(messages):
            self._open = still_open

    def forget(self) -> None:
        """Forgets the messages, as if they were an earlier run's. Call it when nobody will ask for them again."""
        self.base += len(self.messages)
        self.messages = []
        self._results = {}

    def has_begun(self, call_id: str) -> bool:
        """Whether the call's activity was scheduled, so that it may have taken effect."""
        return call_id in self._begun

    def results_of(self, call_ids: Sequence[str]) -> dict[str, ToolResult]:
        """The results of these calls, as far as they are known."""
        return {call_id: self._results[call_id] for call_id in call_ids if call_id in self._results}


def filled_delta(request: ModelRequest, results: dict[str, ToolResult]) -> list[Message]:
    """The delta of a request, with the results that it only names put in."""
    return _fill_messages(request.delta, request.named, results)


def _fill_messages(messages: Sequence[Message], named: Sequence[str], results: dict[str, ToolResult]) -> list[Message]:
    if not named:
        return list(messages)
    return [
        message.model_copy(
            update={
                "parts": tuple(
                    results[part.call_id] if isinstance(part, ToolResult) and part.call_id in named else part
                    for part in message.parts
                )
            }
        )
        for message in messages
    ]


async def read_transcript(client: Client, conversation_id: str, transcript: Transcript) -> list[Message]:
    """The messages of a run, after those of the runs before it. Raises NotFound if one of those runs is gone, and
    ConversationError if the record of their messages can't be read."""
    return [*await read_earlier(client, conversation_id, transcript), *transcript.messages]


async def read_earlier(client: Client, conversation_id: str, transcript: Transcript) -> list[Message]:
    """The messages of the runs before this one. Raises NotFound and ConversationError."""
    parts: list[list[Message]] = []
    while isinstance(earlier_run := transcript.earlier, StoredInRun):
        length = transcript.base
        conversation_id = earlier_run.conversation_id or conversation_id
        transcript = Transcript()
        try:
            async for step in read_steps(client, conversation_id, run_id=earlier_run.run_id):
                transcript.take_step(step)
        except RPCError as error:
            if not not_found(error):
                raise
            raise NotFound(
                f"The history of conversation {conversation_id!r} is deleted up to run "
                f"{earlier_run.run_id}: the namespace's retention is over."
            ) from None
        parts.append(transcript.messages[: length - transcript.base])
    if earlier_run:
        try:
            parts.append(list(unpack(earlier_run.data)))
        except ValueError as error:
            raise ConversationError(
                f"The earlier messages of conversation {conversation_id!r} can't be read: {explain(error)}.",
                cure="If a newer version of the code wrote them, use that version.",
            ) from None
    return [message for part in reversed(parts) for message in part]


def user_messages(messages: Sequence[Message]) -> int:
    """How many of these messages people sent."""
    return sum(message.role == "user" and not message.author for message in messages)


def unwritten_result(call: ToolCall) -> ToolResult:
    """A result that no event holds yet: of a call that did not run."""
    return ToolResult(call_id=call.call_id, name=call.name, content=())
