"""Calls of sub-agents. Each is a separate conversation, a child of this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import TemporalError

from everturn import names
from everturn.calls.decision_records import InheritPolicy
from everturn.payloads import AskedAgent, Caller, Control, Start
from everturn.plans import RunAgent
from everturn.policy import Policy
from everturn.records import Outcome, ToolCall
from everturn.sizes import MAX_OUTCOME_BYTES
from everturn.state import State
from everturn.temporal.ids import child_id
from everturn.text.markdown import code, first_line, inline
from everturn.truncation import shortened_reason
from everturn.webhooks.conversation_events import Webhooks
from everturn.workflows.activity_results import ActivityResults
from everturn.workflows.cancellation import let_results_arrive, send_signal
from everturn.workflows.timeouts import sub_agent_options
from everturn.workflows.tracing import Tracing

Child = workflow.ChildWorkflowHandle[Any, RawValue]


class SubAgents:
    def __init__(
        self,
        state: State,
        activity_results: ActivityResults,
        tracing: Tracing,
        *,
        webhooks: Webhooks,
        on_change: Callable[[], None],
    ) -> None:
        self.running: dict[str, AskedAgent] = {}
        """The sub-agents' conversations, by call_id."""
        self._state = state
        self._activity_results = activity_results
        self._tracing = tracing
        self._webhooks = webhooks
        self._on_change = on_change

    async def ask_agent(self, call: ToolCall, plan: RunAgent, message: str, *, room: int) -> Outcome:
        """How the other agent's conversation ended; however long that takes, for it may wait for people too. What it
        cost is added to this one's.

        Raises ChildWorkflowError if it ended without an outcome, Unreadable if that can't be read, and
        WorkflowAlreadyStartedError if its id runs. A
        cancelled turn cancels it, a closed conversation closes it, and it does not outlive the one that asks.
        """
        parent = workflow.info().workflow_id
        rules = self._state.rules
        child = AskedAgent(call_id=call.call_id, agent=plan.agent, conversation_id=child_id(parent, call.call_id))
        self.running[call.call_id] = child
        self._on_change()
        try:
            handle = await _wait_for_start(
                workflow.start_child_workflow(
                    names.CONVERSATION,
                    Start(
                        agent=plan.agent,
                        message=message,
                        inherited=rules,
                        **self._state.start.labels,
                        notify=self._state.start.notify,
                        webhooks=self._webhooks.targets_for(child),
                        visibility=self._state.start.visibility,
                        stream=self._state.start.stream,
                        caller=Caller(
                            conversation_id=parent,
                            call_id=call.call_id,
                            turn=self._state.turn,
                            room=room if room < MAX_OUTCOME_BYTES else None,
                        ),
                        trace=self._tracing.of_child(),
                    ),
                    id=child.conversation_id,
                    result_type=RawValue,
                    memo=self._state.start.labels or None,
                    **self._summary_options(plan.agent, message, parent),
                    **sub_agent_options(),
                )
            )
            closing = asyncio.create_task(self._pass_on_close(handle))
            ruling = asyncio.create_task(self._pass_on_rules(handle, rules))
            try:
                outcome: Outcome = await self._activity_results.wait_for(
                    handle, Outcome, f"The outcome of {plan.agent}'s conversation"
                )
            finally:
                closing.cancel()
                ruling.cancel()
        finally:
            del self.running[call.call_id]
        self._state.totals.add_usage(outcome.usage, outcome.cost_usd)
        self._on_change()
        return outcome

    def _summary_options(self, agent: str, message: str, parent: str) -> dict[str, Any]:
        if self._state.start.visibility == "minimal":
            return {}
        return {
            "static_summary": first_line(message) or inline(agent),
            "static_details": f"Agent **{inline(agent)}**, asked by {code(parent)}",
        }

    async def _pass_on_close(self, handle: Child) -> None:
        await workflow.wait_condition(lambda: self._state.closing)
        with suppress(TemporalError):  # the child may have ended by now
            await send_signal(handle.signal(names.CLOSE, Control(reason="the conversation that asked was closed")))

    async def _pass_on_rules(self, handle: Child, known: Policy) -> None:
        """What people say of the calls of this conversation holds for those that it has others make. `known`: what the
        child was started with."""
        while True:
            await workflow.wait_condition(lambda known=known: self._state.rules != known)  # type: ignore[misc]
            known = self._state.rules
            changed = InheritPolicy(rules=known, by=shortened_reason(workflow.info().workflow_id))
            with suppress(TemporalError):  # the child may have ended by now
                await send_signal(handle.signal(names.INHERIT_POLICY, changed))


async def _wait_for_start(start: Coroutine[Any, Any, Child]) -> Child:
    """The child, once Temporal has begun it. A cancelled turn does not wait for that: its child is cancelled then.

    Before that, Temporal takes a cancellation for a mistake and fails the workflow task, unless it comes in the one
    that asks for the child."""
    asked_in = workflow.info().get_current_history_length()
    starting = asyncio.create_task(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await let_results_arrive()
        if _has_begun(starting):
            if task := asyncio.current_task():
                task.cancel()  # whoever waits for its result is told: that may have come, too
            return starting.result()
        if workflow.info().get_current_history_length() == asked_in:
            starting.cancel()
        starting.add_done_callback(_cancel_child)
        raise


def _has_begun(starting: asyncio.Task[Child]) -> bool:
    return starting.done() and not starting.cancelled() and not starting.exception()


def _cancel_child(starting: asyncio.Task[Child]) -> None:
    if _has_begun(starting):
        child = starting.result()
        child.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody asks for it any more
        child.cancel()
