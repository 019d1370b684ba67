"""The tool calls of one reply: each is approved if necessary, runs as an activity, and always ends as a ToolResult."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, assert_never

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import (
    ActivityError,
    ChildWorkflowError,
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from everturn import agent_in_charge, names
from everturn.calls.gate import DENIED_SINCE, before_run, for_answer, not_asked
from everturn.calls.pending_calls import PendingCall, decision_of
from everturn.calls.result_checks import check_of_answer, check_of_event, is_answer, withheld_result
from everturn.calls.unknown_outcomes import after_run
from everturn.carryover import OpenReply
from everturn.payloads import DecisionCheck, PersonsAnswer, ToolRequest
from everturn.plans import (
    AwaitAnswer,
    GatedPlan,
    PlannedCall,
    RefuseCall,
    RunAgent,
    RunElsewhere,
    RunHandoff,
    RunPlan,
    RunTool,
    UseResult,
)
from everturn.policy import Policy, rule_for
from everturn.records import Decision, ToolCall, ToolResult
from everturn.sizes import MAX_OUTCOME_BYTES, MAX_PAYLOAD_BYTES, MAX_RESULT_BYTES, size_of
from everturn.state import State
from everturn.subagents.results import result_of
from everturn.subagents.workflow import SubAgents
from everturn.text.iso_times import iso_time
from everturn.truncation import with_short_words
from everturn.workflows import tool_results, web_ui
from everturn.workflows.activity_results import ActivityResults, UnreadableResult
from everturn.workflows.applied_decisions import AppliedDecision
from everturn.workflows.approvals import PendingApprovals
from everturn.workflows.awaited_worker import AwaitedWorker, with_hand_back_for, with_remaining_details
from everturn.workflows.call_ledger import CallLedger
from everturn.workflows.cancellation import run_together, stop_if_cancelled
from everturn.workflows.history_space import HistorySpace
from everturn.workflows.nexus_operations import NexusOperations
from everturn.workflows.timeouts import check_options, local_options, result_check_options, tool_activity_options
from everturn.workflows.tracing import Tracing
from everturn.workflows.user_activity_calls import UserActivityCalls


class _GivenByHook(Exception):
    """A hook gave the result of a call with the arguments that a person put in: nothing runs."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.call_id)
        self.result = result


