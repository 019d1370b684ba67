"""Writes, as JSON, what each recorded history is answered with: `python -m tests.replay.commands FILE`.

A replay compares the order and the kinds of commands with the history's. This has all that is in them, too: inputs,
summaries, headers, time-outs. Every process writes the same.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from everturn.client import interpreter_exit
from everturn.storage.composed_converter import own_converter
from everturn.storage.data_converter import data_converter
from everturn.storage.unreadable import for_replayer
from everturn.workflows.conversation import ConversationWorkflow
from tests.replay import HISTORIES


class _Listening(UnsandboxedWorkflowRunner):
    """Keeps what a workflow answers Temporal with."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        activate = instance.activate

        def heard(act: WorkflowActivation) -> WorkflowActivationCompletion:
            completion = activate(act)
            self.answers.append(MessageToDict(completion))
            return completion

        instance.activate = heard  # type: ignore[method-assign]
        return instance


async def answers(file: Path) -> list[dict[str, Any]]:
    content = json.loads(file.read_text())
    begun = content["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    runner = _Listening()
    replayer = Replayer(
        workflows=[ConversationWorkflow],
        unsandboxed_workflow_runner=runner,
        data_converter=for_replayer(own_converter(data_converter)),
        build_id="any",  # else the SDK reads the code of all modules, for a second
    )
    await replayer.replay_workflow(WorkflowHistory.from_json(begun, content))
    return runner.answers


async def main(written: Path, names: str = "*") -> None:
    interpreter_exit.runtime_is_used()
    found = {file.stem: await answers(file) for file in sorted(HISTORIES.glob(f"{names}.json"))}
    written.write_text(json.dumps(found, sort_keys=True))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
