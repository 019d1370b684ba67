"""Errors of calls to the Temporal server: which of them pass, and what the others mean, in everturn's words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure, WorkflowNotReadyFailure
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from everturn.errors import ConversationError, Ended, EverturnError, NotFound, Stalled, Unreachable
from everturn.temporal.any_status import held_up
from everturn.text.commands import command_about

P = ParamSpec("P")
R = TypeVar("R")

RECONNECT_SECONDS = 0.5

NAMESPACE_SECONDS = 30.0
"""How long a namespace that the server lacks is waited for."""

ANSWER_TRIES = 3

WORKER_TIMEOUT_SECONDS = 10.0
"""How long a decision or a status query waits for a worker to take it."""

_UNANSWERED = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)

_PASSING = (
    *_UNANSWERED,
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.UNKNOWN,  # "transport error": the connection broke before the server said anything
)

# The server tells these apart in words alone: the details of its errors are empty, or the same as those of others.
# tests/workflows/test_temporal_errors.py, test_used_up.py and test_namespace.py hold them against the real one.
_ABORTED = "aborted by closing"
_COMPLETED = "execution already completed"
_TURNED_DOWN = "unexpected workflow task failure"
_USED_UP = "total number of distinct updates"
_ATTRIBUTE = "search attribute Everturn"

_MOVED = ".CurrentBranchChangedFailure"
"""The server's own type, which its API does not have."""


def passes(error: RPCError) -> bool:
    """Whether the same call may succeed later: the server is away, coming back, or has too much to do."""
    return error.status in _PASSING


def namespace_missing(error: RPCError) -> bool:
    """Whether the server says that it lacks the namespace. One that is short of CPU says so of those that it has, too,
    so nothing follows from it for a conversation."""
    return any(detail.Is(NamespaceNotFoundFailure.DESCRIPTOR) for detail in error.grpc_status.details)


def not_found(error: RPCError) -> bool:
    """Whether what was asked for is not there, or is over: an execution, a run of it, or one of its tasks."""
    return error.status is RPCStatusCode.NOT_FOUND and not namespace_missing(error)


async def outlasting(
    ask: Callable[Concatenate[Client, P], Awaitable[R]], client: Client, *args: P.args, **options: P.kwargs
) -> R:
    """What the server answers, for callers that wait anyway: while it is away, it is asked again."""
    while True:
        try:
            return await ask(client, *args, **options)
        except RPCError as error:
            if not await will_pass(client, error):
                raise
        await asyncio.sleep(RECONNECT_SECONDS)


async def will_pass(client: Client, error: RPCError) -> bool:
    """As `passes`, for callers that wait anyway: a namespace that the server lacks is waited for, for a while."""
    if not namespace_missing(error):
        return passes(error)
    until = time.monotonic() + NAMESPACE_SECONDS
    while time.monotonic() < until:
        try:
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
            return True
        except RPCError as again:
            if not (namespace_missing(again) or passes(again)):
                return False
        await asyncio.sleep(RECONNECT_SECONDS)
    return False


async def ask_until_answered(ask: Callable[P, Awaitable[R]], *args: P.args, **options: P.kwargs) -> R:
    """The result of a call that may safely be made twice. A server that has too much to do may carry it out and not
    answer in time: it is asked again, ANSWER_TRIES times in all. Raises RPCError."""
    for _ in range(ANSWER_TRIES - 1):
        try:
            return await ask(*args, **options)
        except RPCError as error:
            if not unanswered(error):
                raise
    return await ask(*args, **options)


def unanswered(error: RPCError) -> bool:
    """Whether the server did not answer in time: it may have done what it was asked for."""
    return error.status in _UNANSWERED


def history_moved(error: RPCError) -> bool:
    """Whether the server has moved a run's history since the reading of it began, as after a task of the run's that was
    written twice. The whole history is there, and can be read anew."""
    return any(detail.TypeName().endswith(_MOVED) for detail in error.grpc_status.details)


def run_closed_first(error: RPCError) -> bool:
    """Whether an update came too late for its run, and was not taken. There may be a next run that takes it."""
    return not_found(error) and _ABORTED in error.message


def over(error: RPCError) -> bool:
    """Whether the run is over. If it is not, a run that was not found does not exist."""
    return not_found(error) and _COMPLETED in error.message


