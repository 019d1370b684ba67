"""A worker is killed in the middle of a workflow task, of a conversation that others than our client started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType, TimeoutType

from everturn import Client
from everturn.cli.doctor_task_timeout import default_of, task_timeout_finding
from everturn.devserver import DevServer, find_binary
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.testing import ScriptedModel, call
from tests.crash.workers import WorkerProcess
from tests.support.histories import runs_of
from tests.support.waiting import eventually


@pytest.mark.parametrize("said", [("--task-timeout", "5s"), ()], ids=["5s", "nothing"])
@pytest.mark.parametrize("step", ["begin_turn", "take_reply"])
async def test_a_conversation_of_the_temporal_cli_goes_on_after_its_worker_was_killed_in_a_workflow_task(
    server: DevServer,
    client: Client,
    scripted: Callable[..., ScriptedModel],
    tmp_path: Path,
    step: str,
    said: tuple[str, ...],
) -> None:
    """In its first workflow task, and in a later one. Nothing is asked twice. The CLI says 10 s unless it is told: then
    only the first run has that."""
    (tmp_path / "may-end").touch()
    model, name = scripted([call("work", id="w"), "Done."]), f"cli-{client.task_queue}"
    doomed = WorkerProcess(
        client, model, tmp_path, agents="tests/crash/dies_in_workflow_task.py", environment={"DIES_IN": step}
    )
    await eventually(lambda: doomed.started)
    start = await asyncio.create_subprocess_exec(
        *(await find_binary(), "workflow", "start", "--address", server.address, "--type", "Conversation"),
        *("--task-queue", client.task_queue, "--workflow-id", name, *said),
        *("--input", json.dumps({"agent": "clerk", "message": "Go"})),
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await start.wait() == 0
    await eventually(lambda: doomed.process.poll() is not None)
    assert (tmp_path / "died").exists()
    survivor = WorkerProcess(client, model, tmp_path)
    try:
        conversation = client.conversation(name)
        outcome = await conversation.outcome()
        assert (outcome.status, outcome.text, len(model.requests)) == ("completed", "Done.", 2)
        runs = await runs_of(client, conversation)
        handles = [client.temporal.get_workflow_handle(name, run_id=run) for run in runs]
        histories = [(await handle.fetch_history()).events for handle in handles]
    finally:
        survivor.kill()
    firsts = [events[0].workflow_execution_started_event_attributes for events in histories]
    waits = [first.workflow_task_timeout.ToTimedelta() for first in firsts]
    assert waits == ([TASK_TIMEOUT] if said else [timedelta(seconds=10), TASK_TIMEOUT])
    lost = [
        event.workflow_task_timed_out_event_attributes.timeout_type
        for event in histories[0]
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
    ]
    assert TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE in lost


async def test_the_doctor_says_that_a_server_waits_longer_for_what_the_cli_starts(
    server: DevServer, client: Client
) -> None:
    assert await default_of(client.temporal) == TASK_TIMEOUT
    assert await task_timeout_finding(client.temporal) is None
    async with DevServer(dynamic_config={"history.defaultWorkflowTaskTimeout": '"10s"'}) as other:
        theirs = await Client.connect(other.address)
        finding = await task_timeout_finding(theirs.temporal)
        assert finding is not None
        assert (finding.state, finding.detail[:5]) == ("note", "10 s ")
        assert "history.defaultWorkflowTaskTimeout to 5s" in finding.cure

        async def nothing_left() -> bool:
            return [
                workflow.id async for workflow in theirs.temporal.list_workflows("WorkflowType = 'everturn doctor'")
            ] == []

        await eventually(nothing_left)
