"""Sends commands to a conversation; each is accepted, refused, or reported as possibly still to be carried out.

An update that no worker has taken yet stays with the server and is carried out when a worker comes: perhaps long after
the caller was told that it had failed. So before an update is given up, a signal withdraws it. The server accepts a
signal without a worker, and gives it to the next worker before the waiting updates, whatever any clock says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, NoReturn
from uuid import uuid4
from weakref import WeakValueDictionary

from temporalio.api.enums.v1 import PendingWorkflowTaskState
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everturn import names
from everturn.errors import InvalidSetting, OtherWorkflow, Refused, Unreachable
from everturn.history.decoding import UNREADABLE
from everturn.history.reader import first_step
from everturn.payloads import Status, WaitingCall
from everturn.storage.data_converter import NoValue
from everturn.temporal import temporal_errors
from everturn.text.commands import command_about
from everturn.validation.explaining import why_unreadable

RESEND_SECONDS = 0.05
"""The pause before an update is sent again, if the server refused the workflow task that it was in."""

STARTED = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED

REQUEST_TIMEOUT = timedelta(seconds=5)
GLANCE_TIMEOUT = timedelta(milliseconds=500)
SETTLE_SECONDS = 8.0
"""How long to wait for the end of a workflow task that a worker has begun: that worker may still take the update."""


SAME_CODING = "Set EVERTURN_ENCRYPTION_KEYS and EVERTURN_DATA_CONVERTER to the same values as where it runs."

MOST_UPDATES_AT_ONCE = 8
"""Updates that this process sends to one conversation at a time. The server accepts 10 at a time, and refuses further
ones after some seconds."""

_under_way: WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = WeakValueDictionary()
"""The limit of each conversation, by the event loop's `id()` and the conversation's id."""


async def send_update(client: Client, conversation_id: str, name: str, payload: dict[str, Any]) -> Any:
    """Returns the conversation's answer, for `readable_answer`. Raises Refused, RPCError, and Unreachable, which says
    what becomes of the command."""
    key = (id(asyncio.get_running_loop()), conversation_id)
    if (slots := _under_way.get(key)) is None:
        slots = _under_way[key] = asyncio.Semaphore(MOST_UPDATES_AT_ONCE)
    async with slots:
        return await _send_until_taken(client, conversation_id, name, payload)


async def _send_until_taken(client: Client, conversation_id: str, name: str, payload: dict[str, Any]) -> Any:
    handle = client.get_workflow_handle(conversation_id)
    deadline = time.monotonic() + temporal_errors.WORKER_TIMEOUT_SECONDS
    previous: _Update | None = None
    while True:
        # A new id each time: for an old one, the server would give the first update's result again.
        update = _Update(client, conversation_id, name, uuid4().hex)
        try:
            timeout = timedelta(seconds=temporal_errors.WORKER_TIMEOUT_SECONDS)
            return await handle.execute_update(name, payload, id=update.id, rpc_timeout=timeout)
        except UNREADABLE as error:  # by a data converter that is not ours: the command, or its answer
            return await update.unreadable_answer(error)
        except WorkflowUpdateFailedError as error:
            # The one before may have been carried out although the server said that it was not: then this one comes
            # too late, and by the same person's own decision.
            if previous and (answer := await previous.accepted_answer()) is not None:
                return answer
            raise _as_refused(error) from None
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None  # it is this task that was cancelled
            return await update.give_up(temporal_errors.no_worker(conversation_id, name))
        except RPCError as error:
            if temporal_errors.run_closed_first(error):
                continue
            if temporal_errors.updates_used_up(error):
                return await _by_signal(client, conversation_id, name, payload)
            if temporal_errors.task_turned_down(error) and time.monotonic() < deadline:
                previous = update
                await asyncio.sleep(RESEND_SECONDS)
                continue
            if not (temporal_errors.passes(error) or temporal_errors.task_turned_down(error)):
                if previous and (answer := await previous.accepted_answer()) is not None:
                    return answer  # with it, the conversation ended
                raise  # the server has not taken it
            return await update.give_up(temporal_errors.in_our_words(error, client, conversation_id, name))


async def _by_signal(client: Client, conversation_id: str, name: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Sends a signal in place of an update; its answer is made from the status before and after it."""
    addressed = _addressed_calls(await ask_status(client, conversation_id), name, payload)
    if name in names.DECISIONS and not addressed:
        raise Refused(
            f"No call {payload['call_id']!r} waits.",
            cure=f"`{command_about('show', conversation_id)}` shows the waiting calls.",
        )
    await client.get_workflow_handle(conversation_id).signal(name, payload, rpc_timeout=REQUEST_TIMEOUT)
    try:
        status_after = await ask_status(client, conversation_id)
    except RPCError as error:
        raise Unreachable(
            f"The {name} for conversation {conversation_id!r} was sent as a signal. No worker "
            "answers now: the next one that starts carries it out.",
            cure=f"Check with `{command_about('show', conversation_id)}`.",
        ) from error
    still = _addressed_calls(status_after, name, payload)
    if addressed and all(call in still for call in addressed):
        raise Refused(f"The conversation did not accept the {name}.", cure="Its worker's log says why: signal.ignored.")
    return {"call_ids": [call.call_id for call in addressed], "state": status_after.state}


def _addressed_calls(status: Status, name: str, payload: dict[str, Any]) -> list[WaitingCall]:
    wanted = payload.get("call_id")
    return [
        call
        for call in status.waiting
        if wanted in (names.EVERY_CALL, call.call_id) and not (name == names.APPROVE and call.needs == "answer")
    ]


