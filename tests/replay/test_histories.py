"""Recorded conversations of every kind replay on today's code; a change that would break running ones fails here."""

from __future__ import annotations

import json
import os
import re
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory

from everturn import Client
from everturn.devserver import DevServer
from everturn.errors import NotFound
from everturn.records import ToolCall
from everturn.storage.data_converter import data_converter
from everturn.testing import Diverged, fail, record_history, replay_history
from everturn.testing.replay import read_histories
from everturn.workflows.call_ledger import CallLedger
from everturn.workflows.conversation import ConversationWorkflow
from tests.replay import HISTORIES
from tests.replay.kinds import KINDS
from tests.support import agreement, prepared
from tests.support.agents import agent_on, hosting
from tests.support.machine_names import named_in
from tests.support.waiting import reaches
from tests.support.watch import watched

FILES = sorted(HISTORIES.glob("*.json"))
CURE = "If the change is meant, put it behind workflow.patched(): docs/howto/change-workflows-safely.md."


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_a_recorded_history_replays_and_the_workflow_its_history_and_its_events_say_the_same_after_each_task(
    file: Path,
) -> None:
    recorded = file.read_text()
    history = WorkflowHistory.from_json(_id_in(recorded), recorded)
    assert len(history.events) > 3
    try:
        with watched() as seen:  # in threads, which are what is watched
            await agreement.check(history, data_converter, in_threads=True)
    except (RuntimeError, ValueError) as error:
        pytest.fail(f"{file.name} diverges: {error} {CURE}")
    assert seen == []
    assert file.stat().st_size < 64_000
    assert named_in(recorded) == [], "a recording names no machine and no process"


def _id_in(recorded: str) -> str:
    """Its children's ids depend on it."""
    begun: str = json.loads(recorded)["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    return begun


def test_every_kind_of_conversation_is_recorded() -> None:
    missing = KINDS.keys() - {file.stem for file in FILES}
    assert not missing, f"run `python -m tests.replay.record {' '.join(sorted(missing))}`"


async def test_an_activity_more_than_the_history_has_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = ConversationWorkflow._model_turn

    async def with_one_more(self: ConversationWorkflow, **options: Any) -> Any:
        await workflow.execute_activity("check_the_weather", schedule_to_close_timeout=HEARTBEAT)
        return await turn(self, **options)

    from everturn.workflows.timeouts import HEARTBEAT_TIMEOUT as HEARTBEAT

    monkeypatch.setattr(ConversationWorkflow, "_model_turn", with_one_more)
    with pytest.raises(Diverged, match=r"plain_reply\.json diverges: .*Nondeterminism"):
        await replay_history(HISTORIES / "plain_reply.json")


async def test_another_order_of_tool_calls_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_reply = CallLedger.begin_reply

    def backwards(self: CallLedger, calls: tuple[ToolCall, ...]) -> None:
        begin_reply(self, calls[::-1])

    monkeypatch.setattr(CallLedger, "begin_reply", backwards)
    with pytest.raises(Diverged, match="diverges"):
        await replay_history(HISTORIES / "parallel_tools.json")
    await replay_history(HISTORIES / "plain_reply.json")


@pytest.mark.parametrize(
    "planted",
    ["/home/ada/everturn/x.py", r"C:\Users\ada\x.py", "/Users/ada/everturn", "/srv2/everturn/x.py", "4711@ada"],
)
@pytest.mark.parametrize("place", ["a failure's message", "a stack trace", "a payload"])
def test_a_path_or_a_process_anywhere_in_a_recording_is_found(planted: str, place: str) -> None:
    history = json.loads((HISTORIES / "plain_reply.json").read_text())
    frame = f'  File "{planted}", line 3, in charge\n'
    match place:
        case "a payload":
            planted = b64encode(json.dumps({"seen": frame}).encode()).decode()
            history["events"][-1]["planted"] = {"payloads": [{"data": planted}]}
        case "a stack trace":
            history["events"][-1]["planted"] = {"failure": {"cause": {"stackTrace": frame}}}
        case _:
            history["events"][-1]["planted"] = {"failure": {"message": f"no file {planted}"}}
    assert len(named_in(json.dumps(history))) == 1


async def test_a_recording_of_a_failure_has_no_stack_trace(client: Client, scripted: Any, tmp_path: Path) -> None:
    agent = agent_on(scripted([fail(401, "no such key")]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await reaches(conversation, "stalled")
        (live,) = await read_histories(client, conversation.id)
        (file,) = await record_history(client, conversation.id, tmp_path / "stalled.json")
    assert "stackTrace" in live.to_json()
    assert "no such key" in (recorded := file.read_text())
    assert named_in(recorded) == []
    assert await replay_history(file) == len(live.events)


async def test_a_recorder_writes_what_the_replayer_reads(client: Client, scripted: Any, tmp_path: Path) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
    (file,) = await record_history(client, conversation.id, tmp_path / "folder" / "hello.json")
    assert await replay_history(file) == len(json.loads(file.read_text())["events"])
    with pytest.raises(NotFound, match="There is no conversation 'nobody'"):
        await record_history(client, "nobody", tmp_path / "nobody.json")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"events": []}', '{"events": [{"eventId": "1"}]}', "null", "\0"]
)
async def test_a_file_that_holds_no_history_is_refused_in_words(tmp_path: Path, content: str) -> None:
    file = tmp_path / "broken.json"
    file.write_text(content)
    with pytest.raises(NotFound, match=r"broken\.json holds (no history: \S+|the history of a 'Order')"):
        await replay_history(file)
    with pytest.raises(NotFound, match="can't be read: No such file"):
        await replay_history(tmp_path / "nowhere.json")


# ---------------------------------------------------------------- the command


@pytest.fixture
def diverging(tmp_path: Path) -> Path:
    """A history whose first activity is another."""
    history = json.loads((HISTORIES / "plain_reply.json").read_text())
    for event in history["events"]:
        if attributes := event.get("activityTaskScheduledEventAttributes"):
            attributes["activityType"]["name"] = "call_the_weather"
    file = tmp_path / "diverging.json"
    file.write_text(json.dumps(history))
    return file


def everturn(*arguments: str, address: str = "127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    return prepared.run("-m", "everturn", "replay", *arguments, timeout=180, env=_environment(address))


def _environment(address: str) -> dict[str, str]:
    return {**os.environ, "TEMPORAL_ADDRESS": address, "PATH": ""}


def test_the_command_says_ok_or_where_it_diverged_and_its_status_tells(diverging: Path) -> None:
    good = str(HISTORIES / "plain_reply.json")
    done = everturn(good)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"OK {re.escape(good)} \(\d+ events\)\n", done.stdout)
    done = everturn(good, str(diverging))
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["OK", "FAILED"]
    assert "call_the_weather" in done.stdout


def test_the_command_prints_json_for_programs(diverging: Path) -> None:
    done = everturn("--json", str(HISTORIES / "revived.json"), str(diverging))
    first, second = json.loads(done.stdout)
    assert (done.returncode, first["ok"], first["problem"], second["ok"]) == (1, True, None, False)


def test_the_command_without_anything_to_replay_is_a_usage_error() -> None:
    done = everturn()
    assert done.returncode == 2
    assert "--id" in done.stderr


async def test_the_command_replays_a_conversation_from_the_server(
    server: DevServer, client: Client, scripted: Any
) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
    done = everturn("--id", conversation.id, address=server.address)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["OK", conversation.id]), done.stderr
    done = everturn("--id", "nobody", address=server.address)
    assert done.returncode == 1
    assert "There is no conversation 'nobody'" in done.stderr
