"""A turn that is to be cancelled: what its conversation could not learn from the one that runs it, and when it is over.

A worker that runs a turn hands over what it has said; if the worker is gone, Temporal has it from the last heartbeat.
Only between two tries does nobody hand over anything: then what people saw is sent along.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from everturn import names
from everturn.live.lane import Lane, LaneDown, TurnKey
from everturn.streamed import SeenReply, Streamed, beaten_out, last_chars, longer, whole
from everturn.temporal_errors import WORKER_TIMEOUT_SECONDS

LONGEST_SECONDS = 1.6
"""For a look at the lane."""

LOOK_SECONDS = 0.05
"""Between two looks whether a turn is over; each is longer than the one before."""

LONGEST_LOOK_SECONDS = 0.5

MOST_CHARS = 32_000
"""As a heartbeat holds, too."""

BETWEEN_TRIES = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED


async def seen_reply(temporal: Client, conversation_id: str, lane: Lane | None = None) -> dict[str, Any] | None:
    """As Control.seen; None if there is none, or if whoever runs the turn hands it over. Raises nothing: it is only a
    look."""
    described = await _described(temporal, conversation_id)
    turn = _turn_of(described) if described else None
    if described is None or turn is None or turn.state != BETWEEN_TRIES:
        return None
    seen = longer(await _beaten(temporal, turn), await _beside(temporal, described, turn, lane))
    return seen.model_dump(mode="json") if seen else None


async def cut_short(temporal: Client, conversation_id: str) -> None:
    """Returns once the turn that was cancelled has handed over what it has said, and its conversation has it; after
    WORKER_TIMEOUT_SECONDS at the latest. Raises nothing."""
    until, pause = time.monotonic() + WORKER_TIMEOUT_SECONDS, LOOK_SECONDS
    while time.monotonic() < until:
        described = await _described(temporal, conversation_id)
        if described is None or described.status != WorkflowExecutionStatus.RUNNING:
            return
        turn, raw = _turn_of(described), described.raw_description
        ends = turn is not None and turn.state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
        if not ends and not raw.HasField("pending_workflow_task"):
            return
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, LONGEST_LOOK_SECONDS)


async def _described(temporal: Client, conversation_id: str) -> WorkflowExecutionDescription | None:
    with suppress(RPCError):
        return await temporal.get_workflow_handle(conversation_id).describe()
    return None


def _turn_of(described: WorkflowExecutionDescription) -> PendingActivityInfo | None:
    """The model turn that is in hand; None if there is none."""
    pending = described.raw_description.pending_activities
    return next((one for one in pending if one.activity_type.name == names.CALL_MODEL), None)


async def _beaten(temporal: Client, turn: PendingActivityInfo) -> SeenReply | None:
    """What its last heartbeat has of its text."""
    with suppress(Exception):  # codecs raise all kinds
        return beaten_out(await temporal.data_converter.decode(turn.heartbeat_details.payloads))
    return None


async def _beside(
    temporal: Client, described: WorkflowExecutionDescription, turn: PendingActivityInfo, lane: Lane | None
) -> SeenReply | None:
    """What its last try has said on the lane. Who said it straight from its worker is gone, between two tries."""
    if lane is None or lane.has_addresses:
        return None
    with suppress(LaneDown, TimeoutError, ValueError):
        async with asyncio.timeout(LONGEST_SECONDS):
            key = TurnKey(temporal.namespace, described.run_id or "", turn.activity_id)
            said = whole(await lane.so_far(key, None))
            return SeenReply.of(said and _last_chars(said))
    return None


def _last_chars(streamed: Streamed) -> Streamed:
    """As much of it as a message may hold."""
    at, pieces = last_chars(streamed.pieces, MOST_CHARS, streamed.at)
    return streamed.model_copy(update={"at": at, "pieces": tuple(pieces)})