class OpenCalls:
    """The calls of the current reply. They run at the same time; their results are in the order of the calls."""

    def __init__(
        self,
        state: State,
        ledger: CallLedger,
        approvals: PendingApprovals,
        agents: SubAgents,
        activity_results: ActivityResults,
        awaited_worker: AwaitedWorker,
        tracing: Tracing,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._activity_results = activity_results
        self._space = HistorySpace()
        self._approvals = approvals
        self._agents = agents
        self._awaited_worker = awaited_worker
        self._tracing = tracing
        self.operations = NexusOperations(state, awaited_worker)
        self._activities = UserActivityCalls(
            state, ledger, activity_results, self._space, operations=self.operations, awaited_worker=awaited_worker
        )

    async def settle_all(
        self,
        planned: tuple[PlannedCall, ...],
        meanwhile: Coroutine[Any, Any, None],
    ) -> tuple[ToolResult, ...]:
        """Gets a result for every open call. As many tools run at the same time as the limits allow. `meanwhile` ends
        when all calls have."""
        self._slots = asyncio.Semaphore(self._state.limits.max_parallel_calls)
        plans = {plan.call_id: plan for plan in planned}
        unplanned = "This call has no plan, so it did not run. Call again."
        await run_together(
            *(
                self._settle_one(call, plans.get(call.call_id) or RefuseCall(call_id=call.call_id, text=unplanned))
                for call in self._ledger.calls
                if call.call_id not in self._ledger.results
            ),
            meanwhile,
        )
        return self.close_reply("")

    @property
    def only_wait(self) -> bool:
        """No call of the reply is running, and no decision is being checked: every call without a result waits for a
        person."""
        undecided = self._approvals.undecided
        known = self._ledger.results.keys() | undecided.keys()
        return (
            bool(undecided)
            and not self._approvals.decision_is_due
            and all(call.call_id in known for call in self._ledger.calls)
        )

    def handed_on(self) -> OpenReply:
        """The reply, in the form in which another run can continue it while its calls wait."""
        waiting = self._approvals.undecided
        return OpenReply(
            calls=self._ledger.calls,
            plan=tuple(pending.plan for pending in waiting.values()),
            waits=tuple(
                pending.asked.model_copy(update={"chain_id": self._ledger.chain_ids.get(call_id, "")})
                for call_id, pending in waiting.items()
            ),
            results=tuple(self._ledger.results.values()),
            told=self._ledger.in_events,
            refused_edits=self._approvals.refused_edits,
            limit=self._state.limit,
        )

    def close_reply(self, reason: str) -> tuple[ToolResult, ...]:
        """The results, in order. A call without one gets a result that says that it was cut short, and why."""
        results = self._ledger.close_reply(reason)
        self._approvals.end_waits()
        return results

    async def _settle_one(self, call: ToolCall, plan: PlannedCall) -> None:
        try:
            result = await self._carry_out(call, plan)
        except _GivenByHook as given:
            result = given.result
        has_event = call.call_id in self._ledger.recorded or call.call_id in self._ledger.from_outputs
        check = check_of_event(plan) if has_event else None
        if is_answer(plan, result):
            check = check_of_answer(plan)
        if check:
            result = await self._show_result_to_hooks(call, check, result)
        self._ledger.results[call.call_id] = result

    async def _show_result_to_hooks(self, call: ToolCall, plan: GatedPlan, result: ToolResult) -> ToolResult:
        """The result as the agent's `after_tool` hooks leave it. Nothing that they have not seen is passed on."""
        edited = result.decision.arguments if result.decision else None
        request = ToolRequest(
            agent=self._state.agent,
            turn=self._state.turn,
            call_id=call.call_id,
            arguments=call.arguments if edited is None else edited,
            tool=call.name,
            result=result,
            **self._state.start.labels,
        )
        summary = web_ui.summary_line(f"hooks see the result of {web_ui.one_line(call.name, 40)}")

        async def run_check(hand_back_for: float | None) -> ToolResult:
            sent = with_hand_back_for(hand_back_for, request)
            await self._space.wait_to_carry(size_of(sent))
            options = result_check_options(plan.hooks_after)
            handle = workflow.start_activity(names.CHECK_RESULT, sent, result_type=RawValue, summary=summary, **options)
            return await self._activity_results.wait_for(handle, ToolResult, f"The result of {call.name}")

        self._ledger.await_hooks(call.call_id)
        stop_if_cancelled()  # the cancellation came together with the result: no hook has seen it
        if (size := size_of(request)) > MAX_PAYLOAD_BYTES:
            problem = f"the call and its result have {size:,} bytes; the limit is {MAX_PAYLOAD_BYTES:,}"
            return withheld_result(call, problem, result.decision)
        room = await self._space.allot_share(request=size, other_calls=self._ledger.to_come)
        request = _with_room(request, room)
        try:
            with self._space.promised(call.call_id, room):
                checked = await self._awaited_worker.run_or_stall(f"check of the result of {call.call_id}", run_check)
        except (UnreadableResult, ActivityError) as error:
            if is_cancelled_exception(error):
                raise
            return withheld_result(call, tool_results.cause_of(error), result.decision)
        self._ledger.recorded.add(call.call_id)
        return checked

    async def _carry_out(self, call: ToolCall, plan: PlannedCall) -> ToolResult:
        match plan:
            case RefuseCall():
                return tool_results.error_result(call, plan.text)
            case UseResult():
                return await self._given_when_allowed(call, plan)
            case AwaitAnswer():
                return await self._answer_when_allowed(call, plan)
            case RunPlan():
                return await self._run_when_allowed(call, plan)
            case RunAgent():
                return await self._ask_agent_when_allowed(call, plan)
            case other:
                assert_never(other)

    async def _run_when_allowed(self, call: ToolCall, plan: RunTool | RunElsewhere | RunHandoff) -> ToolResult:
        """Runs the tool. Asks a person first if the plan says so, and again if the outcome of a run is not known."""
        pending = self._pending_call(call, plan)
        decision: Decision | None = None
        answer: PersonsAnswer | None = None
        rules = self._state.rules
        while True:
            if pending:
                pending, applied = await self._wait_for_decision(pending)
                rules = applied.rules
                if pending.tool_asks and not self._state.closing:
                    decision = pending.asked.decision
                    answer = applied.as_answer_to(pending.asked)
                elif applied.decision.verdict != "approve":
                    return _result_without_run(call, pending, applied)
                else:
                    decision = applied.decision
            as_shown = pending is not None and pending.is_as_hooks_saw(applied.decision)
            try:
                if isinstance(plan, RunHandoff):
                    decision = decision and await self._check_edit(call, decision, as_shown=as_shown)
                    if pending and (ended := await self._result_before_run(call, plan, decision, rules=rules)):
                        return ended
                    times = self._state.in_charge.handoffs_left(self._state.limits.max_handoffs)
                    return agent_in_charge.result_of(call, plan, handoffs_left=times, decision=decision)
                again = pending is not None and pending.is_doubtful
                return await self._run_tool(
                    call, plan, decision, answer, rules=rules, may_have_run=again, as_shown=as_shown
                )
            except (UnreadableResult, ActivityError) as error:
                pending = self._question_after_run(call, plan, pending, error, decision)
                if pending is None:
                    return tool_results.could_not_run_result(call, error, begun=call.call_id in self._ledger.lost)

    async def _ask_agent_when_allowed(self, call: ToolCall, plan: RunAgent) -> ToolResult:
        pending = self._pending_call(call, plan)
        decision: Decision | None = None
        rules = self._state.rules
        while True:
            try:
                if pending:
                    pending, applied = await self._wait_for_decision(pending)
                    rules = applied.rules
                    if applied.decision.verdict != "approve":
                        return _result_without_run(call, pending, applied)
                    as_shown = pending.is_as_hooks_saw(applied.decision)
                    decision = await self._check_edit(call, applied.decision, as_shown=as_shown)
                return await self._ask_agent(call, plan, decision, rules=rules)
            except (UnreadableResult, ActivityError) as error:
                pending = self._question_after_run(call, plan, pending, error, decision)
                if pending is None:
                    return tool_results.could_not_run_result(call, error, begun=False)

    async def _given_when_allowed(self, call: ToolCall, plan: UseResult) -> ToolResult:
        """The result that a hook gave; if a hook or a rule asks for it, after an approval."""
        pending = self._pending_call(call, plan)
        if pending is None:
            return plan.result
        while True:
            pending, applied = await self._wait_for_decision(pending)
            if applied.decision.verdict != "approve":
                return tool_results.result_of_decision(call, applied)
            try:
                as_shown = pending.is_as_hooks_saw(applied.decision)
                decision = await self._check_edit(call, applied.decision, as_shown=as_shown, given=True)
                ended = await self._result_before_run(call, plan, decision, rules=applied.rules)
                return ended or tool_results.with_approval(plan.result, decision)
            except (UnreadableResult, ActivityError) as error:
                after = self._question_after_run(call, plan, pending, error, applied.decision)
                if after is None:
                    return tool_results.could_not_run_result(call, error, begun=False)
                pending = after

    async def _answer_when_allowed(self, call: ToolCall, plan: AwaitAnswer) -> ToolResult:
        """Waits for the result of a call that runs outside; if the plan or a rule says so, for its approval first."""
        pending = self._pending_call(call, plan) or for_answer(call, plan)
        rules: Policy | None = None
        while True:
            pending, applied = await self._wait_for_decision(pending, rules=rules)
            rules = None
            approval = pending.asked.decision
            if pending.is_outside or applied.decision.verdict != "approve":
                return tool_results.result_of_decision(call, applied, approval=approval, begun=pending.may_have_begun)
            try:
                as_shown = pending.is_as_hooks_saw(applied.decision)
                approval = await self._check_edit(call, applied.decision, as_shown=as_shown)
            except (UnreadableResult, ActivityError) as error:
                after = self._question_after_run(call, plan, pending, error, applied.decision)
                if after is None:
                    return tool_results.could_not_run_result(call, error, begun=False)
                pending = after
                continue
            rules = applied.rules  # one that came while the approval was checked may deny it
            awaits = for_answer(call, plan, approval=approval, arguments=approval.arguments)
            pending = self._approvals.find_carried(call.call_id) or awaits

    async def _wait_for_decision(
        self, pending: PendingCall, *, rules: Policy | None = None
    ) -> tuple[PendingCall, AppliedDecision]:
        """The decision on the call that counts, and what it was about. An approval has the arguments that were
        approved, if they are not the model's. `rules`: those when somebody let it wait for that."""
        call_id = pending.call.call_id
        while True:
            pending = pending.asked_since(workflow.time())
            applied = await self._ask_person(pending, rules=rules)
            if applied.asks_first:
                pending = self._approvals.find_carried(call_id) or pending
                continue
            is_checked = pending.policy and not applied.by_rule
            if is_checked and (refusal := await self._find_refusal(pending.call, applied.decision)):
                self._approvals.take_back(call_id)
                pending = pending.after_check(decided_by=applied.decision.by, refusal=refusal)
                continue
            self._approvals.make_final(call_id)
            return pending, replace(applied, decision=pending.with_arguments(applied.decision))

    def _question_after_run(
        self,
        call: ToolCall,
        plan: PlannedCall,
        pending: PendingCall | None,
        error: UnreadableResult | ActivityError,
        decision: Decision | None,
    ) -> PendingCall | None:
        """What a person is asked after a run that brought no result; None if the model is told instead."""
        if is_cancelled_exception(error):
            raise error
        stop_if_cancelled()  # the cancellation came together with what can't be read: nobody is asked
        self._ledger.running.discard(call.call_id)
        kind = tool_results.kind_of(error)
        self._approvals.refused_edits += kind == names.INVALID_EDIT
        details = tool_results.left_by(error)
        proposed = tool_results.proposed_by(error)
        cause = tool_results.cause_of(error)
        return after_run(
            call, plan, pending, kind=kind, cause=cause, state_left=details, proposed=proposed, decision=decision
        )

    async def _check_edit(self, call: ToolCall, decision: Decision, *, as_shown: bool, given: bool = False) -> Decision:
        """The approval of a call that no worker runs. If a person has put in other arguments, a worker looks at them
        first: raises ActivityError if they do not fit, and _GivenByHook if a hook gives the result. `given`: a hook
        gave the result for the model's arguments."""
        if decision.arguments is None or as_shown:
            return decision
        request = self._tool_request(call, decision.arguments, decision, as_shown=as_shown)
        if given:
            request = request.model_copy(update={"given": True})
        checked = await self._activities.checked_edit(call, request)
        stop_if_cancelled()
        if checked.result:
            raise _GivenByHook(tool_results.with_approval(checked.result, decision))
        return decision.model_copy(update={"arguments": checked.arguments})

    async def _ask_person(self, pending: PendingCall, *, rules: Policy | None = None) -> AppliedDecision:
        """Waits for the decision on the call, however long it takes."""
        try:
            applied = await self._approvals.wait_for_decision(pending, rules=rules)
        except asyncio.CancelledError:
            self._tracing.note_wait(pending, None)
            raise
        self._tracing.note_wait(pending, applied.decision)
        return applied

    def _pending_call(self, call: ToolCall, plan: PlannedCall) -> PendingCall | None:
        """What a person is asked about the call, since the earlier run or by the plan; None if nobody is asked."""
        carried = self._approvals.find_carried(call.call_id)
        return carried or before_run(call, plan, self._state.rules, agent=self._state.agent)

    async def _ask_agent(
        self, call: ToolCall, plan: RunAgent, decision: Decision | None, *, rules: Policy
    ) -> ToolResult:
        find_end = self._finder_of_end(call, plan, decision, rules=rules)
        async with self._slots:
            if ended := await find_end():
                return ended
            self._ledger.running.add(call.call_id)
            try:
                room = await self._space.allot_share(
                    request=size_of(call), other_calls=self._ledger.to_come, max_bytes=MAX_OUTCOME_BYTES
                )
                if ended := await find_end():
                    self._ledger.running.discard(call.call_id)
                    return ended
                with self._space.promised(call.call_id, room):
                    message = plan.asks(call, edited=decision.arguments if decision else None)
                    outcome = await self._agents.ask_agent(call, plan, message, room=room)
            except (ChildWorkflowError, WorkflowAlreadyStartedError) as error:
                return tool_results.no_answer_result(call, error)
        result = result_of(call.call_id, call.name, outcome)
        if decision is None:
            self._ledger.recorded.add(call.call_id)
            return result
        self._ledger.from_outputs.add(call.call_id)
        return tool_results.with_approval(result, decision)

    def _finder_of_end(
        self, call: ToolCall, plan: GatedPlan, decision: Decision | None, *, rules: Policy | None
    ) -> Callable[[], Awaitable[ToolResult | None]]:
        """Finds, each time that it is called, what `_result_before_run` does. `rules`: those at the gate."""

        async def find_end() -> ToolResult | None:
            nonlocal rules
            looked_at_before = rules
            if rules is not None:
                rules = self._state.rules
            return await self._result_before_run(call, plan, decision, rules=looked_at_before)

        return find_end

    async def _result_before_run(
        self, call: ToolCall, plan: GatedPlan, decision: Decision | None, *, rules: Policy | None
    ) -> ToolResult | None:
        """The result of a call that is not to begin any more, though it has passed the gate: while it was checked or
        waited until others were done, the conversation was closed, or a rule came that denies it. `rules`: those that
        were looked at before; None if no rule may end it. None if it may begin."""
        denial: Decision | None = None
        if rules is not None and not self._state.closing:
            denial = await self._denial_since(rules, call, plan, decision)
        if self._state.closing:
            return ToolResult.cut_short(call, "the conversation was closed")
        return tool_results.result_of_decision(call, AppliedDecision(denial)) if denial else None

    async def _denial_since(
        self, rules: Policy, call: ToolCall, plan: GatedPlan, decision: Decision | None
    ) -> Decision | None:
        """The decision of a rule that came after these `rules` and denies the call; None if none does."""
        if self._state.rules == rules:
            return None
        if decision and decision.arguments is not None:
            call = call.model_copy(update={"arguments": decision.arguments})
        rule = rule_for(self._state.rules, call.name, call.arguments, agent=self._state.agent)
        if rule is None or rule.then != "deny" or not workflow.patched(f"{DENIED_SINCE}{call.call_id}"):
            return None
        denial = decision_of(rule, decided_at=iso_time(workflow.now()))
        if plan.policy and await self._find_refusal(call, denial):
            return None  # whoever made the rule may not decide
        return denial

    async def _find_refusal(self, call: ToolCall, decision: Decision) -> str:
        """Why the agent's `approvers` don't allow this person to decide; empty if they do."""
        state = self._state
        check = DecisionCheck(agent=state.agent, turn=state.turn, call=call, decision=decision, **state.start.labels)
        decider = "they" if self._state.start.visibility == "minimal" else web_ui.one_line(decision.by, 40)
        summary = web_ui.summary_line(f"may {decider} decide?")

        async def ask_policy(hand_back_for: float | None) -> str:
            request = with_hand_back_for(hand_back_for, check)
            await self._space.wait_to_carry(size_of(request))
            handle = workflow.start_activity(
                names.CHECK_DECISION, request, result_type=RawValue, summary=summary, **check_options()
            )
            refusal = await self._activity_results.wait_for(handle, str, "The policy's decision")
            stop_if_cancelled()  # the cancellation came together with the answer: nothing may run now
            return refusal

        try:
            return await self._awaited_worker.run_or_stall(f"check of {call.call_id}", ask_policy)
        except UnreadableResult as error:
            stop_if_cancelled()
            return error.problem
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return not_asked(tool_results.cause_of(error))

    def _tool_request(
        self, call: ToolCall, arguments: dict[str, JsonValue], decision: Decision | None, *, as_shown: bool
    ) -> ToolRequest:
        return ToolRequest(
            agent=self._state.agent,
            turn=self._state.turn,
            call_id=call.call_id,
            arguments=arguments,
            decision=decision,
            as_shown=as_shown,
            trace=self._tracing.of_call(),
            **self._state.start.labels,
        )

    async def _run_tool(
        self,
        call: ToolCall,
        plan: RunTool | RunElsewhere,
        decision: Decision | None,
        answer: PersonsAnswer | None,
        *,
        rules: Policy,
        may_have_run: bool,
        as_shown: bool,
    ) -> ToolResult:
        edited = decision.arguments if decision else None
        arguments = call.arguments if edited is None else edited
        if decision and answer:  # an answer leaves no room for a long note
            decision = with_short_words(decision)
        runs_once = plan.effect == "once"
        request = self._tool_request(call, arguments, decision, as_shown=as_shown and edited is not None).model_copy(
            update={
                "chain_id": self._ledger.chain_ids.setdefault(call.call_id, self._ledger.chain.id),
                "reset_run": self._ledger.chain.reset_run if runs_once else "",
                "again": may_have_run,
                "once": runs_once,
                "answer": answer,
            }
        )
        is_new = not may_have_run and answer is None  # otherwise, a person has decided on this run by itself
        find_end = self._finder_of_end(call, plan, decision, rules=rules if is_new else None)
        async with self._slots:
            if ended := await find_end():
                return ended
            if isinstance(plan, RunElsewhere):
                settled = self._activities.settle_call(
                    call, request, plan, other_calls=self._ledger.to_come, find_end=find_end
                )
                return await self._tracing.note_activity(call, settled)
            if plan.activity:
                request = request.model_copy(update={"tool": call.name})
            if plan.by_default and decision:
                request = request.model_copy(update={"by_default": plan.by_default})
            room = await self._space.allot_share(
                request=size_of(request), other_calls=self._ledger.to_come, local=plan.local
            )
            if ended := await find_end():
                return ended
            request = _with_room(request, room)
            start = with_remaining_details(request, lambda sent: self._start_tool(call, sent, plan))
            with self._space.promised(call.call_id, room):
                return await self._awaited_worker.run_or_stall(
                    call.call_id, start, patience=plan.patience, retried=plan.retried
                )

    async def _start_tool(self, call: ToolCall, request: ToolRequest, plan: RunTool) -> ToolResult:
        if plan.local and request.hand_back_for is None:
            try:
                return await self._run_activity(call, request, plan, local=True)
            except ActivityError as error:
                after = tool_results.delay_after_hurried_try(error) if plan.hurried else None
                if after is None and not tool_results.not_hosted(error):
                    raise  # otherwise, another worker has to run it, and only the queue finds that one
            if after:
                await workflow.sleep(after, summary=web_ui.summary_line(f"{call.name} asked for it"))
        return await self._run_activity(call, request, plan, local=False)

    async def _run_activity(self, call: ToolCall, request: ToolRequest, plan: RunTool, *, local: bool) -> ToolResult:
        activity = plan.activity or call.name
        summary = web_ui.call_summary(
            call.name,
            request.arguments,
            request.decision,
            changed_by=plan.changed_by,
            visibility=self._state.start.visibility,
            beside=activity,
        )
        start = workflow.start_local_activity if local else workflow.start_activity
        options = local_options(plan) if local else tool_activity_options(plan)
        handle = start(activity, request, result_type=RawValue, summary=summary or None, **options)
        self._ledger.running.add(call.call_id)
        try:
            result = await self._activity_results.wait_for(handle, ToolResult, f"The result of {call.name}")
            if result.call_id != call.call_id:
                raise UnreadableResult(f"The result of {call.name} belongs to another call, {result.call_id!r:.150}")
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            self._ledger.running.discard(call.call_id)
            if isinstance(error, ActivityError):
                if tool_results.may_have_run(error):
                    self._ledger.lost.add(call.call_id)
                raise
            raise tool_results.as_activity_error(error, call.name) from error
        self._ledger.recorded.add(call.call_id)
        return result


def _with_room(request: ToolRequest, room: int) -> ToolRequest:
    """Says how many bytes the result may have, if it may not have all that a result has at most."""
    return request.model_copy(update={"room": room}) if room < MAX_RESULT_BYTES else request


def _result_without_run(call: ToolCall, pending: PendingCall, applied: AppliedDecision) -> ToolResult:
    """The result that follows from a decision not to run it, or not again."""
    if pending.is_doubtful:
        return tool_results.unknown_outcome_result(call, applied)
    return tool_results.result_of_decision(call, applied)
