"""What each recorded history is answered with: `python -m tests.replay.commands` writes it to tests/replay/expected/.

A replay compares the order and the kinds of commands with the history's. This has all that is in them, too: inputs,
summaries, headers, time-outs. Every process writes the same.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
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
from tests.replay import EXPECTED, HISTORIES


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


def commands(answers: list[dict[str, Any]]) -> list[str]:
    """A line for each command, with what its payloads say. Tasks that ask for nothing have none."""
    return [
        json.dumps({"task": task, **_decoded(command)}, ensure_ascii=False, sort_keys=True)
        for task, answer in enumerate(answers, 1)
        for command in answer["successful"].get("commands", [])
    ]


def _decoded(value: Any) -> Any:
    """With the JSON of each payload in its place, and without where on this machine an error came up."""
    match value:
        case {"metadata": {"encoding": _}, "data": data}:
            return json.loads(b64decode(data))
        case dict():
            return {name: _decoded(field) for name, field in value.items() if name != "stackTrace"}
        case list():
            return [_decoded(item) for item in value]
    return value


async def all_answers() -> dict[str, list[dict[str, Any]]]:
    """Of each recorded history, by its name."""
    interpreter_exit.runtime_is_used()
    return {file.stem: await answers(file) for file in sorted(HISTORIES.glob("*.json"))}


async def write_expected() -> None:
    EXPECTED.mkdir(exist_ok=True)
    for old in EXPECTED.glob("*.jsonl"):
        old.unlink()
    for name, answered in (await all_answers()).items():
        (EXPECTED / f"{name}.jsonl").write_text("\n".join([*commands(answered), ""]))


if __name__ == "__main__":
    asyncio.run(write_expected())
