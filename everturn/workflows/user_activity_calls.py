"""Calls that users' own activities and Nexus operations serve, in any language. Each runs unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutError,  # noqa: A004 - Temporal's
    TimeoutType,
    is_cancelled_exception,
)

from everturn import names
from everturn.calls import activity_outputs
from everturn.payloads import ToolRequest
from everturn.plans import ActivityCall, CheckedCall, RunActivity, RunElsewhere, RunNexus
from everturn.records import ToolCall, ToolResult
from everturn.sizes import MAX_RESULT_BYTES, size_of
from everturn.state import State
from everturn.truncation import edit_notice
from everturn.workflows import tool_results, web_ui
from everturn.workflows.activity_results import ActivityResults, UnreadableResult
from everturn.workflows.awaited_worker import AwaitedWorker, with_hand_back_for
from everturn.workflows.call_headers import serving
from everturn.workflows.call_ledger import CallLedger
from everturn.workflows.cancellation import result_or_cancellation, stop_if_cancelled
from everturn.workflows.history_space import HistorySpace
from everturn.workflows.nexus_operations import ClosedBeforeStart, NexusOperations
from everturn.workflows.timeouts import check_options, user_activity_options

MOST_TRIES = 5
"""So many tries has an activity whose workers are lost. Then the model is told."""


CLOSED = "the conversation was closed"

NO_MORE_OPERATIONS = "This call did not run: too many Nexus operations were not answered. Call again in the next turn."

NO_ROOM = "This call did not run: the history has no room for its result before the next turn. Call again then."


class UserActivityCalls:
    def __init__(
        self,
        state: State,
        ledger: CallLedger,
        activity_results: ActivityResults,
        space: HistorySpace,
        *,
        operations: NexusOperations,
        awaited_worker: AwaitedWorker,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._activity_results = activity_results
        self._space = space
        self._operations = operations
        self._awaited_worker = awaited_worker

    async def settle_call(
        self,
        call: ToolCall,
        request: ToolRequest,
        plan: RunElsewhere,
        *,
        other_calls: int,
        find_end: Callable[[], Awaitable[ToolResult | None]],
    ) -> ToolResult:
        """The call's result. Raises ActivityError if there is none, and Unreadable if it can't be read. `find_end`: the
        result of a call that is not to begin any more; None if it may."""
        edited = request.decision is not None and request.decision.arguments is not None
        checked: CheckedCall | None = None
        if isinstance(plan, RunNexus):
            checked = await self._check_call(call, request.model_copy(update={"endpoint": plan.endpoint}))
        elif edited or plan.effect == "once":
            checked = await self._check_call(call, request)
        if checked and (ended := await find_end()):
            return ended
        if checked and checked.result:
            return tool_results.with_approval(checked.result, request.decision)
        arguments = call.arguments if plan.arguments is None else plan.arguments
        if checked and edited:
            arguments = checked.arguments
        request = request.model_copy(update={"arguments": arguments})
        size = size_of(request.arguments)
        room = await self._space.allot_whole(request=size, other_calls=other_calls)
        if not room:
            return tool_results.error_result(call, NO_ROOM)

        def start_run(hand_back_for: float | None) -> Awaitable[ToolResult]:
            return self._run_with_retries(call, with_hand_back_for(hand_back_for, request), plan)

        with self._space.promised(call.call_id, room):
            await self._space.wait_to_carry(size)
            if ended := await find_end():
                return ended
            temporal_retries = not isinstance(plan, RunActivity) or plan.task_queue is not None
            result: ToolResult = await self._awaited_worker.run_or_stall(
                call.call_id, start_run, patience=plan.patience, retried=temporal_retries
            )
        return result

    async def checked_edit(self, call: ToolCall, request: ToolRequest) -> CheckedCall:
        """The arguments that a person put in, for a call that no activity runs. Raises ActivityError if they do not
        fit."""
        return await self._check_call(call, request)

    async def _check_call(self, call: ToolCall, request: ToolRequest) -> CheckedCall:
        """The arguments as the activity takes them. Raises ActivityError if those that a person put in do not fit, or
        if a once call may have run before a reset."""

        async def run_check(hand_back_for: float | None) -> CheckedCall:
            check_request = request.model_copy(update={"hand_back_for": hand_back_for, "tool": call.name})
            await self._space.wait_to_carry(size_of(check_request))
            summary = web_ui.summary_line(f"may {web_ui.one_line(call.name, 40)} run?")
            handle = workflow.start_activity(
                names.CHECK_CALL, check_request, result_type=RawValue, summary=summary, **check_options()
            )
            checked = await self._activity_results.wait_for(handle, CheckedCall, f"The check of {call.name}")
            stop_if_cancelled()  # the cancellation came together with it: nothing may run now
            return checked

        looks = 0
        while True:
            try:
                checked: CheckedCall = await self._awaited_worker.run_or_stall(f"check of {call.call_id}", run_check)
            except UnreadableResult as error:
                raise tool_results.not_checked(error, call.name) from ApplicationError(
                    error.problem, type=names.NOT_CHECKED
                )
            looks += 1
            # After a reset to this point, the check was made for the old run, and has to be made again. In a replay,
            # the marker says whether it was.
            if checked.run_id == workflow.info().run_id or not workflow.patched(f"look {looks} again {call.call_id}"):
                return checked

    async def _run_with_retries(self, call: ToolCall, request: ToolRequest, plan: RunElsewhere) -> ToolResult:
        if isinstance(plan, RunNexus):
            if self._operations.is_full:
                return tool_results.error_result(call, NO_MORE_OPERATIONS)
            return await self._try_once(call, request, plan, is_retried=False)  # Temporal retries it by itself
        begun = workflow.time()
        tries = 1
        while True:
            # Temporal does not tell a worker that is lost from a failure, and retries both by one policy. So what is
            # lost is scheduled anew here, if the activity has none; a failure is for the model.
            time_left = workflow.time() - begun + plan.timeout < plan.patience
            is_retried = plan.retry is None and plan.effect != "once" and tries < MOST_TRIES and time_left
            try:
                return await self._try_once(call, request, plan, is_retried=is_retried)
            except ActivityError as error:
                if not (_was_lost(error) and is_retried):
                    raise
            tries += 1

    async def _try_once(
        self, call: ToolCall, request: ToolRequest, plan: RunElsewhere, *, is_retried: bool
    ) -> ToolResult:
        awaited = request.hand_back_for is not None
        served = ActivityCall(
            turn=request.turn,
            call_id=call.call_id,
            tool=call.name,
            awaited=awaited,
            own_queue=isinstance(plan, RunActivity) and plan.task_queue is None,
            again=is_retried,
        )
        handle = self._schedule_run(call, request, plan, served)
        self._ledger.running.add(call.call_id)
        closing: asyncio.Task[None] | None = None
        if awaited:
            closing = asyncio.create_task(self._stop_if_closed(handle))
        try:
            raw = await result_or_cancellation(handle, is_result=lambda error: _is_for_model(plan, error))
            value = self._activity_results.read_output(raw, activity_outputs.what_of(call.name))
        except ClosedBeforeStart as closed:
            return ToolResult.cut_short(call, CLOSED, running=closed.was_scheduled)
        except asyncio.CancelledError:
            if _was_closed(closing):
                return ToolResult.cut_short(call, CLOSED, running=True)
            raise
        except FailureError as error:
            if is_cancelled_exception(error):
                if _was_closed(closing):
                    return ToolResult.cut_short(call, CLOSED, running=True)
                if isinstance(plan, RunActivity):  # otherwise, its own side cancelled it
                    raise
            self._ledger.running.discard(call.call_id)
            result = self._result_of_failure(call, plan, error, awaited=awaited)
            return self._finish_call(result, request)
        finally:
            if closing:
                closing.cancel()
        result = activity_outputs.result_of(
            call.call_id, call.name, value, max_chars=plan.max_chars, room=_room_for_result(request)
        )
        return self._finish_call(result, request)

    def _schedule_run(
        self, call: ToolCall, request: ToolRequest, plan: RunElsewhere, served: ActivityCall
    ) -> asyncio.Task[RawValue]:
        visibility = self._state.start.visibility
        summary = web_ui.call_summary(
            call.name,
            request.arguments,
            request.decision,
            changed_by=plan.changed_by,
            visibility=visibility,
            beside=plan.activity if isinstance(plan, RunActivity) else "",
        )
        inputs = _activity_inputs(plan, request.arguments)
        if isinstance(plan, RunNexus):
            ran = self._operations.run_operation(plan, inputs, served, chain_id=request.chain_id, summary=summary)
            return asyncio.create_task(ran)
        with serving(served):
            handle: asyncio.Task[RawValue] = workflow.start_activity(
                plan.activity,
                args=inputs,
                activity_id=f"{names.ACTIVITY_OF_CALL}{call.call_id}",
                result_type=RawValue,
                summary=summary or None,
                **user_activity_options(plan, awaited=served.awaited),
            )
        return handle

    def _finish_call(self, result: ToolResult, request: ToolRequest) -> ToolResult:
        self._ledger.from_outputs.add(result.call_id)
        return tool_results.with_approval(result, request.decision)

    async def _stop_if_closed(self, handle: asyncio.Task[Any]) -> None:
        """Nobody waits for days for a worker of a conversation that was closed."""
        await workflow.wait_condition(lambda: self._state.closing)
        handle.cancel()

    def _result_of_failure(
        self, call: ToolCall, plan: RunElsewhere, error: FailureError, *, awaited: bool
    ) -> ToolResult:
        """What the model is told of a failure. Raises ActivityError if the activity did not say of itself that it
        failed."""
        cause = error.cause or error
        if _is_for_model(plan, error):
            return activity_outputs.failure_of(call.call_id, call.name, cause, max_chars=plan.max_chars)
        if isinstance(plan, RunNexus):
            raise tool_results.as_activity_error(error, plan.operation) from cause
        if isinstance(cause, TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START:
            queue = plan.task_queue or workflow.info().task_queue
            within = user_activity_options(plan, awaited=awaited)["schedule_to_start_timeout"].total_seconds()
            error_text, cure = activity_outputs.not_taken(plan.activity, queue, within)
            not_taken = ApplicationError(error_text, {"cure": cure}, type=names.NOT_TAKEN)
            raise tool_results.as_activity_error(error, plan.activity) from not_taken
        raise error


def _activity_inputs(plan: RunElsewhere, arguments: dict[str, JsonValue]) -> list[JsonValue]:
    """As the activity takes them. What comes last and is missing has the activity's own defaults."""
    if plan.by_position is None:
        return [arguments]
    given = [index for index, name in enumerate(plan.by_position) if name in arguments]
    count = given[-1] + 1 if given else 0
    return [arguments.get(name) for name in plan.by_position[:count]]


def _is_for_model(plan: RunElsewhere, error: BaseException) -> bool:
    """Whether the activity or operation said of itself that it failed, which is the call's result."""
    if not isinstance(error, FailureError):
        return False
    cause = error.cause or error
    if isinstance(cause, TimeoutError):
        return False
    if isinstance(plan, RunNexus):
        return True  # its own side may have cancelled it, too
    handed_back = isinstance(cause, ApplicationError) and cause.type == names.NOT_HOSTED and plan.task_queue is None
    return not (handed_back or is_cancelled_exception(error))


def _was_lost(error: ActivityError) -> bool:
    cause = error.cause
    return isinstance(cause, TimeoutError) and cause.type in (TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE)


def _room_for_result(request: ToolRequest) -> int:
    return MAX_RESULT_BYTES - size_of(request.decision) - size_of(edit_notice(request.decision))


def _was_closed(closing: asyncio.Task[None] | None) -> bool:
    """Whether it was cancelled since the conversation was closed, and not together with the turn."""
    return bool(closing and closing.done() and not _is_cancelled())


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return bool(task and task.cancelling())
