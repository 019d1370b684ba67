"""The state of a conversation, from the steps of its history: see state.py.

A step counts when the conversation has taken it in. The order is that in which Temporal gives things to a workflow:
first what people sent, then what its activities returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everturn import agent_in_charge, names
from everturn.calls import gate, unknown_outcomes
from everturn.calls.decision_records import InheritPolicy, policy_after
from everturn.calls.result_checks import check_of_answer, check_of_event, withheld_result
from everturn.carryover import OpenReply
from everturn.history import steps
from everturn.history.calls_by_history import CallsByHistory
from everturn.history.decisions_by_history import DecisionsByHistory, Ruled
from everturn.history.same_task import SameTask
from everturn.history.transcript import Transcript, unwritten_result, user_messages
from everturn.payloads import Control, ModelReply, ModelRequest, Start
from everturn.plans import GatedPlan, RefuseCall, RunHandoff, UseResult
from everturn.records import Outcome, ToolCall, ToolResult
from everturn.sizes import size_of
from everturn.state import State

_NO_START = Start.model_construct(agent="")


class StateByHistory:
    """Give it every step of a run, from the first one on, and then those of the run that continues it."""

    def __init__(self, *, run_id: str = "") -> None:
        self.run_id = run_id
        self.state = State(_NO_START, run_began=0.0)
        self.transcript = Transcript()
        self.reply: ModelReply | None = None
        """Of the current turn; None while the reply is awaited."""
        self.finished: steps.RunClosed | None = None
        self.calls = CallsByHistory()  # of that reply
        self.decisions = self._new_decisions()
        self.signals = WaitingSignals()
        self._followed: list[steps.CommandSent | steps.Stalling] = []
        """Decisions and commands that the conversation has followed, and what it stalled over, since somebody asked
        last."""
        self._clock = 0.0
        """The same, of the conversation itself."""
        self._brought: list[steps.Step] = []  # by activities and timers, likewise
        self._cut_short = False  # the turn was cancelled, and has not ended yet
        self._runs = False  # the model's part of the turn
        self._cancelled = False  # the workflow was, or can't read its start: it begins nothing more
        self._is_settled = False  # the last workflow task brought the last results of a reply
        self._before_answer: tuple[bool, str, int] | None = None
        """Of the state, before the last workflow task began an answer; None if it began none."""
        self._together: SameTask | None = None  # what the last workflow task brought, until its updates are over

    def take_step(self, step: steps.Step) -> None:
        if type(step) is steps.Step:
            return  # more than half of them
        self.transcript.take_step(step)
        same_task = self._together
        self._together = None
        match step:
            case steps.RunStarted(start=start, at=at):
                self._begin_run(start, at.timestamp())
            case steps.MessageSent(accepted=False) | steps.CommandSent(accepted=False):
                self.signals.add(step)
            case steps.MessageSent() | steps.CommandSent() if same_task and not same_task.begun:
                self._take_before(same_task, step)
            case steps.MessageSent() | steps.CommandSent():
                self._take_sent(step)
                self._follow_up()
            case steps.WorkflowTaskCompleted(time=time):
                self._clock = time
                self.take_in()
            case steps.ToolCompleted(local=True) | steps.ToolRunFailed(local=True):
                self._take_brought(step)  # the conversation itself has written it down
            case steps.InputUnreadable():
                self._take_unreadable(step)
            case steps.QueuedCallDenied(call_id=call_id):
                self._deny_queued_call(call_id, same_task)
            case steps.TurnScheduled(request=request):
                self._begin_turn(request)
            case steps.CheckScheduled() | steps.ToolScheduled():
                self._begin_call(step)
                if same_task:
                    same_task.begun.append(step)
                    self._together = same_task
            case steps.CancelRequested():
                self._cancelled = True
            case steps.RunClosed():
                self.take_in()
                self._finish_run(step)
            case _:
                self._brought.append(step)

    def take_followed(self) -> list[steps.CommandSent | steps.Stalling]:
        """The decisions and commands that the conversation has followed, and what it has stalled over, since the last
        time this was asked. What came by signal may be passed over: then it is never among them."""
        followed = self._followed
        self._followed = []
        return followed

    def take_in(self) -> None:
        """The conversation's workflow task is completed: it has taken in all that came before."""
        sent = self.signals.take_all()
        self.decisions.new_waits.clear()
        self._is_settled = False
        brought = self._brought
        self._brought = []
        self._before_answer = None
        untaken = (step for step in sent if not (self._take_sent(step) or self.decisions.hold_decision(step)))
        # One after the other: as things are when it comes.
        early = [step for step in untaken if self._may_be_early(step)]
        self._cut_short = self._cut_short or self._cancelled
        self._take_together(brought, early)

    def _take_together(
        self, brought: Sequence[steps.Step], early: Sequence[steps.Sent], ruled: Sequence[Ruled] = ()
    ) -> None:
        if SameTask.is_needed(brought) or self._next_answer_may_begin(brought, early):
            parts = (self, self.state, *self.state.drawers, self.calls, self.decisions, self.signals)
            self._together = SameTask(brought, early, parts, self.transcript, self.state.start, self.reply)
        for step in brought:
            self._take_brought(step)
        stalled = self.state.stall is not None
        for step in early:
            if not (isinstance(step, steps.CommandSent) and step.name == names.RESUME):
                if not self._take_sent(step):
                    self.decisions.hold_decision(step)
                continue
            # Who pauses after it was sent has the last word.
            resume = replace(step, payload={**step.payload, "only_stalled": True})
            if self.state.stall:
                self._take_sent(resume)
            elif not stalled:  # one is enough for a stall
                self.signals.resumes.append(resume)
        self._follow_up()
        if self._together:
            self._together.ruled = (*ruled, *self.decisions.ruled)

    def _next_answer_may_begin(self, brought: Sequence[steps.Step], early: Sequence[steps.Sent]) -> bool:
        """Whether this may end one answer and begin another: `cancel_turn` before it is about the first one."""
        says_more = self.state.inbox.messages or any(isinstance(step, steps.MessageSent) for step in early)
        ends = self._cut_short or any(isinstance(step, steps.TurnCompleted | steps.TurnCancelled) for step in brought)
        return bool(self.state.answering and says_more and ends)

    def _take_before(self, same_task: SameTask, step: steps.Sent) -> None:
        """An update that was accepted before the conversation took in what the same workflow task brought."""
        same_task.take_back()
        self._take_sent(step)
        self._take_again(same_task)

    def _take_again(self, same_task: SameTask) -> None:
        self._take_together(same_task.brought, same_task.early, same_task.ruled)
        self.decisions.ruled = [ruling for ruling in self.decisions.ruled if ruling not in same_task.ruled]
        for begun in same_task.begun:
            self._begin_call(begun)

    @property
    def outcome(self) -> Outcome | None:
        """None while the conversation goes on, and if it ended without an outcome."""
        return self.finished.outcome if self.finished else None

    # ------------------------------------------------------------ one step after the other

    def _begin_run(self, start: Start, run_began: float) -> None:
        self.state = State(start, run_began=run_began)
        self.finished = None
        self.reply = None
        self._cut_short = self._runs = False
        open_reply = (start.carry and start.carry.open) or OpenReply()
        self.calls = CallsByHistory(open_reply)
        self.decisions = self._new_decisions(open_reply)
        self._cancelled = False
        self._awaits_worker = 0
        """The turn that nobody could be asked: a worker that comes is given the same request."""

    def _new_decisions(self, open_reply: OpenReply | None = None) -> DecisionsByHistory:
        return DecisionsByHistory(
            self.state,
            open_reply,
            settle=self._take_result,
            answered=self._take_answered,
            hand_over=self._hand_over,
            on_held=self._follow_held,
            clock=lambda: self._clock,
        )

    def _begin_turn(self, request: ModelRequest) -> None:
        state = self.state
        self._runs = True
        if not state.answering:
            state.begin_answer()
        delta = self.transcript.messages[request.position - self.transcript.base :]  # which it has put there
        if request.turn != self._awaits_worker:  # it is the same request, and `resume` may have chosen for the next one
            state.model.name = request.model or ""
        self._awaits_worker = 0
        taken = 0 if request.summarise else max(0, user_messages(delta) - user_messages(state.unseen.messages))
        state.begin_turn(limit=request.conclude, messages=taken, summarise=request.summarise)
        state.turn = request.turn
        state.prefix.position = request.position
        state.prefix.digest = request.digest
        state.stall = None
        state.in_charge.agent = request.agent
        state.view = request.view
        state.tools = request.tools
        state.pending.clear()
        self.reply = None
        if not request.summarise:
            state.unseen.messages = delta
            state.unseen.note_in_events()
            self.calls.forget()
            self.decisions.checked.clear()
            self.decisions.edited.clear()

    def _begin_call(self, begun: steps.CheckScheduled | steps.ToolScheduled) -> None:
        if isinstance(begun, steps.CheckScheduled):
            self.calls.checked.add(begun.call_id)
        else:
            self.state.pending.pop(begun.request.call_id, None)
            self.calls.running.add(begun.request.call_id)

    def _deny_queued_call(self, call_id: str, same_task: SameTask | None) -> None:
        """Where the agent's policy has a say about rules, its answer comes first. A result that a hook gave as the call
        was checked, in the same workflow task, is none then."""
        if same_task:
            same_task.take_back()
        call, plan = self.calls.planned[call_id]
        if isinstance(plan, GatedPlan) and plan.policy:
            self.decisions.deny_queued_call(call)
        else:
            self._take_result(unwritten_result(call))
        if same_task:
            self._take_again(same_task)

    def _take_unreadable(self, step: steps.InputUnreadable) -> None:
        """A `resume` that came before, in the same workflow task, is for this stall. A message that came with it is
        answered after it."""
        state = self.state
        self._cancelled = self._cancelled or step.start
        if state.closing:
            return
        self._stall_over(step)
        if self._before_answer:
            state.answering = False
            state.inbox.unanswered = 0
            state.last_reply.final, state.cancelled, state.in_charge.handoffs = self._before_answer
        for resume in self.signals.resumes:
            if self._take_sent(resume):
                self._follow_up()
                break

    def _stall_over(self, over: steps.Stalling) -> None:
        self.state.begin_stall(over.cause, over.cure or None)
        self._followed.append(over)

    def _take_brought(self, step: steps.Step) -> None:
        if isinstance(step, steps.TurnCompleted | steps.TurnFailed | steps.TurnCancelled):
            self._runs = False
        if isinstance(step, steps.ToolRunFailed):
            self.calls.running.discard(step.request.call_id)
        if isinstance(step, steps.ToolRunFailed | steps.CallChecked):
            self.calls.checked.discard(step.request.call_id)
        match step:
            case steps.TurnCompleted(request=request, reply=reply):
                self._take_reply(request, reply)
            case steps.TurnFailed():
                self._take_failure(step)
            case steps.TurnCancelled(said=said):
                self.state.take_seen(said)
            case steps.PrefixExtended(digest=digest):
                self.state.take_in_unseen(digest)
            case steps.TranscriptKept(messages=messages):
                self.state.prefix.take_earlier(messages)
            case steps.ToolCompleted(result=result, outcome=outcome):
                if outcome is not None:
                    self.state.totals.add_usage(outcome.usage, outcome.cost_usd)
                if not self.hooks_see(step):
                    approved = outcome is not None and result.call_id in self.decisions.approvals
                    # The transcript's result of an agent that somebody approved also holds that approval.
                    sources = self.calls.from_outputs if approved else self.calls.recorded
                    sources.add(result.call_id)
                    self._take_result(result)
            case steps.ActivityEnded(result=result):
                if not self.hooks_see(step):
                    self.calls.from_outputs.add(result.call_id)
                    self._take_result(result)
            case steps.ToolRunFailed(awaited=awaited, again=False) if self.state.closing or not awaited:
                self._take_loss(step)
            case steps.CallExpired(call_id=call_id):
                self.decisions.expire(call_id)
            case steps.CallChecked(request=request, result=ToolResult() as given):
                self.decisions.edited.pop(request.call_id, None)
                self.decisions.take_given(given)
            case steps.CallChecked(request=request, arguments=arguments):
                self.decisions.take_edit(request.call_id, arguments)
                if self.state.closing:  # which it waited for
                    self._close_if_settled()
            case steps.DecisionChecked(check=check, refusal=refusal) if not self._cut_short:
                self.decisions.take_check(
                    check.call.call_id, decided_by=check.decision.by, refusal=refusal, time=self._clock
                )

    def _take_reply(self, request: ModelRequest, reply: ModelReply) -> None:
        state = self.state
        if request.summarise:
            state.take_summary(reply)
            if state.is_over_with_summary:
                state.end_answer()
            return
        state.take_reply(reply)
        self.reply = reply
        self.calls.begin_reply(reply)
        self.decisions.begin_reply()
        self._begin_calls()
        over = self._cut_short or request.conclude or state.closing
        if not reply.plan and (over or (reply.final and not state.ask_for_correction())):
            state.end_answer()

    def _begin_calls(self) -> None:
        state = self.state
        begun = self.calls.running | state.pending.keys() | self.awaited
        for call, plan in self.calls.unsettled:
            if call.call_id in begun:
                continue
            pending = gate.before_run(call, plan, state.rules, agent=state.agent)
            if pending and not state.closing:
                self.decisions.begin_waiting(pending, time=self._clock)
            elif isinstance(plan, RunHandoff) and not pending:
                self._hand_over(call, plan)
            elif pending or state.closing or isinstance(plan, RefuseCall | UseResult):
                self._take_result(unwritten_result(call))

    def _take_failure(self, failed: steps.TurnFailed) -> None:
        self._awaits_worker = failed.request.turn if failed.awaited else 0
        if failed.awaited or self._cut_short:
            return
        if self.state.closing:
            self.state.abandoned = True
        elif failed.fallback:
            self.state.fall_back(failed.fallback)
        elif not failed.passing:
            self.state.begin_fallbacks_anew()
            self._stall_over(failed)

    def hooks_see(self, step: steps.ToolCompleted | steps.ActivityEnded) -> bool:
        """Whether the conversation has hooks see the result before it takes it."""
        return step.request.result is None and check_of_event(self.calls.plan_of(step.result.call_id)) is not None

    def _take_answered(self, call: ToolCall) -> None:
        """Somebody gave its result. Hooks may have to see that first."""
        if check_of_answer(self.calls.plan_of(call.call_id)) is None:
            self._take_result(unwritten_result(call))
        else:
            self.calls.running.add(call.call_id)

    def _take_result(self, result: ToolResult) -> None:
        """The model is told once all calls of the reply have their results."""
        self.state.pending.pop(result.call_id, None)
        if self.calls.take_result(result):
            self._close_if_settled()

    def _close_if_settled(self) -> None:
        closing = self.state.closing
        waiting = self.state.pending.keys() | self.awaited
        if self.calls.planned and self.calls.is_settled(closing=closing, waiting=waiting):
            self._close_reply()
            self._is_settled = True
            if closing:
                self.state.end_answer()

    def _close_reply(self) -> None:
        self.calls.hand_in(self.state)
        self.decisions.end_reply()

    def _take_loss(self, failed_run: steps.ToolRunFailed) -> None:
        call, plan = self.calls.planned.get(failed_run.request.call_id, (None, None))
        if call is None or plan is None:
            return
        if failed_run.stalled and not self.state.closing:
            self._stall_over(failed_run)
            return
        if result := failed_run.request.result:
            self._take_result(withheld_result(call, failed_run.cause, result.decision))
            return
        self.decisions.edited.pop(call.call_id, None)
        self.decisions.refused_edits += failed_run.kind == names.INVALID_EDIT
        next_question = unknown_outcomes.after_run(
            call,
            plan,
            self.decisions.asked.get(call.call_id),
            kind=failed_run.kind,
            cause=failed_run.cause,
            state_left=failed_run.left,
            proposed=failed_run.proposed,
            decision=failed_run.request.decision or self.decisions.approvals.get(call.call_id),
        )
        if next_question and not self.state.closing:
            self.decisions.begin_waiting(next_question, time=self._clock)
        else:
            self._take_result(unwritten_result(call))

    @property
    def awaited(self) -> set[str]:
        """The calls with a decision, or with arguments of a person's, that a worker is looking at."""
        return {*self.decisions.checked_ids, *self.decisions.edited}

    # ------------------------------------------------------------ what people send

    def _follow_held(self, step: steps.CommandSent) -> None:
        self._followed.append(step)

    def _take_sent(self, step: steps.Sent) -> bool:
        """False if it can't be taken now."""
        if isinstance(step, steps.MessageSent):
            if self.state.message_problem(step.said, size_of(step.said)):
                return False
            is_new = self.state.receive_message(step.said.as_message(), step.said.message_id)
            if is_new and step.accepted and self._before_answer and self.state.inbox.unanswered:
                self.state.inbox.unanswered += 1  # it came in with the one that began the answer
            return True
        was_taken = self._take_command(step)
        if was_taken or step.accepted:
            self._followed.append(step)
        return was_taken

    def _take_command(self, step: steps.CommandSent) -> bool:
        state = self.state
        if step.name in names.DECISIONS:
            return self.decisions.take_decision(step.name, step.payload, time=self._clock)
        if step.name in (names.SET_POLICY, names.INHERIT_POLICY):
            return self._take_rules(step)
        control = Control.model_validate(step.payload)
        match step.name:
            case names.PAUSE if state.pause_problem() and not step.accepted:
                return False
            case names.CANCEL_TURN if state.cancel_problem(control) and not step.accepted:
                return False  # what was accepted came before the final reply
            case names.CLOSE if state.denial_problem(control) and not step.accepted:
                return False
            case names.RESUME if state.resume_problem(control):
                return False
            case names.PAUSE:
                state.pause()
            case names.RESUME:
                state.resume(control)
            case names.CANCEL_TURN:
                state.cancel(control)
                state.pending.clear()
                self._cut_short = True
            case names.CLOSE:
                state.close()
                self.decisions.deny_all()
                if self.calls.planned:
                    self._close_if_settled()
                elif step.accepted and self._is_settled:
                    state.end_answer()
        return True

    def _take_rules(self, step: steps.CommandSent) -> bool:
        if step.name == names.INHERIT_POLICY:
            return self.decisions.inherit_policy(InheritPolicy.model_validate(step.payload).rules)
        return self.decisions.change_policy(policy_after(step.payload, self.state.policy))

    def _may_be_early(self, step: steps.Sent) -> bool:
        """Whether something that can't be taken now may be possible after the rest of the same workflow task."""
        if isinstance(step, steps.MessageSent):
            return True
        if step.name == names.RESUME:
            return not (self.state.is_idle or self.state.pending)
        call_id = step.payload.get("call_id")
        known = call_id in self.state.pending or self.decisions.is_known(call_id) or self.calls.has_begun(call_id)
        return step.name in names.DECISIONS and not known and not self.state.is_idle

    def _hand_over(self, call: ToolCall, plan: RunHandoff) -> None:
        if self._cut_short:
            return
        handoffs_left = self.state.in_charge.handoffs_left(self.state.limits.max_handoffs)
        self._take_result(agent_in_charge.result_of(call, plan, handoffs_left=handoffs_left))

    # ------------------------------------------------------------ what follows by itself

    def _follow_up(self) -> None:
        self._end_if_cancelled()
        self._end_if_abandoned()
        self._begin_next_answer()

    def _end_if_cancelled(self) -> None:
        """The turn was cancelled. What arrived together with that counts, and so does a reply whose calls are cut
        short. A model that still speaks is waited for."""
        if self._cut_short and not self._runs:
            self._cut_short = False
            self.state.limit = None
            before = user_messages(self.state.unseen.messages)
            self._close_reply()
            self.state.end_answer()
            if user_messages(self.state.unseen.messages) > before:  # no turn has put it there
                self.transcript.put_unseen(self.state.prefix.position, self.state.unseen.messages)

    def _end_if_abandoned(self) -> None:
        """It was closed while its turn failed or was held: nobody is asked again. What was said meanwhile may have to
        wait until results fit into the next run."""
        state = self.state
        if state.abandoned and state.answering and not (self._runs or self._awaits_worker or self.calls.planned):
            state.end_answer()

    def _begin_next_answer(self) -> None:
        state = self.state
        over = state.answering or state.abandoned or state.ended or state.limit or state.stall or self._cancelled
        if state.inbox.messages and not over:
            self._before_answer = state.last_reply.final, state.cancelled, state.in_charge.handoffs
            state.begin_answer()

    def _finish_run(self, finished: steps.RunClosed) -> None:
        state = self.state
        self.finished = finished
        if finished.next_run_id:
            if state.inbox.late:  # what was said while it closed takes it up again
                self._close_reply()
                state.take_up_again(self._clock)
            return
        self._close_reply()  # calls that it never began: it was closed
        if finished.outcome:  # which holds what was said and not answered
            state.inbox.messages, state.inbox.late = [], []
            # A turn that was begun and cancelled within one workflow task has left no event of its own.
            state.turn = max(state.turn, finished.outcome.turns)
        state.unseen.messages = self.transcript.messages[state.prefix.position - self.transcript.base :]
        state.end()


