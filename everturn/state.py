"""What a conversation has come to, as one value: the fold over the steps of its history.

A reply is read off it, a fork is the fold up to the end of a turn, and a revival is the fold to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn import names
from everturn.carryover import (
    REMEMBERED_IDS,
    CarryOver,
    InRun,
    Packed,
    View,
    WorkerFacts,
)
from everturn.cutting import cut, shortened
from everturn.history import steps
from everturn.history.transcript import Transcript, user_messages
from everturn.packing import pack
from everturn.payloads import Control, ModelReply, Start
from everturn.records import Message, Usage, cost_with, results_in
from everturn.sizes import (
    MAX_INBOX_BYTES,
    MAX_INPUT_BYTES,
    MAX_LAST_TEXT_BYTES,
    MAX_PACKED_AT_START_BYTES,
    MAX_UNSEEN_BYTES,
    known_id,
    size_of,
)


class State:
    """Give it every step of a run, from the first on; then those of the run that continues it."""

    def __init__(self, *, run_id: str = "") -> None:
        self.run_id = run_id
        self.start = Start.model_construct(agent="")
        """What its run was started with."""
        self.transcript = Transcript()
        self.message_ids: dict[str, None] = {}
        self.ids_forgotten = False
        """More messages came before this run than it remembers the ids of."""
        self.said: list[Message] = []
        """What people said; the last of it, the model may not have been asked with yet."""
        self.turn = 0
        self.position = 0
        """The length of the prefix: what the model has seen, or said."""
        self.digest = ""
        self.tool_calls = 0
        self.usage = Usage()
        self.cost_usd: float | None = 0.0
        self.last_text = ""
        """What the model said last."""
        self.view: View | None = None
        self.summary_due = False
        self.model = ""
        """The one that was chosen in place of the agent's own, by a person or as a fallback."""
        self.facts: WorkerFacts | None = None
        """What a worker last said about itself, with the agent's limits."""
        self.reply: ModelReply | None = None
        """Of the turn at hand; None while it is awaited."""
        self.stall: steps.TurnFailed | steps.ToolRunFailed | None = None
        self.stall_is_known = False
        """The conversation has taken the failure in: until then it would refuse a `resume`."""
        self.cancelled = False
        """The turn at hand was cancelled, and nothing that was said since or before waits for an answer."""
        self.finished: steps.RunClosed | None = None
        self._turn_model = ""
        """The first that the turn at hand was asked of: after a stall the line of fallbacks begins anew."""
        self._rests = False
        """It began from a conversation that had its final reply, and no turn has begun since."""
        self._received = 0
        self._taken = 0
        """Of the messages that were received, those that the answer at hand began with."""
        self._at_work = False
        """When the conversation was last looked after, there was something to answer."""
        self._paused = False
        self._closing = False

    # ------------------------------------------------------------ the fold

    def take(self, step: steps.Step) -> None:
        self.transcript.take(step)
        match step:
            case steps.RunStarted(start=start):
                self._begin(start)
            case steps.WorkflowTaskCompleted():
                self._look_after()
            case steps.MessageSent(said=said) if not self._closing and size_of(said) <= MAX_INPUT_BYTES:
                self._receive(said.as_message(), said.message_id)
            case steps.CommandSent(name=name, payload=payload) if (control := _control(payload)) is not None:
                self._steer(name, control)
            case steps.TurnScheduled(request=request):
                if request.turn != self.turn:
                    self._turn_model = request.model or ""
                self.turn, self.model = request.turn, request.model or ""
                self.stall, self.reply, self.cancelled, self._rests = None, None, False, False
            case steps.TurnCompleted():
                self._take_reply(step)
            case steps.TurnFailed(fallback="", passing=False):
                self.stall, self.stall_is_known, self.model = step, False, self._turn_model
            case steps.ToolRunFailed(stalled=True):
                self.stall = step
            case steps.TurnFailed(fallback=str(fallback)) if fallback:
                self.model = fallback
            case steps.PrefixExtended(request=request):
                self.position, self.digest = request.position + len(request.delta), ""
            case steps.ToolCompleted(outcome=outcome) if outcome is not None:
                self._spend(outcome.usage, outcome.cost_usd)
            case steps.RunClosed():
                self.finished = step

    def _begin(self, start: Start) -> None:
        carry = start.carry or CarryOver()
        self.start = start
        self.said = [*carry.unseen, *carry.inbox]
        self._received = user_messages(self.said)
        self.message_ids = dict.fromkeys(map(known_id, carry.message_ids))
        self.ids_forgotten = len(carry.message_ids) >= REMEMBERED_IDS
        self.turn, self.position, self.digest = carry.turn, carry.length, carry.digest
        self.tool_calls, self.usage, self.cost_usd = carry.tool_calls, carry.usage, carry.cost_usd
        self.last_text, self.view, self.summary_due = carry.last_text, carry.view, carry.summary_due
        self.model, self.facts = carry.model or start.model or "", carry.facts
        self.reply, self.stall, self.cancelled, self.finished = None, None, False, None
        self._at_work, self._paused, self._closing = carry.owed, carry.paused, False
        # What came in while calls waited is answered next.
        self._taken = self._received - (user_messages(carry.inbox) if carry.open else 0)
        self._rests = carry.origin is not None and not carry.owed
        if start.message:
            self._receive(Message.user(start.message), start.message_id)

    def _receive(self, message: Message, message_id: str | None) -> None:
        known = None if message_id is None else known_id(message_id)
        if known is None or known not in self.message_ids:
            self.said.append(message)
            self._received += 1
            self.cancelled = False
        if known is not None:
            self.message_ids[known] = None

    def _look_after(self) -> None:
        self.stall_is_known = self.stall is not None
        at_work = not (self.answered or self.cancelled)
        if at_work and not self._at_work:
            self._taken = self._received
        self._at_work = at_work

    def _steer(self, name: str, control: Control) -> None:
        match name:
            case names.PAUSE:
                self._paused = True
            case names.RESUME:
                self.stall, self._paused = None, False
                self.model = control.model or self.model
            case names.CANCEL_TURN if self._at_work and not self.answered:
                # What came in while the answer was on its way is answered next. While the conversation is paused, the
                # history does not show what the answer had taken in: it says that it is cancelled.
                self.cancelled = self._paused or self._received <= max(self._asked, self._taken)
                self.stall, self._paused, self._at_work = None, False, False
            case names.CLOSE:
                self._closing = True
            case _:
                pass

    def _take_reply(self, step: steps.TurnCompleted) -> None:
        request, reply = step.request, step.reply
        self.facts = reply.facts or self.facts
        if request.summarise and not reply.message.parts:
            self.summary_due = False
            return
        self.position = request.position + len(request.delta) + 1
        self.digest, self.view = reply.digest, reply.view or request.view
        self.summary_due = reply.summary_due and not request.summarise
        self._spend(reply.usage, reply.cost_usd)
        if not request.summarise:
            self.reply, self.last_text = reply, reply.message.text
            self.tool_calls += len(reply.message.tool_calls)

    def _spend(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage, self.cost_usd = self.usage + usage, cost_with(self.cost_usd, cost_usd)

    # ------------------------------------------------------------ read off it

    @property
    def answered(self) -> bool:
        """All that was said is answered by a final reply."""
        final = self.reply.final if self.reply else self._rests
        return final and self._asked >= self._received

    @property
    def unasked(self) -> tuple[Message, ...]:
        """What people said and the model has not been asked with."""
        waiting = self._received - self._asked
        people = [message for message in self.said if message.role == "user" and not message.author]
        return tuple(people[-waiting:]) if waiting > 0 else ()

    @property
    def _asked(self) -> int:
        """How many of the messages that people sent to this run the model has been asked with."""
        return user_messages(self.transcript.messages)


def carry_over(state: State, transcript: Sequence[Message], *, origin: InRun) -> CarryOver:
    """What a conversation begins with that goes on from here: a fork, or the next life of one that is over.

    `transcript`: all of it, that of earlier runs too. `origin`: the run that it goes on from.
    """
    length, digest, unseen = state.position, state.digest, tuple(transcript[state.position :])
    if size_of(unseen) + size_of(tuple(results_in(unseen))) > MAX_UNSEEN_BYTES:
        length, digest, unseen = len(transcript), "", ()
    packed = pack(transcript[:length])
    fits = len(packed) <= MAX_PACKED_AT_START_BYTES
    return CarryOver(
        earlier=Packed(data=packed) if fits else origin,
        # Temporal deletes that run's history some day: its messages are copied into the new one's at once.
        keep_by=None if fits else 0.0,
        origin=origin,
        length=length,
        digest=digest,
        unseen=unseen,
        told=tuple(results_in(unseen)),
        inbox=cut(state.unasked, MAX_INBOX_BYTES),
        message_ids=tuple(state.message_ids)[-REMEMBERED_IDS:],
        turn=state.turn,
        tool_calls=state.tool_calls,
        usage=state.usage,
        cost_usd=state.cost_usd,
        last_text=shortened(state.last_text, max_bytes=MAX_LAST_TEXT_BYTES),
        facts=state.facts,
        model=state.model,
        view=state.view,
        summary_due=state.summary_due,
    )


def _control(payload: dict[str, Any]) -> Control | None:
    """None for a signal that is no Control: the conversation ignored it."""
    try:
        return Control.model_validate(payload)
    except ValueError:
        return None
