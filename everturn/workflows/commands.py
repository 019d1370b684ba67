"""What people can do to a running conversation, and the state that this leaves it in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow

from everturn import names
from everturn.carryover import REMEMBERED_IDS, CarryOver, OpenReply
from everturn.cutting import cut, shortened
from everturn.logs import workflow_log
from everturn.payloads import Answer, Approve, Control, Deny, MessageIn, Start, State
from everturn.records import Decision, Message
from everturn.sizes import (
    MAX_INBOX_BYTES,
    MAX_INPUT_BYTES,
    MAX_NAME_CHARS,
    MAX_REASON_BYTES,
    fits,
    how_many_fit,
    known_id,
    size_of,
)
from everturn.workflows.approvals import LONGEST_SECONDS, MOST_REFUSED_EDITS, AppliedDecision, PendingApprovals, iso
from everturn.workflows.early_decisions import EarlyDecisions
from everturn.workflows.handlers import Handlers, Later
from everturn.workflows.history_budget import SMALL_BYTES, left_in_run, too_full_for


class Commands:
    """The inbox, the pending approvals, and the switches: paused, stalled, closing."""

    def __init__(self, start: Start, *, on_change: Callable[[], None]) -> None:
        carry = start.carry or CarryOver()
        self.inbox: list[Message] = list(carry.inbox)
        self.late: list[Message] = []
        """What was said since the conversation was closed."""
        self.approvals = PendingApprovals(on_change, carry.open or OpenReply())
        self.model = carry.model or start.model or ""
        """The model to ask instead of the agent's own; empty if nobody chose one."""
        self.stream = start.stream
        """Somebody follows the text as it is written."""
        self.idle = False
        self.turn: asyncio.Task[str | None] | None = None
        """The answer at hand, from a message to its final reply."""
        self.owed = carry.owed
        """The run before this one ended in the middle of an answer, which is not taken up yet."""
        self.turn_cancelled = ""
        """Why the last answer was cut short, in words; empty if it was not."""
        self.closing = False
        self.abandoned = False
        """It was closed while it was stalled or paused: what is unanswered stays so."""
        self.cause: str | None = None
        """Why the conversation is stalled; None while it is not."""
        self.cure: str | None = None
        self.paused = carry.paused
        self._message_ids = dict.fromkeys(map(known_id, carry.message_ids))
        self._on_change = on_change
        self._early = EarlyDecisions()
        if start.message:
            self.receive(start.as_message(), start.message_id)
        self.handlers = Handlers()
        self._accept_commands()

    def _accept_commands(self) -> None:
        accept = self.handlers.accept
        accept(names.MESSAGE, MessageIn, objection=self._message_objection, take=self._take_message, hold=self._keep)
        accept(names.APPROVE, Approve, objection=self._approve_objection, take=self._take_approval, hold=self._hold)
        accept(names.DENY, Deny, objection=self._objection, take=self._take_denial, hold=self._hold)
        accept(names.ANSWER, Answer, objection=self._objection, take=self._take_answer, hold=self._hold)
        accept(names.PAUSE, Control, objection=self._pause_objection, take=self._pause)
        accept(names.RESUME, Control, objection=self._resume_objection, take=self._resume, hold=self._hold_resume)
        accept(names.CANCEL_TURN, Control, objection=self._cancel_objection, take=self._cancel_turn)
        accept(names.CLOSE, Control, objection=lambda _: None, take=self._close)

    @property
    def state(self) -> State:
        if self.cause is not None:
            return "stalled"
        if self.paused:
            return "paused"
        if self.approvals.waiting:
            approvals = any(waiting.needs == "approval" for waiting in self.approvals.waiting.values())
            return "awaiting_approval" if approvals else "awaiting_answer"
        return "idle" if self.idle else "running"

    @property
    def may_move(self) -> bool:
        """Whether another run can go on with what is here."""
        return not self.closing and not self.handlers.lost

    def answering(self, turn: asyncio.Task[str | None]) -> None:
        """An answer begins. One that is owed may have been cancelled before it could be taken up."""
        self.turn, owed, self.owed = turn, self.owed, False
        if owed and self.turn_cancelled:
            turn.cancel()
        else:
            self.turn_cancelled = ""

    async def message_or_end(self, keep_open: float | None) -> None:
        """Waits until there is a message to answer, the conversation closes, or has idled for `keep_open` seconds."""
        await self._nothing_lost()
        if self.inbox or self.closing or keep_open is None:
            return
        self.idle = True
        self._on_change()
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: bool(self.inbox) or self.closing or bool(self.handlers.lost),
                timeout=timedelta(seconds=min(keep_open, LONGEST_SECONDS)),
            )
        self.idle = False
        if self.handlers.lost and not self.closing:
            await self.message_or_end(keep_open)

    async def _nothing_lost(self) -> None:
        """Waits for a person if a signal can't be read: it may have mattered, and only a person can send it again."""
        while (lost := self.handlers.lost) and not self.closing:
            self.handlers.lost = ""
            cure = "Set EVERTURN_STORAGE alike on all workers and clients, send it again if it matters, then resume."
            await self.stalled(lost, cure)

    async def stalled(self, cause: str, cure: str | None) -> None:
        """Waits until a person has seen to it and sends `resume`."""
        self.cause, self.cure = cause, cure
        self._on_change()
        self._early.release(names.RESUME, until=lambda: self.cause is None)
        await workflow.wait_condition(lambda: self.cause is None)

    async def unpaused(self) -> None:
        await self._nothing_lost()
        if self.paused:
            await workflow.wait_condition(lambda: not self.paused)

    # ------------------------------------------------------------ messages

    def receive(self, message: Message, message_id: str | None = None, *, late: bool = False) -> bool:
        """Puts a message into the inbox; False if one with this id came before. `late`: the conversation is closing,
        and the message is for the run that takes it up again."""
        if message_id is not None:
            if (known := known_id(message_id)) in self._message_ids:
                return False
            self._message_ids[known] = None
            if len(self._message_ids) > REMEMBERED_IDS:
                self._message_ids.pop(next(iter(self._message_ids)))
        (self.late if late else self.inbox).append(message)
        return True

    @property
    def message_ids(self) -> tuple[str, ...]:
        return tuple(self._message_ids)

    def take_messages(self) -> list[Message]:
        """As many as go into one model turn's payload, and at least one if there is any."""
        count = max(1, how_many_fit(self.inbox, MAX_INBOX_BYTES))
        taken, self.inbox = self.inbox[:count], self.inbox[count:]
        return taken

    def fit_inbox(self, room: int) -> bool:
        """Whether the inbox can be handed to another run. If this one is full, which many long messages by signal can
        make it, the latest of them are cut until it can: the model reads that they were."""
        if fits(self.inbox, room):
            return True
        if left_in_run():
            return False
        self.inbox = list(cut(self.inbox, room))
        if not fits(self.inbox, room):
            return False  # so many that even what is left of them has to be answered first
        workflow_log("inbox.cut", level="warning", messages=len(self.inbox), kept_bytes=room)
        return True

    def _message_objection(self, said: MessageIn) -> str | None:
        if self.closing:
            return "The conversation is closing and takes no more messages; start another."
        size = size_of(said)
        return self._problem_with(said, size) or too_full_for(size) or None

    def _problem_with(self, said: MessageIn, size: int) -> str | None:
        if size > MAX_INPUT_BYTES:
            return f"The message has {size:,} bytes of JSON; the limit is {MAX_INPUT_BYTES:,}. Send a link instead."
        return None if said.text or said.parts else "A message needs text or parts."

    def _keep(self, said: MessageIn, _: Later) -> bool:
        """A message by signal that comes while the conversation closes: nobody can be told that it is refused."""
        message = said.as_message()
        if not self.closing or self._problem_with(said, size_of(said)):
            return False
        if not fits([*self.inbox, *self.late, message], MAX_INBOX_BYTES):
            return False
        self.receive(message, said.message_id, late=True)
        return True

    def _take_message(self, said: MessageIn) -> dict[str, Any]:
        self.stream = self.stream if said.stream is None else said.stream
        return {"taken": self.receive(said.as_message(), said.message_id)}

    # ------------------------------------------------------------ decisions

    def _approve_objection(self, approval: Approve) -> str | None:
        if approval.call_id == names.EVERY_CALL and approval.arguments is not None:
            return "Edited arguments go with one call: name its call_id."
        if approval.call_id == names.EVERY_CALL and approval.expected is not None:
            return "Expected arguments go with one call: name its call_id."
        if approval.arguments is not None and self.approvals.refused_edits >= MOST_REFUSED_EDITS:
            return (
                f"{self.approvals.refused_edits} edits did not fit in this turn, and no more are tried: approve "
                "the call as it is, deny it, or answer it."
            )
        # They go into the tool's payload twice, and beside the model's own into the policy's.
        if (size := size_of(approval)) > MAX_INPUT_BYTES:
            return f"It has {size:,} bytes of JSON; the limit is {MAX_INPUT_BYTES:,}."
        calls = len(self.approvals.undecided) if approval.call_id == names.EVERY_CALL else 1
        if size * calls > max(MAX_INPUT_BYTES, SMALL_BYTES * calls):  # it goes along with each of them
            return (
                f"It has {size:,} bytes of JSON, and goes along with each of {calls} calls; the limit is "
                f"{max(MAX_INPUT_BYTES // calls, SMALL_BYTES):,} then. Approve with less, or each call by itself."
            )
        if approval.arguments is not None and (full := too_full_for(3 * size)):  # the tool's input has them twice
            return full
        return self.approvals.objection(approval.call_id, approving=True, expected=approval.expected)

    def _objection(self, decision: Deny | Answer) -> str | None:
        if (size := size_of(decision)) > MAX_INPUT_BYTES:
            return f"It has {size:,} bytes of JSON; the limit is {MAX_INPUT_BYTES:,}."
        return too_full_for(size) or self.approvals.objection(decision.call_id)

    def _take_approval(self, approval: Approve) -> dict[str, Any]:
        decision = Decision(
            verdict="approve", by=approval.by, at=now(), note=approval.note, arguments=approval.arguments
        )
        return self._decide(approval.call_id, AppliedDecision(decision))

    def _take_denial(self, denial: Deny) -> dict[str, Any]:
        return self._decide(
            denial.call_id, AppliedDecision(Decision(verdict="deny", by=denial.by, at=now(), note=denial.reason))
        )

    def _take_answer(self, answer: Answer) -> dict[str, Any]:
        decision = Decision(verdict="answer", by=answer.by, at=now())
        return self._decide(answer.call_id, AppliedDecision(decision, answer.as_parts(), answer.is_error))

    def _hold(self, decision: Approve | Deny | Answer, later: Later) -> bool:
        return not self.idle and self.approvals.hold(decision.call_id, later)

    def _decide(self, call_id: str, taken: AppliedDecision) -> dict[str, Any]:
        return {"call_ids": self.approvals.decide(call_id, taken)}

    # ------------------------------------------------------------ switches

    def _pause_objection(self, _: Control) -> str | None:
        return "The conversation is paused already." if self.paused else None

    def _pause(self, _: Control) -> dict[str, Any]:
        self.paused = True
        self._on_change()
        return {"state": self.state}

    def _resume_objection(self, control: Control) -> str | None:
        if control.model and (":" not in control.model or len(control.model) > MAX_NAME_CHARS):
            return f"There is no model {control.model[:100]!r}. Write provider:name, as in openai:gpt-5.5."
        if self.cause is None and not self.paused:
            return "There is nothing to resume: the conversation is neither stalled nor paused."
        return None

    def _hold_resume(self, _: Control, later: Later) -> bool:
        return not (self.idle or self.approvals.waiting) and self._early.keep(names.RESUME, later, waits=False)

    def _resume(self, control: Control) -> dict[str, Any]:
        self.paused, self.cause, self.cure = False, None, None
        self.model = control.model or self.model
        self._on_change()
        return {"state": self.state}

    def _cancel_objection(self, _: Control) -> str | None:
        return None if self.owed or (self.turn and not self.turn.done()) else "No turn runs now."

    def _cancel_turn(self, control: Control) -> dict[str, Any]:
        by, reason = _cut(control.by), _cut(control.reason or "")
        self.turn_cancelled = f"the turn was cancelled{by and f' by {by}'}{reason and f' ({reason})'}"
        self.paused, self.cause, self.cure = False, None, None
        if self.turn:
            self.turn.cancel()
        return {"state": self.state}

    def _close(self, control: Control) -> dict[str, Any]:
        self.closing = True
        self.abandoned |= self.paused or self.cause is not None
        self.paused, self.cause = False, None
        closing = Decision(verdict="deny", by=_cut(control.by), at=now(), note="The conversation was closed.")
        self.approvals.close(closing)
        return {"state": self.state}


def _cut(told: str) -> str:
    return shortened(told, max_bytes=MAX_REASON_BYTES)


def now() -> str:
    return iso(workflow.now())
