"""The conversation: a workflow that alternates model turns and tool calls until a reply asks for nothing more.

It is given facts and fetches none: which tools there are, what they may do and whether a human has to decide comes
with each reply as its plan, which history records. So a changed tool never breaks a replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, is_cancelled_exception

from everturn import names
from everturn.batching.waits import BatchWaits
from everturn.calls.causes import cause_of
from everturn.calls.pending_calls import READ_AGAIN
from everturn.calls.unreadable_inputs import DEPLOY_ITS_CODE
from everturn.carryover import CarryOver, OpenReply
from everturn.corrections import unfit_reason
from everturn.payloads import ModelReply, Start, Status, TranscriptPage
from everturn.plans import PlannedCall
from everturn.records import CUT_OFF, Outcome
from everturn.sizes import MAX_INBOX_BYTES, MAX_OPEN_INBOX_BYTES, MAX_OUTCOME_BYTES, size_of
from everturn.state import State
from everturn.subagents.workflow import SubAgents
from everturn.truncation import short_status
from everturn.webhooks.conversation_events import Webhooks
from everturn.workflows import continue_as_new, message_dispatch, sent_messages, start_input, tool_results, web_ui
from everturn.workflows.activity_results import ActivityResults, UnreadableResult
from everturn.workflows.approvals import PendingApprovals
from everturn.workflows.awaited_worker import AwaitedWorker, with_hand_back_for
from everturn.workflows.call_ledger import CallLedger
from everturn.workflows.cancellation import stop_if_cancelled, wait_for_turn
from everturn.workflows.chain import RunChain
from everturn.workflows.commands import Commands
from everturn.workflows.recent_messages import MessagesInMemory, RecentMessages
from everturn.workflows.timeouts import model_options, turn_group
from everturn.workflows.tool_calls import OpenCalls
from everturn.workflows.tracing import Tracing
from everturn.workflows.visibility import VisibleState
from everturn.workflows.wait_notices import WaitNotices

OutcomeStatus = Literal["completed", "limit_reached", "cancelled", "failed"]


CLOSED_UNANSWERED: Final = "the conversation was closed before it was answered"


# The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
@workflow.defn(name=names.CONVERSATION, sandboxed=False)
class ConversationWorkflow:
    message = message_dispatch.signal_handler(names.MESSAGE)
    approve = message_dispatch.signal_handler(names.APPROVE)
    deny = message_dispatch.signal_handler(names.DENY)
    answer = message_dispatch.signal_handler(names.ANSWER)
    pause = message_dispatch.signal_handler(names.PAUSE)
    resume = message_dispatch.signal_handler(names.RESUME)
    cancel_turn = message_dispatch.signal_handler(names.CANCEL_TURN)
    close = message_dispatch.signal_handler(names.CLOSE)
    withdraw = message_dispatch.signal_handler(names.WITHDRAW)
    set_policy = message_dispatch.signal_handler(names.SET_POLICY)
    inherit_policy = message_dispatch.signal_handler(names.INHERIT_POLICY)
    batch = message_dispatch.signal_handler(names.BATCH)
    unknown_signal = message_dispatch.unknown_signal
    message_update = message_dispatch.update_handler(names.MESSAGE)
    approve_update = message_dispatch.update_handler(names.APPROVE)
    deny_update = message_dispatch.update_handler(names.DENY)
    answer_update = message_dispatch.update_handler(names.ANSWER)
    pause_update = message_dispatch.update_handler(names.PAUSE)
    resume_update = message_dispatch.update_handler(names.RESUME)
    cancel_turn_update = message_dispatch.update_handler(names.CANCEL_TURN)
    close_update = message_dispatch.update_handler(names.CLOSE)
    set_policy_update = message_dispatch.update_handler(names.SET_POLICY)
    inherit_policy_update = message_dispatch.update_handler(names.INHERIT_POLICY)

    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        # Here and not in run(): a signal can arrive before run() begins, and belongs after the start's message.
        self._start_input = start_input.read_start(inputs)
        carry_over = self._start_input.start.carry or CarryOver()
        self._recent = RecentMessages(carry_over.last_text)
        began = workflow.info().workflow_start_time.timestamp()
        self._state = State(self._start_input.start, run_began=began, on_prefix=self._recent.add)
        if carry_over.earlier:
            self._state.prefix.earlier = continue_as_new.hold_earlier(carry_over.earlier)
        self.messages_in_memory = MessagesInMemory(self._state, self._recent)
        self.visibility = VisibleState(
            self._state,
            self._recent,
            status=self._full_status,
            is_batched=lambda: self._batches.cause is not None,
        )
        open_reply = carry_over.open or OpenReply()
        self._notices = WaitNotices(self._state, announced=(question.call_id for question in open_reply.waits))
        self._webhooks = Webhooks(self._state, announced=(question.call_id for question in open_reply.waits))
        self._ledger = CallLedger(open_reply, RunChain(carry_over.chain_id, reset_run=carry_over.reset_run))
        chain_id = self._ledger.chain.id
        self._tracing = Tracing(self._state, self._start_input.start, carry_over, chain_id=chain_id)
        self._results = ActivityResults()
        self._agents = SubAgents(
            self._state, self._results, self._tracing, webhooks=self._webhooks, on_change=self._show_state
        )
        self._approvals = PendingApprovals(
            self._state,
            open_reply,
            ledger=self._ledger,
            agents_at_work=self._agents.running,
            on_change=self._show_state,
        )
        self._batches = BatchWaits(on_change=self._show_state)
        listeners = {names.BATCH: self._batches.take_notice}
        self._commands = Commands(
            self._state, self._approvals, self._tracing, listeners=listeners, on_change=self._show_state
        )
        self._awaited_worker = AwaitedWorker(self._state, self._commands.stalls_and_pauses, on_change=self._show_state)
        self._calls = OpenCalls(
            self._state,
            self._ledger,
            self._approvals,
            self._agents,
            self._results,
            self._awaited_worker,
            self._tracing,
        )
        self._open_reply = carry_over.open
        """The open reply of the earlier run, until this run continues it."""
        self._closed_between_turns = False
        """A person closed it as calls ran or waited: the last reply is no answer."""

    @workflow.run
    async def run(self, *_: Any) -> Outcome:
        if self._start_input.handed:
            if not self._state.closing:
                await self._commands.stalls_and_pauses.wait_while_stalled(self._start_input.problem, DEPLOY_ITS_CODE)
            if self._state.closing and not self._state.inbox.late:
                return self._end_with("cancelled", reason=CLOSED_UNANSWERED)
            continue_as_new.begin_next_run(self._start_input.handed_on(self._state))
        if self._start_input.problem:
            raise message_dispatch.invalid_start(self._start_input.problem)
        self._keeper = asyncio.create_task(continue_as_new.copy_earlier_messages_in_time(self._state, self._results))
        outcome = await self._answer_until_end()
        await self._tracing.say_the_rest(outcome.status)
        await self._webhooks.send_end(outcome)
        return outcome

    async def _answer_until_end(self) -> Outcome:
        try:
            limit = await self._answer_messages()
            if self._state.inbox.late:
                await self._take_up_again()
        except (asyncio.CancelledError, ActivityError) as error:
            if not is_cancelled_exception(error):
                raise
            return self._end_with("cancelled", reason="the workflow was cancelled")
        if limit:
            return self._end_with("limit_reached", reason=limit)
        state = self._state
        if state.cancelled:
            return self._end_with("cancelled", reason=state.cancelled)
        given_up = state.abandoned or (state.closing and state.last_reply.output_problem)  # its correction is unseen
        if given_up and (state.unseen.messages or state.inbox.messages):
            return self._end_with("cancelled", reason=CLOSED_UNANSWERED)
        # Only behind these: whoever cancelled or closed it wanted no correction any more.
        if problem := state.last_reply.output_problem:
            return self._end_with("failed", reason=unfit_reason(problem))
        reason = CUT_OFF.get(state.last_reply.stop)
        if self._closed_between_turns:
            reason = CLOSED_UNANSWERED
        return self._end_with("completed", reason=reason)

    # ------------------------------------------------------------ the loop

    async def _answer_messages(self) -> str | None:
        """Answers all messages. Returns the limit that ended the conversation; None if no limit did."""
        while await self._next_message():
            open_reply = self._open_reply
            self._open_reply = None
            answering = asyncio.create_task(self._take_turns(open_reply))
            self._commands.begin_answering(answering)
            self._tracing.begin_answer()
            try:
                if limit := await answering:
                    return limit
                self._closed_between_turns = self._state.closing and not self._state.last_reply.final
            except (asyncio.CancelledError, ActivityError) as error:
                # A person cancelled the answer; or somebody cancelled the workflow, and then we have to end.
                if not (self._state.cancelled and is_cancelled_exception(error)):
                    raise
                self._cut_short(self._state.cancelled)
                self._webhooks.owe_answer()
                self._state.limit = None  # it did not conclude: the next turn looks anew
                stop_if_cancelled()  # if both happen at once, the workflow's cancellation wins
            self._state.end_answer()
            self._tracing.end_answer("cancelled" if self._state.cancelled or self._state.abandoned else "failed")
            self._webhooks.send_answer_before_next()
        return None

    async def _next_message(self) -> bool:
        """Waits for a message to answer; False once the conversation is over."""
        if self._state.answering:
            return True
        await self._commands.wait_for_message_or_end()
        # An accepted update is answered before the run ends, and it may have brought a message.
        await workflow.wait_condition(workflow.all_handlers_finished)
        return bool(self._state.inbox.messages) and not self._state.abandoned

    async def _take_turns(self, open_reply: OpenReply | None) -> str | None:
        """Takes turns until a reply has no calls or a limit is used up; returns that limit. `open_reply`:
        that of the earlier run, to begin with."""
        state = self._state
        if open_reply:
            await self._settle_calls(open_reply.plan)
            if state.limit or state.closing:
                return state.limit
        while True:
            await self._continue_as_new_if_due()
            if limit := state.limit_that_ends(workflow.time()):
                return limit
            if state.summary_due:
                await self._summarise()  # a turn, too: the next one may be beyond a limit
            elif reply := await self._model_turn():
                if reply.plan:
                    await self._settle_calls(reply.plan)
                if state.limit or state.closing or (reply.final and not state.ask_for_correction()):
                    return state.limit
            if state.abandoned:
                return None
            if state.is_over_with_summary:
                return state.limit_that_ends(workflow.time())

    async def _summarise(self) -> None:
        """Lets the model write a summary, which it is then shown instead of the old messages."""
        reply = await self._ask_model(summarise=True)
        if reply:
            self._state.take_summary(reply)
            self._tracing.take_reply(reply, ends=False)
            stop_if_cancelled()

    async def _model_turn(self) -> ModelReply | None:
        """The conversation's next reply; None if it needs another look first: a person closed the conversation, the
        model wrote a summary without which the turn was too long, or a limit ends it."""
        reply = await self._ask_model()
        if reply:
            self._state.take_reply(reply)
            self._tracing.take_reply(reply, ends=True)
            self._ledger.begin_reply(reply.message.tool_calls)
            stop_if_cancelled()
        return reply

    async def _ask_model(self, *, summarise: bool = False) -> ModelReply | None:
        """A reply of the model, however long that takes: what retries and fallbacks can't cure waits for a person.

        None if that person closed the conversation, if a summary had to come first, or if a limit ends it by then."""
        while await self._wait_to_ask():
            self._begin_turn(summarise=summarise)
            try:
                return await self._call_model(summarise=summarise)
            except UnreadableResult as error:
                stop_if_cancelled()
                if self._abandon_if_closing():
                    return None
                await self._commands.stalls_and_pauses.wait_while_stalled(error.problem, READ_AGAIN)
                if not self._state.abandoned and (reply := self._read_again(error.raw)):
                    return reply
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                if not await self._recover_from_failure(error, summarise=summarise):
                    return None
        return None

    async def _wait_to_ask(self) -> bool:
        """Waits while the conversation is paused. False if the model is not to be asked then: a person has closed it,
        or a limit ends it."""
        await self._commands.stalls_and_pauses.wait_while_paused()
        if self._state.abandoned:
            return False
        # Here, too: a stall can be resumed any number of times, and each time costs an update and some events.
        await self._continue_as_new_if_due()
        return not self._state.limit_that_ends(workflow.time())

    def _begin_turn(self, *, summarise: bool) -> None:
        state = self._state
        if summarise:
            state.begin_turn(summarise=True)
        else:
            limit = state.limit_reached(workflow.time())
            state.begin_turn(limit=limit, messages=sent_messages.how_many_waiting_fit(state))
            state.unseen.note_in_events()
        self._show_state()

    async def _recover_from_failure(self, error: ActivityError, *, summarise: bool) -> bool:
        """After a turn that Temporal does not retry: True to ask again, a fallback model at once, the same models once
        a person has resumed. False if nobody will resume, or if a summary made room for a turn that was too long."""
        state = self._state
        self._webhooks.take_failure(error)
        if self._abandon_if_closing():
            return False
        if fallback := tool_results.detail_of(error, "fallback"):
            state.fall_back(fallback)
            return True
        if tool_results.detail_of(error, "too_long") and not summarise:
            await self._summarise()
            return False
        if not self._batches.holds_reply:
            state.begin_fallbacks_anew()
        await self._commands.stalls_and_pauses.wait_while_stalled(
            tool_results.cause_of(error), tool_results.detail_of(error, "cure")
        )
        return True

    def _abandon_if_closing(self) -> bool:
        """A turn that failed is given up if a person closed the conversation: nobody will resume it."""
        self._state.abandoned |= self._state.closing
        return self._state.closing

    async def _call_model(self, *, summarise: bool) -> ModelReply:
        state = self._state
        request = sent_messages.next_request(state, summarise=summarise)
        request = request.model_copy(update={"stream": self._commands.stream, "trace": self._tracing.of_turn()})
        visibility = self.visibility
        summary = web_ui.turn_summary(
            state.turn, visibility.turn_model, agent=visibility.turn_agent, summarise=summarise, delta=request.delta
        )

        async def start_turn(hand_back_for: float | None) -> ModelReply:
            """`hand_back_for`: seconds, as in ModelRequest: how long workers that lack the agent pass the turn on."""
            handle = workflow.start_activity(
                names.CALL_MODEL,
                with_hand_back_for(hand_back_for, request),
                result_type=RawValue,
                summary=summary,
                event_groups=[turn_group(state.turn)],
                **model_options(),
            )
            await wait_for_turn(handle, on_lost=lambda error: state.take_seen(cause_of(error).said))
            return await self._results.wait_for(handle, ModelReply, f"The reply of turn {state.turn}")

        request = self._batches.with_kept_notice(request)
        while True:
            try:
                return await self._awaited_worker.run_when_hosted(names.CALL_MODEL, start_turn)
            except ActivityError as error:
                request = await self._batches.wait_after(error, request)

    def _read_again(self, raw: RawValue | None) -> ModelReply | None:
        """A reply that could not be read, read again after a person resumed; None if it is still unreadable."""
        with suppress(UnreadableResult):
            return self._results.read(raw, ModelReply, f"The reply of turn {self._state.turn}")
        return None

    async def _settle_calls(self, plan: tuple[PlannedCall, ...]) -> None:
        """Gets a result for every call of the reply, and adds the results to the transcript in the order of the
        calls."""
        with turn_group(self._state.turn).scope():
            results = await self._calls.settle_all(plan, meanwhile=self._continue_as_new_while_calls_wait())
        self._state.take_results(results, recorded=self._ledger.recorded, from_outputs=self._ledger.from_outputs)

    # ------------------------------------------------------------ from run to run

    @property
    def _is_next_run_due(self) -> bool:
        full = self._calls.operations.many_left
        return continue_as_new.is_due(updates=self._commands.handlers.updates, full=full)

    async def _continue_as_new_if_due(self) -> None:
        """Goes on as a new run between turns, since a replay takes time for each event and can't be interrupted."""
        if not self._is_next_run_due or self._batches.holds_reply:
            return
        self._show_state()  # shows that it is not idle any more
        if self._webhooks.is_busy:
            await self._webhooks.all_begun()
        await continue_as_new.fit_unseen(self._state, self._results)
        # If a message arrives now, Temporal repeats this task, so the message is in the inbox that is handed over.
        await workflow.wait_condition(workflow.all_handlers_finished)
        stop_if_cancelled()
        if self._commands.may_move and continue_as_new.fit_inbox(self._state, MAX_INBOX_BYTES):
            continue_as_new.begin_next_run(self._next_input())  # otherwise, the next turn boundary will do

    async def _continue_as_new_while_calls_wait(self) -> None:
        """Goes on as a new run while all calls wait for people: they may take long, and try often."""
        for may_move in (self._may_move_now, self._may_move_with_fitting_inbox):
            if not await self._wait_while_calls_wait(may_move):
                return
            handed = self._next_input(reply=self._calls.handed_on())
            if continue_as_new.fits_with_open_calls(handed):
                continue_as_new.begin_next_run(handed)

    async def _wait_while_calls_wait(self, moment: Callable[[], bool]) -> bool:
        """Waits for a moment; False if all calls have their results before it comes."""
        await workflow.wait_condition(lambda: self._ledger.all_settled or moment())
        return not self._ledger.all_settled

    def _may_move_now(self) -> bool:
        free = self._calls.only_wait and self._commands.may_move and workflow.all_handlers_finished()
        return free and self._is_next_run_due and not self._webhooks.is_busy

    def _may_move_with_fitting_inbox(self) -> bool:
        return self._may_move_now() and continue_as_new.fit_inbox(self._state, MAX_OPEN_INBOX_BYTES)

    def _next_input(self, *, reply: OpenReply | None = None) -> Start:
        """The next run's input."""
        handed = continue_as_new.carry_over(self._state, self._recent, self._ledger.chain, reply=reply)
        handed = handed.model_copy(update={"trace": self._tracing.carried()})
        again = {"message": (), "message_id": None, "provider": "", "stream": self._commands.stream, "carry": handed}
        return self._state.start.model_copy(update=again)

    async def _take_up_again(self) -> None:
        """Messages that came while it closed continue it as a new run, as they would right after its end."""
        self._cut_short("the conversation was closed")
        await continue_as_new.fit_unseen(self._state, self._results)
        now = workflow.time()  # a local activity, as begins a webhook, would move it on beyond what the history says
        await self._webhooks.all_begun()
        await workflow.wait_condition(workflow.all_handlers_finished)
        stop_if_cancelled()
        self._state.take_up_again(now)
        continue_as_new.begin_next_run(self._next_input())

    # ------------------------------------------------------------ the end

    def _cut_short(self, reason: str) -> None:
        """Gives every open call a result that says that the conversation ended."""
        if cut := self._calls.close_reply(reason):
            self._state.take_results(cut, recorded=self._ledger.recorded, from_outputs=self._ledger.from_outputs)

    def _end_with(self, status: OutcomeStatus, *, reason: str | None) -> Outcome:
        state = self._state
        self._cut_short(reason or "the conversation ended")
        state.end()
        self._show_state()
        room = MAX_OUTCOME_BYTES
        if state.start.caller and state.start.caller.room is not None:
            room = min(state.start.caller.room, MAX_OUTCOME_BYTES)
        text, output = sent_messages.last_reply(state, room)
        return Outcome(
            status=status,
            text=text,
            output=output,
            turns=state.turn,
            tool_calls=state.totals.tool_calls,
            usage=state.totals.usage,
            cost_usd=state.totals.cost_usd,
            reason=reason,
            stop=state.last_reply.stop,
            tail=sent_messages.outcome_tail(state, room=room - size_of(text) - size_of(output)),
        )

    # ------------------------------------------------------------ what others say and see

    def take_signal(self, name: str, inputs: tuple[Any, ...]) -> None:
        self._commands.handlers.take_signal(name, inputs)

    def check_update(self, name: str, inputs: tuple[Any, ...]) -> None:
        self._commands.handlers.check_update(name, inputs)

    def take_update(self, name: str, inputs: tuple[Any, ...]) -> dict[str, Any]:
        return self._commands.handlers.take_update(name, inputs)

    @property
    def turn(self) -> int:
        """For its log lines."""
        return self._state.turn

    def _full_status(self) -> Status:
        state = self._state
        waits_for = state.stall or (self._batches if self._batches.cause else self._awaited_worker)
        return Status(
            state=state.name,
            agent=state.agent,
            turn=state.turn,
            policy=state.policy,
            inherited=state.inherited,
            waiting=tuple(pending.as_waiting() for pending in state.pending.values()),
            agents=tuple(self._agents.running.values()),
            usage=state.totals.usage,
            cost_usd=state.totals.cost_usd,
            cause=waits_for.cause,
            cure=waits_for.cure,
            collector=self._batches.collector,
            joined_at=self._batches.joined_at,
            chain_id=self._ledger.chain.id,
        )

    def _show_state(self) -> None:
        self.visibility.show()
        self._notices.send_if_new()
        self._webhooks.send_if_new()

    @workflow.query(name=names.STATUS, description="The state, the waiting calls, tokens and cost.")
    def status(self, *_: Any) -> dict[str, Any]:
        return short_status(self._full_status()).as_json()

    @workflow.query(name=names.TRANSCRIPT, description='A page of the messages: {"from": 0, "limit": 50}.')
    def transcript(self, *inputs: Any) -> dict[str, Any]:
        page = message_dispatch.read_input(TranscriptPage, inputs)
        unseen = self._state.unseen.messages
        held_from = self._state.prefix.position - len(self._recent.written)
        start = max(page.start, held_from)
        return {
            "from": start,
            "total": self._state.prefix.position + len(unseen),
            "messages": self._recent.read_page(unseen, start - held_from, page.limit),
        }
