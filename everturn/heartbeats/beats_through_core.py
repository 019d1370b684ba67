"""Beats through the SDK's core, from any thread.

The core has a timer of its own for each activity: the heartbeat timeout and five seconds. It counts only the beats that
come through it. If none comes, it cancels the activity as lost, whatever the server has heard meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import temporalio.worker
from temporalio.api.common.v1 import Payload

BeatThroughCore = Callable[[bytes, Sequence[Payload]], None]
"""Takes an activity's task token, and what the beat carries."""


def through_core(worker: temporalio.worker.Worker) -> BeatThroughCore | None:
    """None if this version of the SDK does not let anybody in: what is used here is not its public API."""
    try:
        from temporalio.bridge.proto import ActivityHeartbeat

        record = worker._bridge_worker.record_activity_heartbeat
    except (ImportError, AttributeError):
        return None

    def send_beat(task_token: bytes, details: Sequence[Payload]) -> None:
        record(ActivityHeartbeat(task_token=task_token, details=details))

    return send_beat
