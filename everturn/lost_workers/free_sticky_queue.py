"""If an activity of a lost worker is tried again here, frees its conversation from that worker's sticky queue."""

from __future__ import annotations

from temporalio import activity
from temporalio.api.enums.v1 import TimeoutType
from temporalio.service import RPCError

from everturn.logs import get_logger
from everturn.lost_workers.journal import RPC_TIMEOUT, release_conversation

_log = get_logger("everturn.worker")


async def free_queue_of_lost_worker() -> None:
    """Releases the conversation from the worker that was lost with this activity's last try, if one was.

    That worker usually held the conversation, too. Then the workflow task that takes this activity's result would be
    offered to that worker alone for two seconds.
    """
    info = activity.info()
    if info.attempt == 1 or info.workflow_id is None or info.workflow_run_id is None:
        return
    try:
        if await _was_lost(info, info.workflow_id, info.workflow_run_id):
            await release_conversation(activity.client(), info.workflow_id, info.workflow_run_id)
    except RPCError as error:  # a failure costs two seconds, and nothing else
        _log.debug("worker.not_released", error=str(error))


async def _was_lost(info: activity.Info, conversation_id: str, run_id: str) -> bool:
    """Whether the try before this one ended because its heartbeats stopped, on a worker that may have held the
    conversation: one that polls the conversations' queue."""
    handle = activity.client().get_workflow_handle(conversation_id, run_id=run_id)
    described = await handle.describe(rpc_timeout=RPC_TIMEOUT)
    return described.task_queue == info.task_queue and any(
        pending.last_failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
        for pending in described.raw_description.pending_activities
        if pending.activity_id == info.activity_id
    )
