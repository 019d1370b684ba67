"""Makes a conversation's events from the steps of its history."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from everturn import names
from everturn.batching.records import BatchNotice, BatchTurn
from everturn.calls.decision_records import Answer, Approve, Deny, InheritPolicy, SetPolicy
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import OpenReply, QuestionToPerson, TakenIds
from everturn.errors import ConversationError
from everturn.events import (
    CURSOR,
    RESET,
    AnswerRequested,
    ApprovalReminder,
    ApprovalRequested,
    Compacted,
    Decided,
    Done,
    Event,
    FellBack,
    HandedOff,
    HookActed,
    MessageReceived,
    Replied,
    Stalled,
    Switched,
    ToolCalled,
    ToolFinished,
    ToolLost,
    ToolStarted,
    TurnBatched,
    TurnStarted,
    WorkerAwaited,
)
from everturn.history import steps
from everturn.history.decoding import COMMANDS
from everturn.history.state_by_history import StateByHistory
from everturn.payloads import Control, ModelReply, ModelRequest
from everturn.plans import AwaitAnswer, RefuseCall
from everturn.records import HookAction, Message, Outcome, results_in


class EventReader:
    """Makes events of steps. Give it every step of a conversation, from the first of the run that `since` names on.

    A cursor is `run/step.n`: the n-th event of that step; without n, the last one. Raises ConversationError for what is
    no cursor."""

    def __init__(self, since: str | None = None) -> None:
        match = CURSOR.fullmatch(since) if since else None
        if since and not match:
            raise ConversationError(f"{since!r} is not a cursor.", cure="Use the `cursor` of an event, unchanged.")
        self.run_id = ""
        """The run to begin at; empty for the first run."""
        self._seen = (0, 0)
        if match:
            self.run_id = match["run"]
            self._seen = (int(match["step"]), int(match["n"] or sys.maxsize))
        self._open: dict[str, int] = {}
        """The calls whose results no event has told yet, with their turns."""
        self.by_history = StateByHistory()
        """From the steps read so far."""
        self._agent = ""
        """The agent in charge, as far as events have told."""
        self._asked: dict[str, QuestionToPerson] = {}
        """What people are asked, as far as events have told, by call_id."""
        self._follows = self._seen[0] > 0
        """Whether an earlier run was read, here or by whoever resumes at a cursor."""
        self._followed: set[int] = set()
        """The decisions, commands and stalls of this run that events have told, by their steps: what an update in the
        same workflow task takes back is taken in once more."""
        self._message_ids = TakenIds(())
        """Ids of the messages. The same message may be sent again, and counts once."""
        self._alike = 0
        """After a reset: how many events of this run were already in the run before, and are told."""

    def read_step(self, step: steps.Step, *, run_id: str) -> list[Event]:
        """The events of a step, after `since`: none, one, or a reply and its calls."""
        if type(step) is steps.Step:
            return []  # more than half of them
        events = self._events_of_step(step)
        if isinstance(step, steps.RunClosed):
            self._alike = step.alike
        elif step.id <= self._alike:
            return []
        if not events:
            return []
        seen = self._seen if run_id == self.run_id else (0, 0)
        new_events = [(n, event) for n, event in enumerate(events) if (step.id, n) > seen]
        return [event.model_copy(update={"cursor": f"{run_id}/{step.id}.{n}"}) for n, event in new_events]

    def _events_of_step(self, step: steps.Step) -> list[Event]:
        time = step.at.isoformat(timespec="milliseconds")
        self.by_history.take_step(step)
        pending = self.by_history.state.pending
        self._asked = {call_id: question for call_id, question in self._asked.items() if call_id in pending}
        ruled = self._by_policy(time)
        followed = self._taken_in(time)
        untold_events = [*ruled, *self._handed_off(step, time), *self._results_without_activity(step, time)]
        match step:
            case steps.RunStarted(start=start):
                self._followed.clear()
                message_ids = [*self._message_ids] if self._alike else []  # a reset takes them once more
                if start.carry:
                    message_ids += start.carry.message_ids
                self._message_ids = TakenIds(message_ids)
                self._message_ids.take_id(start.message_id)
                self._open |= dict.fromkeys(pending, self.by_history.state.turn)
                if self._follows:  # whoever has read the run before knows what waits
                    self._asked = {call_id: waiting.asked for call_id, waiting in pending.items()}
                self._follows = True
            case steps.RunClosed(alike=alike) if alike:
                # The calls that were open there are in the next run again, if they were not undone.
                self._open = {}
                self._asked = {}
            case steps.MessageSent() if not self._is_new(step):
                return [*untold_events, *followed]
            case steps.TurnCompleted(request=request, reply=reply):
                self._open |= dict.fromkeys((call.call_id for call in reply.message.tool_calls), request.turn)
            case steps.BatchTold(notice=BatchNotice(state="sent", batch_id=batch_id, sent_at=sent_at)):
                batched = TurnBatched(turn=self.by_history.state.turn, batch_id=batch_id, sent_at=sent_at, at=time)
                return [*untold_events, *followed, batched]
            case steps.BatchTold(notice=BatchNotice(state="awaited", cause=cause, cure=cure)):
                awaited = WorkerAwaited(turn=self.by_history.state.turn, cause=cause, cure=cure, at=time)
                return [*untold_events, *followed, awaited]
            case steps.WorkflowTaskCompleted():
                return [*followed, *untold_events, *self._new_questions(time)]
            case (
                steps.ToolRunFailed(local=True)
                | steps.CommandSent(name=names.SET_POLICY | names.INHERIT_POLICY | names.APPROVE, accepted=True)
            ) if not _is_on_every_call(step):
                # The conversation knows of it, and asks already.
                return [*untold_events, *followed, *_step_events(step, time), *self._new_questions(time)]
            case steps.CommandSent(name=names.RESUME, accepted=True) if stall := self.by_history.state.stall:
                # It ended a pause before the same workflow task brought the failure: it is not about this stall.
                turn = self.by_history.state.turn
                return [
                    *untold_events,
                    *followed,
                    Stalled(turn=turn, cause=stall.cause, cure=stall.cure or "", at=time),
                ]
            case steps.CommandSent(name=name, accepted=True) if _is_on_every_call(step):
                self._ask_again(name)
                return [*untold_events, *followed, *self._new_questions(time)]
            case steps.ToolScheduled(request=call) if call.result is not None:
                return [*untold_events, *followed]  # hooks begin to see it
            case steps.ToolCompleted() | steps.ActivityEnded() if self.by_history.hooks_see(step):
                return [*untold_events, *followed]  # it is told as hooks leave it
        return [*untold_events, *followed, *_step_events(step, time)]

    def _is_new(self, sent: steps.MessageSent) -> bool:
        """Whether a message counts: not one that is refused, and not the same one again."""
        refused = not sent.accepted and self.by_history.signals.is_refused(sent, self.by_history.state)
        return not refused and self._message_ids.take_id(sent.said.message_id)

    def _handed_off(self, step: steps.Step, time: str) -> list[Event]:
        """The event that another agent is in charge. At the start of a run, its turns say which agent that is."""
        state = self.by_history.state
        before = self._agent
        self._agent = state.agent
        if isinstance(step, steps.RunStarted) or not before or state.agent == before:
            return []
        return [HandedOff(turn=state.turn, agent=state.agent, by=before, at=time)]

    def _by_policy(self, time: str) -> list[Event]:
        """The calls that the conversation's policy, or the agent's reviewer, has decided on in place of a person."""
        return [
            Decided(
                call_id=call_id,
                verdict=decision.verdict,
                by=decision.by,
                note=decision.note,
                by_policy=decision.by_policy,
                by_model=decision.by_model,
                at=time,
            )
            for call_id, decision in self.by_history.decisions.take_ruled()
        ]

    def _taken_in(self, time: str) -> list[Event]:
        """What people have decided and commanded, once the conversation follows it (a signal may be passed over), and
        what it has stalled over: in the order in which it took these in."""
        new_steps = [step for step in self.by_history.take_followed() if step.id not in self._followed]
        self._followed |= {step.id for step in new_steps}
        return [self._followed_event(step, time) for step in new_steps]

    def _followed_event(self, step: steps.CommandSent | steps.Stalling, time: str) -> Event:
        match step:
            case steps.CommandSent(name=name, payload=payload):
                return _command_event(name, payload, time)
            case steps.InputUnreadable(cause=cause, cure=cure):
                return Stalled(turn=self.by_history.state.turn, cause=cause, cure=cure, at=time)
            case steps.TurnFailed() | steps.ToolRunFailed():
                return Stalled(turn=step.request.turn, cause=step.cause, cure=step.cure, at=time)

    def _new_questions(self, time: str) -> list[Event]:
        """What people are asked from now on. A decision that came earlier would be refused."""
        state = self.by_history.state
        new = [pending for pending in state.pending.values() if self._asked.get(pending.call.call_id) != pending.asked]
        self._asked = {call_id: pending.asked for call_id, pending in state.pending.items()}
        return [_question_event(state.turn, pending, time) for pending in new]

    def _ask_again(self, verdict: str) -> None:
        """Among the events, a decision on every call comes after the calls that began to wait in the same workflow
        task. It is not about them, and readers must not think that it is."""
        for pending in self.by_history.state.pending.values():
            if pending.is_addressed(names.EVERY_CALL, verdict):
                self._asked.pop(pending.call.call_id, None)

    def _results_without_activity(self, step: steps.Step, time: str) -> list[ToolFinished]:
        """Results without an activity: of calls that were answered, denied, refused, expired or cut short. They are
        found in what comes next: the next turn's delta, the next run's start, or the outcome."""
        match step:
            case steps.ToolCompleted(result=result) | steps.ActivityEnded(result=result):
                if not self.by_history.hooks_see(step):
                    self._open.pop(result.call_id, None)
                return []
            case steps.RunStarted(start=start) if carry := start.carry:
                # Not by what was open: who comes back here has not read the run before.
                open_reply = carry.open or OpenReply()
                messages = (*carry.unseen, Message(role="tool", parts=open_reply.results))
                known_ids = {*carry.told, *open_reply.told}
                turn = carry.called_in or carry.turn
                self._open = {call_id: turn for call_id in results_in(messages) if call_id not in known_ids}
            case steps.TurnScheduled(request=request) | steps.PrefixExtended(request=request):
                messages = request.delta
            case steps.RunClosed(outcome=Outcome(tail=tail)):
                messages = tail
            case _:
                return []
        results = [result for call_id, result in results_in(messages).items() if call_id in self._open]
        return [ToolFinished(turn=self._open.pop(result.call_id), result=result, at=time) for result in results]


def _step_events(step: steps.Step, time: str) -> list[Event]:
    match step:
        case steps.RunStarted(start=start) if start.message:
            return [MessageReceived(message=Message.user(start.message), at=time)]
        case steps.MessageSent(said=said):
            return [MessageReceived(message=said.as_message(), at=time)]
        case steps.TurnScheduled(request=request):
            position = None if request.summarise else request.position + len(request.delta)
            return [TurnStarted(turn=request.turn, agent=request.agent, position=position, at=time)]
        case steps.TurnCompleted(request=request, reply=reply) if request.summarise:
            return [
                *_hook_events(request.turn, reply.hooks, time),
                Compacted(turn=request.turn, summary=reply.message.text, at=time),
            ]
        case steps.TurnCompleted(reply=ModelReply(message=Message(cut_short=True, parts=()))):
            return []
        case steps.TurnCompleted(request=request, reply=reply):
            events = _reply_events(request, reply, time)
            if reply.view:
                events.append(Compacted(turn=request.turn, at=time))
            return events
        case steps.TurnFailed(request=request, cause=cause, fallback=str(model)) if model:
            return [FellBack(turn=request.turn, cause=cause, model=model, at=time)]
        case steps.ReminderFired(call_id=call_id):
            return [ApprovalReminder(call_id=call_id, at=time)]
        case steps.TurnFailed(request=request, batch=BatchTurn(provider=provider)):
            return [TurnBatched(turn=request.turn, provider=provider, at=time)]
        case steps.TurnFailed(awaited=True) | steps.ToolRunFailed(awaited=True):
            return [WorkerAwaited(turn=step.request.turn, cause=step.cause, cure=step.cure, at=time)]
        case steps.ToolRunFailed(kind=names.ASKS | names.NEEDS_APPROVAL) | steps.ToolRunFailed(stalled=True):
            return []  # nothing is lost: what is asked, or the stall, is told as the conversation takes it in
        case steps.ToolScheduled(tool=tool, request=call):
            there = step.conversation_id
            return [ToolStarted(turn=call.turn, call_id=call.call_id, tool=tool, conversation_id=there, at=time)]
        case steps.ToolRunFailed(tool=tool, request=call, cause=cause):
            return [ToolLost(turn=call.turn, call_id=call.call_id, tool=tool, cause=cause, at=time)]
        case steps.ToolCompleted(request=call, result=result) | steps.ActivityEnded(request=call, result=result):
            return [*_hook_events(call.turn, result.hooks, time), ToolFinished(turn=call.turn, result=result, at=time)]
        case steps.RunClosed(alike=alike, why=why) if alike:
            return [Switched(name=RESET, reason=why or None, at=time)]
        case steps.RunClosed(outcome=outcome, why=why, next_run_id=""):
            return [Done(outcome=outcome, why=why, at=time)]
        case _:
            return []


def _is_on_every_call(step: steps.Step) -> bool:
    if not isinstance(step, steps.CommandSent) or step.name not in names.DECISIONS:
        return False
    return step.payload.get("call_id") == names.EVERY_CALL


def _command_event(name: str, payload: dict[str, Any], time: str) -> Event:
    """As the conversation has read it: other keys than those of its record mean nothing."""
    match COMMANDS[name].model_validate(payload):
        case Approve(call_id=call_id, by=by, note=note, arguments=edited):
            return Decided(call_id=call_id, verdict=name, by=by, note=note, arguments=edited, at=time)
        case Deny(call_id=call_id, by=by, reason=note):
            return Decided(call_id=call_id, verdict=name, by=by, note=note, at=time)
        case Answer(call_id=call_id, by=by):
            return Decided(call_id=call_id, verdict=name, by=by, at=time)
        case Control(by=by, reason=reason):
            return Switched(name=name, by=by, reason=reason, at=time)
        case SetPolicy(by=by) | InheritPolicy(by=by):
            return Switched(name=name, by=by, at=time)
        case other:
            raise AssertionError(f"no event tells of {other!r}")


def _reply_events(request: ModelRequest, reply: ModelReply, time: str) -> list[Event]:
    turn = request.turn
    replied = Replied(
        turn=turn,
        message=reply.message,
        usage=reply.usage,
        cost_usd=reply.cost_usd,
        agent=request.agent,
        final=reply.final,
        stop=reply.stopped,
        details=reply.details,
        at=time,
    )
    events: list[Event] = [replied, *_hook_events(turn, reply.hooks, time)]
    plans = {plan.call_id: plan for plan in reply.plan}
    for call in reply.message.tool_calls:
        plan = plans.get(call.call_id)
        refused = plan.text if isinstance(plan, RefuseCall) else None
        awaits = isinstance(plan, AwaitAnswer)
        events.append(ToolCalled(turn=turn, call=call, refused=refused, awaits_answer=awaits, at=time))
    return events


def _hook_events(turn: int, actions: Iterable[HookAction], time: str) -> list[Event]:
    return [HookActed(turn=turn, at=time, **action.model_dump()) for action in actions]


def _question_event(turn: int, pending: PendingCall, time: str) -> ApprovalRequested | AnswerRequested:
    question = pending.asked
    about: dict[str, Any] = {
        "turn": turn,
        "call": pending.call,
        "reason": question.reason,
        "why": question.in_words,
        "question": pending.question,
        "at": time,
    }
    if pending.needs == "answer":
        return AnswerRequested(**about)
    return ApprovalRequested(**about, awaits_answer=isinstance(pending.plan, AwaitAnswer))
