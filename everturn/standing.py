"""Where a conversation stands, from its history alone: what was asked, what is answered, what holds it up."""

from __future__ import annotations

from typing import Any

from everturn import names, steps
from everturn.bounds import MAX_INPUT_CHARS
from everturn.carryover import CarryOver, WorkerFacts
from everturn.payloads import Control, ModelReply, Start
from everturn.transcript import Transcript, user_messages


class Standing:
    """A fold over steps, from run to run. What came in is counted against what the model has seen."""

    def __init__(self, *, run_id: str = "") -> None:
        self.run_id = run_id
        self.start = Start.model_construct(agent="")
        """What its run was started with."""
        self.transcript = Transcript()
        self.message_ids: dict[str, None] = {}
        self.reply: ModelReply | None = None
        """Of the turn at hand; None while it is awaited."""
        self.turn = 0
        self.facts: WorkerFacts | None = None
        """What a worker said last of itself: the agent's limits stand there."""
        self.stall: steps.TurnFailed | None = None
        self.cancelled = False
        """The turn at hand was cancelled, and nothing was said since."""
        self.finished: steps.Finished | None = None
        self._forked: CarryOver | None = None
        """What a conversation began with that was forked behind a final reply, until its first turn."""
        self._received = 0
        self._at_work = False
        """When the conversation was last looked after, there was something to answer."""
        self._closing = False

    def take(self, step: steps.Step) -> None:
        self.transcript.take(step)
        match step:
            case steps.Started(start=start):
                self.start, carry = start, start.carry or CarryOver()
                self._received = user_messages((*carry.unseen, *carry.inbox))
                self.message_ids = dict.fromkeys(carry.message_ids)
                self.reply, self.turn, self.finished = None, carry.turn, None
                self.facts = carry.facts
                self._at_work, self._closing = carry.owed, False
                self._forked = carry if carry.origin and not carry.owed else None
                if start.message:
                    self._receive(start.message_id)
            case steps.TakenIn():
                self._at_work = not (self.answered or self.cancelled)
            case steps.Said(said=said) if not self._closing and len(said.model_dump_json()) <= MAX_INPUT_CHARS:
                self._receive(said.message_id)
            case steps.Commanded(payload=payload) if not _valid(payload):
                pass  # it was refused
            case steps.Commanded(name=names.RESUME):
                self.stall = None
            case steps.Commanded(name=names.CANCEL_TURN) if self._at_work and not self.answered:
                self.cancelled, self._received = True, user_messages(self.transcript.messages)
            case steps.Commanded(name=names.CLOSE):
                self._closing = True
            case steps.TurnStarted(request=request):
                self.turn, self.stall, self.reply, self.cancelled = request.turn, None, None, False
                self._forked = None
            case steps.TurnFinished(request=request, reply=reply) if not request.summarise:
                self.reply, self.facts = reply, reply.facts or self.facts
            case steps.TurnFailed(fallback="", passing=False):
                self.stall = step
            case steps.Finished():
                self.finished = step

    @property
    def answered(self) -> bool:
        """All that was said is answered by a final reply."""
        seen = user_messages(self.transcript.messages)
        final = self.reply.final if self.reply else self._forked is not None
        return final and seen >= self._received

    @property
    def text(self) -> str:
        """What the model said last."""
        return self._forked.last_text if self._forked else self.transcript.messages[-1].text

    def _receive(self, message_id: str | None) -> None:
        if message_id is None or message_id not in self.message_ids:
            self._received += 1
            self.cancelled = False
        if message_id is not None:
            self.message_ids[message_id] = None


def _valid(payload: dict[str, Any]) -> bool:
    """A signal that is no Control was passed over."""
    try:
        Control.model_validate(payload)
    except ValueError:
        return False
    return True