class WaitingSignals:
    """What came by signal since the conversation's last workflow task: it has not taken it in yet."""

    def __init__(self) -> None:
        self.sent: list[steps.Sent] = []
        self._closes = False
        """One of them closes the conversation."""
        self.resumes: list[steps.CommandSent] = []
        """Those of the last workflow task that found nothing to resume: they may be for what it stalls over."""

    def add(self, step: steps.Sent) -> None:
        self.sent.append(step)
        self._closes |= isinstance(step, steps.CommandSent) and step.name == names.CLOSE

    def take_all(self) -> list[steps.Sent]:
        """They come in now."""
        sent = self.sent
        self.sent = []
        self.resumes = []
        self._closes = False
        return sent

    @property
    def has_message(self) -> bool:
        """Whether one of them is a message."""
        return any(isinstance(step, steps.MessageSent) for step in self.sent)

    def is_refused(self, message: steps.MessageSent, state: State) -> bool:
        """Whether the conversation passes over this message, which is the last of them."""
        size = size_of(message.said)
        if state.closing or not self._closes:
            return state.message_problem(message.said, size) is not None
        more = [step.said.as_message() for step in self.sent[:-1] if isinstance(step, steps.MessageSent)]
        return message.said.problem(size, after=[*state.inbox.everything, *more]) is not None