def task_turned_down(error: RPCError) -> bool:
    """Whether the server took nothing of the workflow task that an update was in. The next one may go better: one
    that ends the conversation while something else comes in is turned down once."""
    return error.status is RPCStatusCode.FAILED_PRECONDITION and _TURNED_DOWN in error.message


def task_fails(error: RPCError) -> bool:
    """Whether a run can answer nothing, because its workflow task fails again and again."""
    details = error.grpc_status.details
    return error.status is RPCStatusCode.FAILED_PRECONDITION and any(
        detail.Is(WorkflowNotReadyFailure.DESCRIPTOR) for detail in details
    )


def updates_used_up(error: RPCError) -> bool:
    """Whether the conversation's run has taken all the updates that Temporal allows a run."""
    return error.status is RPCStatusCode.FAILED_PRECONDITION and _USED_UP in error.message


def attribute_unknown(error: RPCError) -> bool:
    """Whether a server does not know one of our search attributes, or not yet."""
    return error.status is RPCStatusCode.INVALID_ARGUMENT and _ATTRIBUTE in error.message


@contextmanager
def explained(client: Client, conversation_id: str, what: str = "request") -> Iterator[None]:
    """Turns an RPCError of the block into the error of ours that says what to do; `what` was asked for."""
    try:
        yield
    except RPCError as error:
        raise in_our_words(error, client, conversation_id, what) from error


def no_worker(conversation_id: str, what: str) -> Unreachable:
    return Unreachable(
        f"No worker took the {what} for conversation {conversation_id!r} within {WORKER_TIMEOUT_SECONDS:.0f} s.",
        cure="Start one (`everturn worker`, or `python worker.py`) on its task queue. If one is running, read its log.",
    )


def refuse_if_held_up(described: WorkflowExecution, what: str) -> None:
    """Raises Unreachable if an operator has paused the workflow: the server then takes no update for it."""
    if held := held_up(described):
        cause, cure = held
        raise Unreachable(f"Conversation {described.id!r} can't take the {what}: {cause}", cure=cure)


def stalled_if_held_up(described: WorkflowExecution) -> None:
    """Raises Stalled if an operator has paused the workflow, for somebody who waits for what it does next."""
    if held := held_up(described):
        cause, cure = held
        raise Stalled(f"Conversation {described.id!r} does not go on: {cause}", cure=cure)


def breaks_off(conversation_id: str) -> Ended:
    return Ended(
        f"The history of conversation {conversation_id!r} is incomplete.",
        cure=f"`{command_about('show', conversation_id)}` shows the rest of it.",
    )


def unreachable(client: Client, error: RPCError) -> Unreachable:
    if namespace_missing(error):
        return unknown_namespace(client)
    address = client.service_client.config.target_host
    return Unreachable(
        f"The Temporal server at {address} returned an error: {error.message.rstrip('.')}.",
        cure="`everturn doctor` checks the connection.",
    )


def unknown_namespace(client: Client) -> Unreachable:
    name = client.namespace
    address = client.service_client.config.target_host
    return Unreachable(
        f"The Temporal server at {address} has no namespace {name!r}.",
        cure=f"Check TEMPORAL_NAMESPACE, or make it: temporal operator namespace create --namespace {name}. A server "
        "that is short of CPU says so of namespaces that it has, too: then try again.",
    )


def in_our_words(error: RPCError, client: Client, conversation_id: str, what: str) -> EverturnError:
    """The error of ours that says what to do; `what` was asked for."""
    if not_found(error):
        if over(error):
            return Ended(
                f"Conversation {conversation_id!r} is over.",
                cure="conversation.send(..., revive=True) continues it.",
            )
        return NotFound(f"There is no conversation {conversation_id!r}.", cure="`everturn list` shows those there are.")
    if unanswered(error):
        return no_worker(conversation_id, what)
    if task_fails(error) or task_turned_down(error):
        return Unreachable(
            f"Conversation {conversation_id!r} did not accept the {what}: its workflow task fails again and again.",
            cure="The worker's log and the Temporal Web UI say why. It goes on once the code is fixed "
            "or the missing key is there, and nothing is lost.",
        )
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return ConversationError(
            f"Temporal can't do that for conversation {conversation_id!r}: {error.message.rstrip('.')}.",
            cure="Check the id.",
        )
    return unreachable(client, error)
