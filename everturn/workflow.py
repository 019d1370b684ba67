"""Conversations in a workflow of your own, also in one that Temporal's sandbox runs.

    import everturn

    @workflow.defn
    class Returns:
        @workflow.run
        async def run(self, order_id: str) -> str:
            outcome = await everturn.workflow.ask("clerk", f"Order {order_id} arrived broken.")
            return outcome.text

Each conversation is a child workflow with a history and an id of its own, by which people decide on its calls. It is
cancelled with the workflow that asked. Any worker of its task queue that hosts the agent takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from everturn import names
from everturn.agent import Agent, name_of
from everturn.calls.decision_records import DECISION_RECORDS
from everturn.client.messages import MessageLike, make_checked, message_payload, start_payload
from everturn.client.seen_calls import seen_options
from everturn.client.trace_context import current_context
from everturn.client.typed_outcomes import TypedOutcome, typed_outcome
from everturn.errors import EverturnError, InvalidSetting
from everturn.heartbeats.profiles import QUICK
from everturn.limits import Limits
from everturn.models import Model, check_spelling
from everturn.payloads import Control, JoinRequest, Notify, Start, WaitingCall, WaitNotice
from everturn.records import Outcome
from everturn.sizes import check_input
from everturn.temporal.ids import id_problem
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.tenants.priorities import priority_of
from everturn.text.markdown import code, first_line, inline
from everturn.tools.output_type import OutputT_co
from everturn.validation.durations import problem_of

JOIN_TIMEOUT: Final = timedelta(minutes=1)
"""Of a try: it waits for 20 s."""

__all__ = ["ChildConversation", "TypedOutcome", "WaitNotice", "ask", "start"]


class ChildConversation(Generic[OutputT_co]):
    """A conversation that this workflow has started. Its methods send signals, and signals return nothing. They raise
    ApplicationError for what can't be sent, such as a number that JSON does not have."""

    def __init__(
        self,
        handle: workflow.ChildWorkflowHandle[Any, Any] | workflow.ExternalWorkflowHandle[Any],
        agent: Agent[OutputT_co] | None,
        *,
        joined: _JoinAttempt | None = None,
    ) -> None:
        self._handle = handle
        self._agent = agent
        self._joined = joined
        """Set if the conversation had been begun before, so that it is no child of this workflow."""

    @property
    def id(self) -> str:
        return self._handle.id

    async def outcome(self) -> TypedOutcome[OutputT_co]:
        """Waits for the end, through stalls and approvals, and returns it. Cancelling this cancels the conversation.
        Raises ChildWorkflowError if it ended without an outcome: terminated, or started with what makes no sense.

        If the conversation had been begun before, its outcome comes within ten seconds of its end, cancelling this only
        ends the wait, and an end without an outcome is an ActivityError."""
        if self._joined:
            joined = await self._joined.ask_worker(wait=True)
            with _fail_workflow():
                return typed_outcome(Outcome.model_validate({**joined["outcome"], "id": self.id}), self._agent)
        assert isinstance(self._handle, workflow.ChildWorkflowHandle)
        try:
            ended = await self._handle
        except ChildWorkflowError as error:
            # As everything else that is cancelled: by it, asyncio.timeout() knows what it has done.
            task = asyncio.current_task()
            if is_cancelled_exception(error) and task is not None and task.cancelling():
                raise asyncio.CancelledError from error
            raise
        with _fail_workflow():
            return typed_outcome(Outcome.model_validate({**ended, "id": self.id}), self._agent)

    async def send(self, message: MessageLike) -> None:
        """The user's next message."""
        with _fail_workflow():
            payload = message_payload(message, message_id=str(workflow.uuid4()))
        await self._handle.signal(names.MESSAGE, payload.model_dump(mode="json"))

    async def approve(
        self,
        call_id: str = names.EVERY_CALL,
        arguments: dict[str, JsonValue] | None = None,
        note: str | None = None,
        *,
        expected: WaitingCall | None = None,
    ) -> None:
        """Lets a call run, with `arguments` in place of the model's if given. Name the call: without `call_id`, a call
        that may have run already (`outcome_unknown`) runs again, too. `expected`: the call as a WaitNotice has it; the
        decision does nothing if something else is asked about it by then. So for all three."""
        edited = {} if arguments is None else {"arguments": arguments}
        await self._send_signal(names.APPROVE, {"call_id": call_id, "note": note, **edited, **seen_options(expected)})

    async def deny(
        self,
        call_id: str = names.EVERY_CALL,
        reason: str | None = None,
        *,
        expected: WaitingCall | None = None,
    ) -> None:
        """Denies a call: it does not run, and the model reads the reason."""
        await self._send_signal(names.DENY, {"call_id": call_id, "reason": reason, **seen_options(expected)})

    async def answer(
        self, call_id: str, content: JsonValue, *, is_error: bool = False, expected: WaitingCall | None = None
    ) -> None:
        """Gives a call's result instead of the tool: a text or JSON."""
        payload = {"call_id": call_id, "content": content, "is_error": is_error, **seen_options(expected)}
        await self._send_signal(names.ANSWER, payload)

    async def pause(self, reason: str | None = None) -> None:
        """Holds it before its next model turn."""
        await self._send_signal(names.PAUSE, {"reason": reason})

    async def resume(self, *, model: str | None = None) -> None:
        """Goes on after a pause or a stall, with another `model` if given."""
        await self._send_signal(names.RESUME, {"model": model})

    async def cancel_turn(self, reason: str | None = None) -> None:
        """Stops the model call and the tools that run."""
        await self._send_signal(names.CANCEL_TURN, {"reason": reason})

    async def close(self, reason: str | None = None) -> None:
        """Ends it: the current reply is finished, and waiting calls are denied."""
        await self._send_signal(names.CLOSE, {"reason": reason})

    async def _send_signal(self, signal: str, payload: dict[str, Any]) -> None:
        info = workflow.info()
        fields = {**payload, "by": f"{info.workflow_type} {info.workflow_id}"}
        with _fail_workflow():  # a conversation ignores what makes no sense: nobody would be told
            check_input(signal, fields)
            make_checked(DECISION_RECORDS.get(signal, Control), signal, **fields)
        await self._handle.signal(signal, fields)


