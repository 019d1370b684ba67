"""Cancelling a turn: sends the text that people have already seen if no worker can hand it over, and waits for the end.

A worker that runs a turn hands over the text so far; if the worker is gone, Temporal has it from the last heartbeat.
Only between two tries does nobody hand over the text: then the client sends what people saw.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from everturn import names
from everturn.heartbeats.details import SeenReply, StreamedText, beaten_out, last_bytes, longer_reply, whole_reply
from everturn.live.lane import Lane, LaneDown, TurnKey
from everturn.sizes import MAX_STREAMED_BYTES
from everturn.temporal.any_status import RUNNING
from everturn.temporal.temporal_errors import WORKER_TIMEOUT_SECONDS

LONGEST_SECONDS = 1.6
"""How long reading from the lane may take."""

LOOK_SECONDS = 0.05
"""The first pause between two checks whether a turn is over; each pause is longer than the one before."""

LONGEST_LOOK_SECONDS = 0.5

BETWEEN_TRIES = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED


async def find_seen_reply(temporal: Client, conversation_id: str, lane: Lane | None = None) -> dict[str, Any] | None:
    """The text seen so far, for `Control.seen`; None if there is none, or if the turn's worker hands it over. Raises
    nothing."""
    described = await _describe_if_there(temporal, conversation_id)
    if described is None:
        return None
    turn = _turn_of(described)
    if turn is None or turn.state != BETWEEN_TRIES:
        return None
    seen = longer_reply(await _read_heartbeat(temporal, turn), await _read_lane(temporal, described, turn, lane))
    if not seen:
        return None
    return seen.model_dump(mode="json")


async def wait_for_end_of_turn(temporal: Client, conversation_id: str) -> None:
    """Waits until the cancelled turn has handed over its text and the conversation has it, for WORKER_TIMEOUT_SECONDS
    at most. Raises nothing."""
    deadline = time.monotonic() + WORKER_TIMEOUT_SECONDS
    pause = LOOK_SECONDS
    while time.monotonic() < deadline:
        described = await _describe_if_there(temporal, conversation_id)
        if described is None or described.raw_info.status != RUNNING:
            return
        turn = _turn_of(described)
        ends = turn is not None and turn.state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
        if not ends and not described.raw_description.HasField("pending_workflow_task"):
            return
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, LONGEST_LOOK_SECONDS)


async def _describe_if_there(temporal: Client, conversation_id: str) -> WorkflowExecutionDescription | None:
    with suppress(RPCError):
        return await temporal.get_workflow_handle(conversation_id).describe()
    return None


def _turn_of(described: WorkflowExecutionDescription) -> PendingActivityInfo | None:
    """The model turn that runs or is to be retried; None if there is none."""
    pending = described.raw_description.pending_activities
    return next((activity for activity in pending if activity.activity_type.name == names.CALL_MODEL), None)


async def _read_heartbeat(temporal: Client, turn: PendingActivityInfo) -> SeenReply | None:
    """The part of the turn's text that its last heartbeat holds."""
    with suppress(Exception):  # codecs raise all kinds
        return beaten_out(await temporal.data_converter.decode(turn.heartbeat_details.payloads))
    return None


async def _read_lane(
    temporal: Client, described: WorkflowExecutionDescription, turn: PendingActivityInfo, lane: Lane | None
) -> SeenReply | None:
    """The text that the turn's last try put onto the lane. None for lanes with addresses: between two tries, the worker
    that served the text is gone."""
    if lane is None or lane.has_addresses:
        return None
    with suppress(LaneDown, TimeoutError, ValueError):
        async with asyncio.timeout(LONGEST_SECONDS):
            key = TurnKey(temporal.namespace, described.run_id or "", turn.activity_id)
            streamed = whole_reply(await lane.so_far(key, None))
            return SeenReply.from_streamed(streamed and _end_of(streamed))
    return None


def _end_of(streamed: StreamedText) -> StreamedText:
    """As much of it as a heartbeat has."""
    position, pieces = last_bytes(streamed.pieces, MAX_STREAMED_BYTES, streamed.at)
    return streamed.model_copy(update={"at": position, "pieces": tuple(pieces)})
