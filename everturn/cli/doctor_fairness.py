"""`everturn doctor --fairness`: does the server respect priorities and fairness keys? No call of Temporal's says so.

It is tested in a task queue of its own. Many activities are scheduled there, then a few that ought to go first; then
their tasks are polled one by one. No activity runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from statistics import mean
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from temporalio.api.command.v1 import Command, ScheduleActivityTaskCommandAttributes
from temporalio.api.common.v1 import ActivityType
from temporalio.api.enums.v1 import CommandType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskCompletedRequest,
)
from temporalio.client import Client, WorkflowHandle
from temporalio.common import Priority
from temporalio.service import RPCError

from everturn.cli.doctor_finding import Finding

MANY = 60
FEW = 6
FIRST = MANY / 2
"""If the few go first, their mean place is about twice their number, as the queue has partitions; else near the end."""

LONGEST = timedelta(minutes=2)
"""The timeout of the test's workflows, in case this process is killed."""

POLL = timedelta(seconds=10)
SPOOLED_SECONDS = 10.0
WORKFLOW = ACTIVITY = "everturn doctor"


@dataclass(frozen=True)
class FairnessTrial:
    part: str
    many: Priority
    few: Priority
    ok: str
    wrong: str
    cure: str


TRIALS = (
    FairnessTrial(
        "priorities",
        Priority(priority_key=5),
        Priority(priority_key=1),
        "respected: the most urgent task came last and was handed out first",
        "ignored here: urgent tasks wait for all earlier ones",
        "Set matching.useNewMatcher in the server's dynamic configuration.",
    ),
    FairnessTrial(
        "fairness",
        Priority(fairness_key="many"),
        Priority(fairness_key="few"),
        "respected: the tenant with few tasks got its turn among the first",
        "ignored here: a tenant waits for all earlier tasks of the others",
        "Set matching.enableFairness in the server's dynamic configuration; on Temporal Cloud, switch it on for the "
        "namespace.",
    ),
)


async def fairness_findings(temporal: Client) -> AsyncIterator[Finding]:
    """Tests what the server does. Nothing is "wrong": nobody needs priorities or fairness to work. Raises RPCError."""
    for trial in TRIALS:
        place = await place_of_few(temporal, trial.many, trial.few)
        if place <= FIRST:
            yield Finding(trial.part, "ok", trial.ok)
        else:
            yield Finding(trial.part, "note", trial.wrong, trial.cure)


async def place_of_few(temporal: Client, many: Priority, few: Priority) -> float:
    """The mean place, counted from 1, at which the few were handed out."""
    queue = f"everturn-doctor-{uuid4().hex[:12]}"
    started: list[WorkflowHandle[object, object]] = []
    try:
        backlog = 0
        for name, count, priority in (("many", MANY, many), ("few", FEW, few)):
            started.append(await _schedule_tasks(temporal, queue, name, count, priority))
            backlog += count
            await _wait_for_backlog(temporal, queue, backlog)
        places: list[int] = []
        for place in range(1, MANY + FEW + 1):
            name = await _poll_next(temporal, queue)
            if name == "few":
                places.append(place)
            if len(places) == FEW:
                return mean(places)
        return float(MANY)
    finally:
        for handle in started:
            with suppress(RPCError):
                await handle.terminate("everturn doctor has finished its test")


async def _schedule_tasks(
    temporal: Client, queue: str, name: str, count: int, priority: Priority
) -> WorkflowHandle[object, object]:
    """Starts a workflow, and answers its first task as its worker: with `count` activities to schedule."""
    handle: WorkflowHandle[object, object] = await temporal.start_workflow(
        WORKFLOW, id=f"{queue}-{name}", task_queue=queue, execution_timeout=LONGEST
    )
    service = temporal.workflow_service
    task = await service.poll_workflow_task_queue(
        PollWorkflowTaskQueueRequest(namespace=temporal.namespace, task_queue=TaskQueue(name=queue), identity=queue),
        timeout=POLL,
    )
    commands = [
        Command(
            command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
            schedule_activity_task_command_attributes=ScheduleActivityTaskCommandAttributes(
                activity_id=f"{name}-{number}",
                activity_type=ActivityType(name=ACTIVITY),
                task_queue=TaskQueue(name=queue),
                schedule_to_close_timeout=Duration(seconds=int(LONGEST.total_seconds())),
                priority=priority._to_proto(),
            ),
        )
        for number in range(count)
    ]
    await service.respond_workflow_task_completed(
        RespondWorkflowTaskCompletedRequest(
            namespace=temporal.namespace, task_token=task.task_token, commands=commands, identity=queue
        )
    )
    return handle


async def _wait_for_backlog(temporal: Client, queue: str, count: int) -> None:
    """Waits until the server counts this many waiting tasks. Its count may lag: after SPOOLED_SECONDS it goes on."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_stats=True,
    )
    deadline = time.monotonic() + SPOOLED_SECONDS
    while time.monotonic() < deadline:
        described = await temporal.workflow_service.describe_task_queue(request, retry=True)
        if described.stats.approximate_backlog_count >= count:
            return
        await asyncio.sleep(0.2)


async def _poll_next(temporal: Client, queue: str) -> str:
    """The kind of the next task handed out: 'many' or 'few'; empty if there is none."""
    task = await temporal.workflow_service.poll_activity_task_queue(
        PollActivityTaskQueueRequest(namespace=temporal.namespace, task_queue=TaskQueue(name=queue), identity=queue),
        timeout=POLL,
    )
    return task.activity_id.partition("-")[0]