async def ask(
    agent: Agent[OutputT_co] | str,
    message: MessageLike,
    *,
    id: str | None = None,  # noqa: A002 - as clients have it
    task_queue: str | None = None,
    model: str | None = None,
    limits: Limits | None = None,
    tenant: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    notify: str | None = None,
    priority: int | None = None,
    fairness_key: str | None = None,
    fairness_weight: float | None = None,
    again: bool = False,
) -> TypedOutcome[OutputT_co]:
    """Starts a conversation with the agent, waits for its end, and returns the outcome. Takes what `start` takes. The
    same `id` is the same work, as there."""
    conversation = await start(
        agent,
        message,
        id=id,
        task_queue=task_queue,
        model=model,
        limits=limits,
        tenant=tenant,
        metadata=metadata,
        notify=notify,
        priority=priority,
        fairness_key=fairness_key,
        fairness_weight=fairness_weight,
        again=again,
    )
    return await conversation.outcome()


async def start(
    agent: Agent[OutputT_co] | str,
    message: MessageLike,
    *,
    id: str | None = None,  # noqa: A002 - as clients have it
    task_queue: str | None = None,
    keep_open: timedelta | None = None,
    model: str | None = None,
    limits: Limits | None = None,
    tenant: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    notify: str | None = None,
    parent_close_policy: workflow.ParentClosePolicy = workflow.ParentClosePolicy.REQUEST_CANCEL,
    priority: int | None = None,
    fairness_key: str | None = None,
    fairness_weight: float | None = None,
    again: bool = False,
) -> ChildConversation[OutputT_co]:
    """Starts a conversation with the agent.

    - `id`: unless given, this workflow's id with the agent's name and random digits. **The same id is the same work**,
      as for `Client.start`: if the agent has begun with this message under the id before, in another workflow, in an
      earlier run or before a reset, that conversation is the one that is returned, whether it runs or is over.
    - `again`: starts anew if that conversation is over.
    - `task_queue`: where a worker hosts the agent; this workflow's unless given.
    - `keep_open`, `model`, `limits`, `tenant`, `metadata`, `priority`, `fairness_key`, `fairness_weight`: as for
      `Client.start`. What is not given of the last three is as for this workflow, but that a tenant is its own
      fairness key.
    - `notify`: a signal of this workflow's, which is sent to it when calls begin to wait for a person, of this
      conversation or of one that it asks: with a WaitNotice. A running conversation that somebody else has begun under
      the id would not send it: AlreadyStarted.
    - `parent_close_policy`: what happens to the conversation if this workflow ends first.

    Raises ApplicationError for what can't be sent, so that this workflow fails and does not retry for ever. Raises
    ActivityError, caused by an ApplicationError of the type AlreadyStarted, if the id has other work: another agent,
    first message or tenant.
    """
    with _fail_workflow():
        name = name_of(agent)
        if keep_open is not None and (reason := problem_of(keep_open)):
            raise InvalidSetting(f"keep_open={keep_open!r} is not a duration to keep a conversation open.", cure=reason)
        own_id = workflow.info().workflow_id
        payload = start_payload(
            message,
            may_be_empty=keep_open is not None,
            agent=name,
            keep_open=None if keep_open is None else keep_open.total_seconds(),
            model=model and check_spelling(Model(model)).name,
            limits=limits,
            tenant=tenant,
            metadata=metadata or {},
            notify=Notify(workflow_id=own_id, signal=notify) if notify else None,
            trace=current_context(),
        )
        child_id = f"{own_id}.{name}-{workflow.uuid4().hex[:8]}" if id is None else id
        if reason := id_problem(child_id):
            raise InvalidSetting(reason, cure="Give another id=.")
        order = priority_of(priority, fairness_key, fairness_weight, tenant=tenant)
    typed = agent if isinstance(agent, Agent) else None
    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
    while True:
        try:
            handle = await workflow.start_child_workflow(
                names.CONVERSATION,
                # Plain JSON, which any data converter writes: this workflow's worker need not know everturn's.
                payload.model_dump(mode="json"),
                id=child_id,
                task_queue=task_queue,
                task_timeout=TASK_TIMEOUT,
                id_reuse_policy=reuse,
                cancellation_type=workflow.ChildWorkflowCancellationType.TRY_CANCEL,
                parent_close_policy=parent_close_policy,
                static_summary=first_line(payload.as_message().text or name),
                static_details=f"Agent **{inline(name)}**, asked by {code(own_id)}",
                memo=payload.labels or None,
                priority=order,
            )
            return ChildConversation(handle, typed)
        except WorkflowAlreadyStartedError:
            joined = _JoinAttempt(child_id, payload, task_queue)
            if (await joined.ask_worker(wait=False))["begun"]:
                return ChildConversation(workflow.get_external_workflow_handle(child_id), typed, joined=joined)


@dataclass(frozen=True)
class _JoinAttempt:
    """Asks a worker that hosts agents for a conversation that has been begun already: a workflow can't look itself."""

    conversation_id: str
    start: Start
    task_queue: str | None

    async def ask_worker(self, *, wait: bool) -> dict[str, Any]:
        """Raises ActivityError if it is other work."""
        request = JoinRequest(conversation_id=self.conversation_id, start=self.start, wait=wait).model_dump(mode="json")
        what = "wait for" if wait else "look for"
        joined: dict[str, Any] = await workflow.execute_activity(
            names.JOIN_CONVERSATION,
            request,
            task_queue=self.task_queue,
            start_to_close_timeout=JOIN_TIMEOUT,
            heartbeat_timeout=QUICK.timeout,
            summary=first_line(f"{what} {self.conversation_id}"),
        )
        return {"begun": False, "outcome": {}, **joined}


@contextmanager
def _fail_workflow() -> Iterator[None]:
    """Any other exception would fail the workflow's task, which is then tried for ever."""
    try:
        yield
    except (EverturnError, ValueError) as error:
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error