async def ask_status(client: Client, conversation_id: str) -> Status:
    """Asks a worker. Raises RPCError; NotFound if another kind of workflow has that id; InvalidSetting."""
    handle = client.get_workflow_handle(conversation_id)
    timeout = timedelta(seconds=temporal_errors.WORKER_TIMEOUT_SECONDS)
    try:
        answer = await _read_answer(handle.query(names.STATUS, rpc_timeout=timeout))
    except WorkflowQueryFailedError as error:
        raise OtherWorkflow(
            f"There is no conversation {conversation_id!r}: that workflow is another one ({error.message}).",
            cure="`everturn list` shows those there are.",
        ) from error
    return Status.model_validate(readable_answer(answer, f"The status of conversation {conversation_id!r}"))


async def _read_answer(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except UNREADABLE as error:  # by a data converter that is not ours, which has no NoValue
        return NoValue(why_unreadable(error))


def readable_answer(answer: Any, what: str) -> dict[str, Any]:
    """The answer to a command or a query. Raises InvalidSetting if it is encrypted, and this process has no key."""
    if isinstance(answer, NoValue):
        raise InvalidSetting(
            f"{what} can't be read: {answer.why.rstrip('.')}.",
            cure=SAME_CODING,
        )
    known: dict[str, Any] = answer
    return known


class _Update:
    def __init__(self, client: Client, conversation_id: str, name: str, id: str) -> None:  # noqa: A002
        self.id = id
        self._client = client
        self._conversation_id = conversation_id
        self._name = name
        self._handle = client.get_workflow_handle(conversation_id)

    async def give_up(self, cause: Exception) -> Any:
        """Withdraws the update. Returns the answer if there is one after all; raises Refused, or Unreachable, which
        says whether the command may still be carried out."""
        over = False
        try:
            await self._handle.signal(names.WITHDRAW, {"update_id": self.id}, rpc_timeout=REQUEST_TIMEOUT)
        except RPCError as error:
            if not temporal_errors.not_found(error):
                self._raise_uncertain(cause)
            over = True
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                described = await self._handle.describe(rpc_timeout=REQUEST_TIMEOUT)
                if (answer := await self._find_answer(described)) is not None:
                    return answer
            except RPCError:
                self._raise_uncertain(cause)
            # A worker that begins with a workflow task from now on sees that it was withdrawn.
            begun = described.raw_description.pending_workflow_task.state == STARTED
            if over or not begun:
                raise Unreachable(
                    f"{_message_of(cause)} The {self._name} was withdrawn: it will not be carried out later.",
                    cure=getattr(cause, "cure", ""),
                ) from None
            if time.monotonic() > until:
                self._raise_uncertain(cause)
            await asyncio.sleep(RESEND_SECONDS)

    async def unreadable_answer(self, error: Exception) -> NoValue:
        """The answer, of which only `error` is known. Raises InvalidSetting if it was the command that could not be
        written, so that nothing was sent; and Refused."""
        unreadable = why_unreadable(error).rstrip(".")
        what = f"The {self._name} for conversation {self._conversation_id!r}"
        try:
            answer = await self._find_answer(await self._handle.describe(rpc_timeout=REQUEST_TIMEOUT))
        except RPCError:
            self._raise_uncertain(InvalidSetting(f"{what} or its answer can't be coded: {unreadable}."))
        if answer is None:
            raise InvalidSetting(f"{what} can't be written, and was not sent: {unreadable}.", cure=SAME_CODING)
        return NoValue(unreadable)

    def _raise_uncertain(self, cause: Exception) -> NoReturn:
        raise Unreachable(
            f"{_message_of(cause)} The {self._name} may still be carried out later: check with "
            f"`{command_about('show', self._conversation_id)}`.",
            cure=getattr(cause, "cure", ""),
        ) from None

    async def accepted_answer(self) -> Any | None:
        """What the conversation answered; None if it refused the update, or has not taken it, or that is not known."""
        try:
            return await self._find_answer(await self._handle.describe(rpc_timeout=REQUEST_TIMEOUT))
        except (Refused, RPCError):
            return None

    async def _find_answer(self, described: WorkflowExecutionDescription) -> Any | None:
        """What the conversation answered; None if neither this run nor the one before has taken the update."""
        run_id: str | None = described.run_id
        for _ in range(2):
            if run_id is None:
                break
            handle = self._client.get_workflow_handle(self._conversation_id, run_id=run_id)
            try:
                update = handle.get_update_handle(self.id, workflow_run_id=run_id)
                return await _read_answer(update.result(rpc_timeout=GLANCE_TIMEOUT))
            except WorkflowUpdateFailedError as error:
                if isinstance(error.cause, ApplicationError) and error.cause.type == names.WITHDRAWN:
                    return None
                raise _as_refused(error) from None
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                if isinstance(error.__cause__, asyncio.CancelledError):
                    raise error.__cause__ from None
                return None  # it waits for a worker
            except RPCError as error:
                if not temporal_errors.not_found(error):
                    raise
                started = await first_step(self._client, self._conversation_id, run_id)
                run_id = (started and started.previous_run_id) or None
        return None


def _as_refused(error: WorkflowUpdateFailedError) -> Refused:
    return Refused(str(getattr(error.cause, "message", error.cause)))


def _message_of(error: Exception) -> str:
    return str(getattr(error, "message", error))
