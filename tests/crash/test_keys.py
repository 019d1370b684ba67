"""A key never appears: not in a history, a log, an error or the command line's output, whatever fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.errors import Stalled
from everturn.providers.catalog import PROVIDERS
from everturn.testing import ScriptedModel, call, cut, fail, garbage
from everturn.testing.replay import read_histories
from tests.crash.workers import ROOT, WorkerProcess
from tests.support.prepared import run
from tests.support.waiting import eventually, waiting

MARK = "PLANTED"
KEYS = {name: f"sk-{MARK}-{name.lower()}-0123456789" for provider in PROVIDERS.values() for name in provider.keys}
KEYS |= {"HOUSE_KEY": f"house-{MARK}-0123456789"}
SENT = KEYS["HOUSE_KEY"]

AGENTS = """
import os
from everturn import Agent, Model, ToolFailed, tool

@tool
def stumble() -> str:
    raise RuntimeError("a stone")

@tool(needs_approval=True, effect="once")
def refund(cents: int) -> str:
    return f"refunded {cents}"

model = Model("openai-chat:house", base_url=os.environ["SCRIPTED_BASE_URL"], key_env="HOUSE_KEY")
clerk = Agent("clerk", model=model, tools=[stumble, refund])
"""

SCRIPT: list[Any] = [
    fail(500, f"while serving {SENT}"),
    cut("This sentence will never be finished.", after=1),
    garbage(f"<html>{SENT}</html>".encode(), content_type="text/html"),
    fail(429, f"Rate limit of {SENT}", headers={"retry-after": "0", "x-request-id": SENT}),
    # As vendors do.
    fail(401, f"Incorrect API key provided: {SENT}. You can find your API key at https://example.com."),
    [call("stumble"), call("no_such_tool"), call("refund", {"cents": 5}, id="r")],
    fail(400, body=f"{{{SENT}"),
    "Done.",
]


@pytest.fixture
def environment(server: DevServer, client: Client, tmp_path: Path) -> dict[str, str]:
    return {
        **KEYS,
        "PATH": str(Path(sys.executable).parent),
        "HOME": str(tmp_path),
        # What Python reads as it starts is ours: else each command would really start, see tests/support/prepared.py.
        **{name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))},
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": client.task_queue,
        "EVERTURN_LOG_LEVEL": "debug",
    }


@pytest.fixture
def model(scripted: Callable[..., ScriptedModel]) -> ScriptedModel:
    return scripted(SCRIPT)


@pytest.fixture
def worker(
    client: Client, model: ScriptedModel, tmp_path: Path, environment: dict[str, str]
) -> Iterator[WorkerProcess]:
    agents = tmp_path / "clerks.py"
    agents.write_text(AGENTS)
    worker = WorkerProcess(client, model, tmp_path, agents=str(agents), environment=environment)
    yield worker
    worker.kill()


@pytest.mark.long
async def test_a_whole_conversation_with_failures_shows_no_key(
    client: Client, worker: WorkerProcess, model: ScriptedModel, environment: dict[str, str]
) -> None:
    await eventually(lambda: worker.started, what="the worker has started")
    conversation = await client.start("clerk", "Refund me")
    seen: dict[str, str] = {}
    for number in range(2):
        with pytest.raises(Stalled) as stalled:
            await conversation.reply()
        seen[f"stall {number}"] = f"{stalled.value!r} {stalled.value} {stalled.value.__cause__}"
        if number == 0:
            for command in ("show", "list", "doctor"):
                seen[f"{command}, stalled"] = everturn(environment, command, *([conversation.id] * (command == "show")))
        await conversation.resume()
        if number == 0:
            await waiting(conversation)
            await conversation.approve("r")
    # Not reply(): a worker that stops before the last workflow task is done leaves the conversation open.
    assert (await conversation.outcome()).text == "Done."
    assert worker.stop() == 0

    # Every failure came, and each but the cut one had the key in it: otherwise this test would prove nothing.
    assert len(model.requests) >= 7
    for number, history in enumerate(await read_histories(client, conversation.id)):
        seen[f"history {number}"] = "".join(str(event) for event in history.events)
    seen["transcript"] = str(await conversation.transcript())
    seen["events"] = "".join([event.model_dump_json() async for event in conversation.events()])
    seen["the worker's log"] = worker.log.read_text()
    for arguments in COMMANDS:
        seen[" ".join(arguments)] = everturn(
            environment, *(argument.format(id=conversation.id) for argument in arguments)
        )
    assert "turn.failed" in seen["the worker's log"]
    assert {place for place, text in seen.items() if MARK in text} == set()


COMMANDS = [
    ("show", "{id}", "--json"),
    ("watch", "{id}"),
    ("watch", "{id}", "--json"),
    ("list", "--json"),
    ("models", "--json"),
    ("doctor",),
    ("replay", "--id", "{id}"),
    ("approve", "{id}"),
    ("send", "{id}", "hello"),
    ("run", "-m", "openai:no-such-model", "--nonsense"),
    ("show", "nobody"),
]


def everturn(environment: dict[str, str], *arguments: str) -> str:
    done = run("-m", "everturn", *arguments, cwd=ROOT, env=environment, timeout=180)
    return done.stdout + done.stderr


async def test_a_command_that_talks_to_the_provider_itself_shows_no_key(
    environment: dict[str, str], scripted: Callable[..., ScriptedModel]
) -> None:
    key = KEYS["OPENAI_API_KEY"]
    model = scripted([fail(401, f"Incorrect API key provided: {key}.")])
    talking = {**environment, "OPENAI_BASE_URL": model.base_url}
    said = everturn(talking, "run", "-m", "openai-chat:gpt", "hello")
    assert len(model.requests) == 1, said
    assert "401" in said
    assert MARK not in said
