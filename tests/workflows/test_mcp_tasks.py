"""Calls that MCP servers make tasks of: followed over killed workers and servers, and never sent twice."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everturn import Client, McpServer
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.ports import free_port, listens
from tests.support.prepared import Program
from tests.support.transcripts import results_of, texts
from tests.support.waiting import eventually, reaches, until, waiting

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]


class Press:
    """The server of mcp_press.py, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def lines(self, word: str) -> list[str]:
        file = self.folder / "log"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.split()[0] == word]

    def tasks(self, word: str) -> set[str]:
        return {line.split()[1] for line in self.lines(word)}

    def make(self, name: str) -> None:
        (self.folder / name).touch()

    @contextmanager
    def runs(self) -> Iterator[None]:
        command = ("-m", "tests.support.mcp_press", str(self.folder), str(self.port))
        process = Program(*command, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            until(lambda: listens(self.port))
            yield
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def press(tmp_path: Path) -> Press:
    return Press(tmp_path)


WORKER = """
from everturn import Agent, McpServer
clerk = Agent("clerk", model="scripted:test", tools=[McpServer(url={url!r})])
"""


@pytest.mark.parametrize("tool", ["print_book", "bind_book"])
async def test_a_task_is_followed_by_another_worker_once_its_own_was_killed(
    client: Client, scripted: Scripted, press: Press, tool: str
) -> None:
    model = scripted([[call(tool, {"book": "Emma"}), call("quote", {"book": "Emma"})], "Done."])
    file = press.folder / "press_agents.py"
    file.write_text(WORKER.format(url=press.url))
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": client.temporal.service_client.config.target_host,
        "EVERTURN_TASK_QUEUE": client.task_queue,
        "EVERTURN_AGENTS": str(file),
        "SCRIPTED_BASE_URL": model.base_url,
    }
    with press.runs():
        with Program(str(ROOT / "worker.py"), env=environment, stderr=subprocess.DEVNULL) as worker:
            conversation = await client.start("clerk", "Print it")
            [asked] = set(await eventually(lambda: press.lines("get")))
            worker.kill()
        agent = agent_on(model, tools=[McpServer(url=press.url)])
        before = len(press.lines("get"))
        async with hosting(client, agent):
            await eventually(lambda: len(press.lines("get")) > before + 2)
            press.make("go")
            assert (await conversation.outcome()).text == "Done."
    assert [line.split()[1] for line in press.lines(tool)] == [asked.split()[1]], (
        "it was sent once, and one was followed"
    )
    assert await texts(conversation) == ["printed Emma", "4 cents"]


async def test_a_task_is_followed_over_a_server_that_is_killed_and_comes_back(
    client: Client, scripted: Scripted, press: Press
) -> None:
    model = scripted([call("print_book", {"book": "Emma"}), "Done."])
    agent = agent_on(model, tools=[McpServer(url=press.url)])
    async with hosting(client, agent):
        with press.runs():
            conversation = await client.start(agent, "Print it")
            await eventually(lambda: press.lines("get"))
        press.make("go")
        with press.runs():
            assert (await conversation.outcome()).text == "Done."
    assert len(press.lines("print_book")) == 1
    assert await texts(conversation) == ["printed Emma"]


async def test_what_a_task_asks_waits_for_a_person_and_goes_to_the_same_task(
    client: Client, scripted: Scripted, press: Press
) -> None:
    model = scripted([call("print_book", {"book": "Emma"}), "Done."])
    agent = agent_on(model, tools=[McpServer(url=press.url)])
    press.make("ask")
    press.make("go")
    with press.runs():
        async with hosting(client, agent):
            conversation = await client.start(agent, "Print it")
            [call_id] = await waiting(conversation)
            [asked] = (await conversation.status()).waiting
            assert (asked.reason, asked.why) == ("tool_asks", "Which paper? (answer with paper: a text)")
        async with hosting(client, agent):  # another worker, and another connection
            await conversation.answer(call_id, " on laid paper")
            assert (await conversation.outcome()).text == "Done."
    assert len(press.lines("print_book")) == len(press.lines("update")) == 1
    assert await texts(conversation) == ["printed Emma on laid paper"]


async def test_a_task_that_nobody_waits_for_any_more_is_cancelled(
    client: Client, scripted: Scripted, press: Press
) -> None:
    model = scripted([call("print_book", {"book": "Emma"}), "Done."])
    agent = agent_on(model, tools=[McpServer(url=press.url)])
    with press.runs():
        async with hosting(client, agent):
            conversation = await client.start(agent, "Print it", keep_open=timedelta(minutes=5))
            await eventually(lambda: press.lines("get"))
            await conversation.cancel_turn()
            await eventually(lambda: press.lines("cancel"))
            await conversation.close()
            await conversation.outcome()
    assert {line.split()[1] for line in press.lines("cancel")} == {
        line.split()[1] for line in press.lines("print_book")
    }


async def test_a_task_that_fails_is_told_to_the_model_and_one_that_is_forgotten_to_a_person(
    client: Client, scripted: Scripted, press: Press
) -> None:
    model = scripted([call("print_book", {"book": "Emma"}), call("print_book", {"book": "Emma"}), "Done."])
    agent = agent_on(model, tools=[McpServer(url=press.url)])
    press.make("fail")
    with press.runs():
        async with hosting(client, agent):
            conversation = await client.start(agent, "Print it")
            await eventually(lambda: len(press.lines("print_book")) == 1)
            await eventually(lambda: press.lines("get"))
            (press.folder / "fail").unlink()
            _, task = (await eventually(lambda: press.lines("print_book")[1:]))[0].split()
            await eventually(lambda: f"get {task}" in press.lines("get"))
            (press.folder / task).unlink()
            await reaches(conversation, "awaiting_approval")
            [asked] = (await conversation.status()).waiting
            assert asked.reason == "outcome_unknown"
            await conversation.answer(asked.call_id, "It was printed.")
            assert (await conversation.outcome()).text == "Done."
    failed, answered = results_of(await conversation.transcript())
    assert failed.is_error
    assert "the press is broken" in failed.text
    assert "It was printed." in answered.text


async def test_a_call_that_was_lost_before_it_was_a_task_is_not_sent_again(
    client: Client, scripted: Scripted, press: Press, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes between the two: it has said that it will send, and knows of no task."""
    from everturn.activities import mcp_memory

    monkeypatch.setattr(mcp_memory.ThisTry, "sent", True)
    model = scripted([[call("print_book", {"book": "Emma"}), call("bind_book", {"book": "Emma"})], "Done."])
    agent = agent_on(model, tools=[McpServer(url=press.url)])
    press.make("go")
    with press.runs():
        async with hosting(client, agent):
            conversation = await client.start(agent, "Print it")
            [call_id] = await waiting(conversation)
            await conversation.deny(call_id, "Leave it")
            assert (await conversation.outcome()).text == "Done."
    assert (press.lines("print_book"), len(press.lines("bind_book"))) == ([], 1)


def test_ids_and_intervals_of_tasks_are_bounded() -> None:
    from everturn.tools.mcp.tasks import Task

    wild: dict[str, Any] = {"taskId": "x", "status": "working", "pollInterval": 1e12}
    assert Task.model_validate(wild).poll_seconds == 30
    assert Task.model_validate({**wild, "pollInterval": -5}).poll_seconds == 0.1
    for bad in ({**wild, "taskId": "x" * 2000}, {**wild, "taskId": ""}, {**wild, "status": "odd"}):
        with pytest.raises(ValueError, match="Task"):
            Task.model_validate(bad)
