"""Adds to a status what the conversation does not know itself: that no worker polls the task queue where it waits;
that its turn waits for its provider's rate limit, which only the turn's heartbeats say; that the turn failed and will
be tried again, which leaves no event; and what became of the collector of its batch."""

from __future__ import annotations

import shlex
from contextlib import suppress

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecutionDescription

from everturn import names
from everturn.calls.causes import FailureCause, read_cause
from everturn.client.batch_collectors import with_collector
from everturn.client.unpolled_queue import awaited_queue, nobody_at
from everturn.heartbeats.details import AtLimit
from everturn.payloads import Status

CURE = "It goes on by itself. A higher limit, more keys or fewer conversations at the same time shorten the wait."


async def with_wait(status: Status, described: WorkflowExecutionDescription, temporal: Client) -> Status:
    """The status; if it runs and waits for a worker at a task queue that none polls, for a provider's rate limit, or
    for a batch whose collector is lost or held up, with that. Raises nothing."""
    if status.collector:
        return await with_collector(status, described.id, temporal)
    if status.state != "running" or status.cause:
        return await with_limit(status, described, temporal)
    queue = awaited_queue(described.raw_description)
    if queue and (unattended := await nobody_at(temporal, queue, described.id)):
        return status.model_copy(update={"cause": unattended.cause, "cure": unattended.cure})
    return await with_limit(status, described, temporal)


def _paused_activity(described: WorkflowExecutionDescription) -> tuple[str, str] | None:
    """Cause and cure, if an operator has paused a model turn or a tool's call with Temporal's own command."""
    for pending in described.raw_description.pending_activities:
        if pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED:
            place = f"--workflow-id {shlex.quote(described.id)} --activity-id {pending.activity_id}"
            return (
                f"An operator has paused the activity {pending.activity_type.name} in Temporal.",
                f"`temporal activity unpause {place}` sets it going again.",
            )
    return None


async def _failed_try(described: WorkflowExecutionDescription, temporal: Client) -> tuple[FailureCause, int] | None:
    """Why the model turn at hand failed before, and which try comes next; None if it has not. Raises nothing."""
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name == names.CALL_MODEL and pending.HasField("last_failure"):
            with suppress(Exception):  # codecs raise all kinds
                return await read_cause(temporal.data_converter, pending.last_failure), pending.attempt
    return None


async def with_limit(status: Status, described: WorkflowExecutionDescription, temporal: Client) -> Status:
    """The status; if its turn waited for a rate limit when it was `described`, with that provider. Raises nothing."""
    if status.state != "running":
        return status
    if not status.cause and (held := _paused_activity(described)):
        return status.model_copy(update={"cause": held[0], "cure": held[1]})
    failed_try = None if status.cause else await _failed_try(described, temporal)
    if failed_try and failed_try[0].kind == names.BUDGET_SILENT:
        return status.model_copy(update={"cause": failed_try[0].cause, "cure": failed_try[0].cure or None})
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name == names.CALL_MODEL:
            with suppress(Exception):  # codecs raise all kinds; and most turns say something else, or nothing
                details = await temporal.data_converter.decode(pending.heartbeat_details.payloads)
                limit = AtLimit.model_validate(details[1])
                cause = status.cause or f"Turn {status.turn} waits for the rate limit of {limit.limit_of}."
                more = {"limited_by": limit.limit_of, "cause": cause, "cure": status.cure or CURE}
                return status.model_copy(update=more)
    if failed_try:
        failed, next_try = failed_try
        cause = f"Turn {status.turn} is tried again (try {next_try}): {failed.cause}"
        return status.model_copy(update={"cause": cause, "cure": failed.cure or None})
    return status
