"""The conversation: a workflow that alternates model turns and tool calls until a reply asks for nothing more.

It is given facts and fetches none: which tools there are, what they may do and whether a human has to decide comes
with each reply as its plan, which history records. So a changed tool never breaks a replay.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from everturn import names
from everturn.carryover import CarryOver, OpenReply, WorkerFacts
from everturn.cutting import short_status
from everturn.models import Limits
from everturn.payloads import ModelReply, ModelRequest, Start, State, Status, TranscriptPage
from everturn.plans import PlannedCall
from everturn.records import Outcome
from everturn.sizes import MAX_INBOX_BYTES, MAX_OPEN_INBOX_BYTES, MAX_OUTCOME_BYTES, size_of
from everturn.waiting import READ_AGAIN
from everturn.workflows import continue_as_new, handlers, start_input, tool_results, web_ui
from everturn.workflows.activity_results import ActivityResults, Unreadable
from everturn.workflows.awaited_worker import AwaitedWorker
from everturn.workflows.cancellation import stop_if_cancelled
from everturn.workflows.chain import Chain
from everturn.workflows.commands import Commands
from everturn.workflows.progress import Progress
from everturn.workflows.subagents import SubAgents
from everturn.workflows.timeouts import model_options, turn_group
from everturn.workflows.tool_calls import OpenCalls
from everturn.workflows.visibility import Visibility

OutcomeStatus = Literal["completed", "limit_reached", "cancelled", "failed"]


@workflow.defn(name=names.CONVERSATION)
class ConversationWorkflow:
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        # Here and not in run(): a signal can come in before run() begins, and belongs after what the start brings.
        self._start_input = start_input.read(inputs)
        start = self._start_input.start
        carry_over = start.carry or CarryOver()
        self._start = start.model_copy(update={"carry": None})  # it may be large, and lives as long as the run
        self._progress = Progress.from_carry(carry_over)
        self._progress.earlier = continue_as_new.held(carry_over.earlier)
        self._commands = Commands(start, on_change=self._show)
        self._results = ActivityResults()
        self._agents = SubAgents(self._commands.approvals, self._results, tenant=start.tenant, on_change=self._show)
        self._awaited_worker = AwaitedWorker(on_change=self._show)
        self._calls = OpenCalls(
            self._commands.approvals,
            self._agents,
            self._results,
            self._awaited_worker,
            carried=carry_over.open or OpenReply(),
            chain=Chain(carry_over.chain_id, reset_run=carry_over.reset_run),
            on_outcome=self._take_outcome,
            stalled=self._commands.stalled,
        )
        self._visibility = Visibility(agent=start.agent, progress=self._progress, status=self._status)
        self._progress.model = self._progress.model or self._visibility.model
        self._limits = start.limits or Limits()
        self._facts: WorkerFacts | None = None
        if carry_over.facts:
            self._take_facts(carry_over.facts)
        self._started_at = carry_over.started_at or workflow.info().start_time.timestamp()
        self._open_reply = carry_over.open
        """Left by the run before this one, until it is taken up."""
        self._ended = False

    @workflow.run
    async def run(self, *_: Any) -> Outcome:
        if self._start_input.handed:
            await self._commands.stalled(self._start_input.problem, "Deploy the code that wrote it. Then resume.")
            if self._commands.closing:
                return self._outcome("cancelled", reason="the conversation was closed before it was answered")
            workflow.continue_as_new(self._start_input.handed_on(self._commands.inbox))
        if self._start_input.problem:
            raise ApplicationError(self._start_input.problem, type=names.INVALID_START, non_retryable=True)
        self._keeper = asyncio.create_task(continue_as_new.keep_in_time(self._progress, self._results))
        try:
            limit = await self._converse()
            if self._commands.late:
                await self._take_up_again()
        except (asyncio.CancelledError, ActivityError) as error:
            if not is_cancelled_exception(error):
                raise
            return self._outcome("cancelled", reason="the workflow was cancelled")
        if limit:
            return self._outcome("limit_reached", reason=limit)
        if problem := self._progress.output_problem:
            return self._outcome("failed", reason=f"the last reply does not fit the output type: {problem}")
        if cut := self._commands.turn_cancelled:
            return self._outcome("cancelled", reason=cut)
        if self._commands.abandoned and (self._progress.unseen or self._commands.inbox):
            return self._outcome("cancelled", reason="the conversation was closed before it was answered")
        return self._outcome("completed", reason=None)

    # ------------------------------------------------------------ the loop

    async def _converse(self) -> str | None:
        """Answers message after message; returns the limit that ended it, None if it came to its natural end."""
        while await self._next_message():
            reply, self._open_reply = self._open_reply, None
            turn = asyncio.create_task(self._answer(reply))
            self._commands.answering(turn)
            try:
                if limit := await turn:
                    return limit
            except (asyncio.CancelledError, ActivityError) as error:
                # Somebody cancelled the turn; or the workflow, which is not ours to survive.
                if not (self._commands.turn_cancelled and is_cancelled_exception(error)):
                    raise
                self._cut_short(self._commands.turn_cancelled)
                stop_if_cancelled()  # both at once: the workflow's goes before the turn's
        return None

    async def _next_message(self) -> bool:
        """Waits for something to answer; False once the conversation is over."""
        if self._commands.owed:
            return True
        await self._commands.message_or_end(self._start.keep_open)
        # An update that was accepted is answered before the run ends, and it may have brought a message.
        await workflow.wait_condition(workflow.all_handlers_finished)
        return bool(self._commands.inbox) and not self._commands.abandoned

    async def _answer(self, left: OpenReply | None) -> str | None:
        """Takes turns until a reply asks for no tool, or a limit is used up; returns that limit. `left`: the reply to
        begin with, which the run before this one left open."""
        if left:
            await self._settle(left.plan, limit=left.limit)
            if left.limit or self._commands.closing:
                return left.limit
        while True:
            self._progress.unseen += self._commands.take_messages()
            await self._continue_as_new_where_long()
            limit = self._limit_reached()
            if limit and not self._limits.conclude:
                return limit
            if self._progress.summary_due:
                await self._summarise()
            reply = await self._model_turn(conclude=limit)
            if reply is None:
                return None
            if reply.plan:
                await self._settle(reply.plan, limit=limit)
            if limit or self._commands.closing or (reply.final and not self._progress.ask_for_repair()):
                return limit

    async def _summarise(self) -> None:
        """Lets the model write a summary of what is old, to be shown in its place."""
        reply = await self._ask_model(summarise=True)
        if reply:
            self._progress.take_summary(reply)

    async def _model_turn(self, *, conclude: str | None) -> ModelReply | None:
        """The conversation's next reply; None if a person closed the conversation instead."""
        reply = await self._ask_model(conclude=conclude)
        if reply:
            self._progress.take_reply(reply)
            self._calls.open(reply)
            if reply.facts:
                self._take_facts(reply.facts)
            stop_if_cancelled()
        return reply

    async def _ask_model(self, *, conclude: str | None = None, summarise: bool = False) -> ModelReply | None:
        """A reply of the model, however long that takes: what retries and fallbacks can't cure waits for a person.

        None if that person closed the conversation instead.
        """
        before = self._progress.turn
        self._progress.turn += 1
        first = self._commands.model
        while True:
            await self._commands.unpaused()
            if self._commands.abandoned:
                return None
            # Here, too: a stall can be resumed any number of times, and each costs an update and some events.
            await self._continue_as_new_where_long(turn=before)
            self._show()
            try:
                return await self._call_model(conclude, summarise=summarise)
            except Unreadable as error:
                if self._commands.closing:
                    self._commands.abandoned = True
                    return None
                await self._commands.stalled(error.why, READ_AGAIN)
                if not self._commands.abandoned and (reply := self._read_again(error.raw)):
                    return reply
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                if self._commands.closing:
                    self._commands.abandoned = True  # nobody is going to resume it
                    return None
                if fallback := tool_results.detail(error, "fallback"):
                    self._commands.model = fallback
                elif tool_results.detail(error, "too_long") and not summarise:
                    await self._summarise()
                else:
                    self._commands.model = first  # who resumes it has the whole line of fallbacks again
                    await self._commands.stalled(tool_results.cause_of(error), tool_results.detail(error, "cure"))

    async def _call_model(self, conclude: str | None, *, summarise: bool) -> ModelReply:
        progress = self._progress
        delta, named = ((), ()) if summarise else progress.delta()
        request = ModelRequest(
            agent=self._start.agent,
            turn=progress.turn,
            position=progress.position,
            digest=progress.digest,
            delta=delta,
            named=named,
            model=self._commands.model or None,
            conclude=conclude,
            view=progress.view,
            summarise=summarise,
            stream=self._commands.stream,
            calls_left=progress.calls_left(self._limits),
        )
        summary = web_ui.turn_summary(progress.turn, self._commands.model or progress.model, summarise=summarise)

        async def start(hand_back_for: float | None) -> ModelReply:
            handle = workflow.start_activity(
                names.CALL_MODEL,
                request.model_copy(update={"hand_back_for": hand_back_for}),
                result_type=RawValue,
                summary=summary,
                event_groups=[turn_group(progress.turn)],
                **model_options(),
            )
            return await self._results.result(handle, ModelReply, f"The reply of turn {progress.turn}")

        return await self._awaited_worker.find(names.CALL_MODEL, start)

    def _read_again(self, raw: RawValue | None) -> ModelReply | None:
        """A reply that could not be read, now that a person has seen to it; None if it still can't be."""
        with suppress(Unreadable):
            return self._results.read(raw, ModelReply, f"The reply of turn {self._progress.turn}")
        return None

    async def _settle(self, plan: tuple[PlannedCall, ...], *, limit: str | None) -> None:
        """Gets a result for every call of the reply, and puts them into the transcript in the order of the calls."""
        turn = self._progress.turn
        with turn_group(turn).scope():
            results = await self._calls.settle(
                plan,
                agent=self._start.agent,
                turn=turn,
                at_once=self._limits.max_parallel_calls,
                meanwhile=self._continue_as_new_where_calls_wait(limit),
            )
        self._progress.take_results(results, recorded=self._calls.recorded)

    def _take_outcome(self, outcome: Outcome) -> None:
        """What another agent's conversation cost counts for this one, which asked."""
        self._progress.spend(outcome.usage, outcome.cost_usd)
        self._show()

    # ------------------------------------------------------------ from run to run

    async def _continue_as_new_where_long(self, *, turn: int | None = None) -> None:
        """Goes on as a new run, at a turn boundary: replay takes time with every event, and runs in one piece. `turn`:
        the last one that is over, if another has begun."""
        if not continue_as_new.due(updates=self._commands.handlers.updates):
            return
        await continue_as_new.fit_unseen(self._progress, self._results, agent=self._start.agent)
        # A message that comes in now makes Temporal repeat this task, and so is in the inbox that is handed over.
        await workflow.wait_condition(workflow.all_handlers_finished)
        stop_if_cancelled()
        if not (self._commands.may_move and self._commands.fit_inbox(MAX_INBOX_BYTES)):
            return  # the next boundary will do
        self._progress.turn = self._progress.turn if turn is None else turn
        workflow.continue_as_new(self._handed(started_at=self._started_at))

    async def _continue_as_new_where_calls_wait(self, limit: str | None) -> None:
        """Goes on as a new run while nothing but people is waited for: they may take long, and try often."""

        def due() -> bool:
            free = self._commands.may_move and workflow.all_handlers_finished()
            return free and continue_as_new.due(updates=self._commands.handlers.updates) and self._calls.only_wait

        for moment in (due, lambda: due() and self._commands.fit_inbox(MAX_OPEN_INBOX_BYTES)):
            await workflow.wait_condition(lambda moment=moment: self._calls.settled or moment())  # type: ignore[misc]
            if self._calls.settled:
                return
            handed = self._handed(started_at=self._started_at, reply=self._calls.handed_on(limit=limit))
            if continue_as_new.may_be_open(handed):
                workflow.continue_as_new(handed)

    def _handed(self, *, started_at: float, owed: bool = True, reply: OpenReply | None = None) -> Start:
        """What the next run is started with."""
        handed = continue_as_new.over(
            self._progress,
            self._commands,
            facts=self._facts,
            started_at=started_at,
            chain=self._calls.chain,
            owed=owed,
            reply=reply,
        )
        again = {"message": (), "message_id": None, "provider": "", "stream": self._commands.stream, "carry": handed}
        return self._start.model_copy(update=again)

    async def _take_up_again(self) -> None:
        """What was said while it closed takes it up again as a new run, as it would have right after its end."""
        self._cut_short("the conversation was closed")
        await continue_as_new.fit_unseen(self._progress, self._results, agent=self._start.agent)
        await workflow.wait_condition(workflow.all_handlers_finished)
        stop_if_cancelled()
        self._commands.inbox += self._commands.late
        workflow.continue_as_new(self._handed(started_at=workflow.time(), owed=False))

    # ------------------------------------------------------------ limits and the end

    def _take_facts(self, facts: WorkerFacts) -> None:
        self._facts = facts
        agents = {name: value for name, value in facts.limits.items() if name in Limits.model_fields}
        own = self._start.limits.model_dump(exclude_unset=True) if self._start.limits else {}
        self._limits = Limits(**{**agents, **own})  # what the start payload sets goes before the agent's
        self._progress.model = facts.model
        self._visibility.indexed |= facts.indexed

    def _limit_reached(self) -> str | None:
        return self._progress.limit_reached(self._limits, seconds=workflow.time() - self._started_at)

    def _cut_short(self, why: str) -> None:
        """Gives every call that is open a result that says so."""
        if cut := self._calls.close(why):
            self._progress.take_results(cut, recorded=self._calls.recorded)

    def _outcome(self, status: OutcomeStatus, *, reason: str | None) -> Outcome:
        progress = self._progress
        self._cut_short(reason or "the conversation ended")
        self._ended = True
        self._show()
        asked_for = self._start.caller.room if self._start.caller else None
        room = MAX_OUTCOME_BYTES if asked_for is None else min(asked_for, MAX_OUTCOME_BYTES)
        text, output = progress.said(room)
        return Outcome(
            status=status,
            text=text,
            output=output,
            turns=progress.turn,
            tool_calls=progress.tool_calls,
            usage=progress.usage,
            cost_usd=progress.cost_usd,
            reason=reason,
            tail=progress.tail(self._commands.inbox, room=room - size_of(text) - size_of(output)),
        )

    # ------------------------------------------------------------ what others see

    @property
    def turn(self) -> int:
        """For its log lines."""
        return self._progress.turn

    def _status(self) -> Status:
        commands, progress = self._commands, self._progress
        return Status(
            state=self._state,
            turn=progress.turn,
            waiting=tuple(waiting.shown() for waiting in commands.approvals.waiting.values()),
            agents=tuple(self._agents.running.values()),
            usage=progress.usage,
            cost_usd=progress.cost_usd,
            cause=self._awaited_worker.cause if commands.cause is None else commands.cause,
            cure=self._awaited_worker.cure if commands.cause is None else commands.cure,
            chain_id=self._calls.chain.id,
        )

    @property
    def _state(self) -> State:
        return "done" if self._ended else self._commands.state

    def _show(self) -> None:
        self._visibility.show(self._state)

    @workflow.query(name=names.STATUS, description="What goes on, what waits for whom, tokens and cost.")
    def status(self, *_: Any) -> dict[str, Any]:
        return short_status(self._status()).as_json()

    @workflow.query(name=names.TRANSCRIPT, description='A page of the messages: {"from": 0, "limit": 50}.')
    def transcript(self, *inputs: Any) -> dict[str, Any]:
        page = handlers.read(TranscriptPage, inputs)
        progress = self._progress
        start = max(page.start, progress.held_from)
        return {
            "from": start,
            "total": progress.position + len(progress.unseen),
            "messages": progress.page(start, page.limit),
        }
