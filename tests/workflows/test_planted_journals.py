"""What lies in the journals' folder can't stop a worker, and can't run a tool twice at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from everturn import Client, tool
from everturn.lost_workers.journal import Journal, _make_header
from everturn.testing import ScriptedModel, call
from everturn.worker.hosting import journal_scope
from tests.support.agents import agent_on, hosting
from tests.support.journals import DAMAGED, NAME
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


async def test_a_damaged_journal_keeps_no_worker_from_starting(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    (folder := tmp_path / "journals").mkdir(mode=0o700)
    for number, damage in enumerate(DAMAGED.values()):
        damage(folder / NAME.replace("0123", f"{number:04}"))
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent, journals=folder):
        assert (await client.run(agent, "Hi")).text == "Hello."


async def test_a_planted_journal_does_not_run_a_tool_twice_at_once(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    (folder := tmp_path / "journals").mkdir(mode=0o700)
    begun, running, most = 0, 0, 0
    done = asyncio.Event()

    @tool(effect="idempotent")
    async def work() -> str:
        """Work."""
        nonlocal begun, running, most
        begun += 1
        running += 1
        most = max(most, running)
        await done.wait()
        running -= 1
        return "worked"

    agent = agent_on(scripted([call("work"), "Done."]), tools=[work])
    async with hosting(client, agent, journals=folder):
        conversation = await client.start(agent, "Go")
        await eventually(lambda: begun)
        (running_task,) = [
            line
            for file in folder.iterdir()
            for line in file.read_text().splitlines()
            if json.loads(line).get("activity") == "work"
        ]
        # The worker itself finds the first one, and a neighbour of its the second.
        await plant(folder, client, running_task)
        with Journal(folder, scope=journal_scope(client.temporal, client.task_queue)) as neighbour:
            watch = asyncio.create_task(neighbour.watch_others(client.temporal))
            await plant(folder, client, running_task)
            watch.cancel()
        done.set()
        assert (await conversation.outcome()).text == "Done."
    assert (begun, most) == (1, 1)


async def plant(folder: Path, client: Client, task: str) -> None:
    """A journal as a dead worker would have left it; returns when it was taken for one."""
    planted = folder / NAME
    with planted.open("x") as file:
        header = _make_header(journal_scope(client.temporal, client.task_queue), os.fstat(file.fileno()).st_ino)
        file.write(f"{json.dumps(header)}\n{task}\n")
    await eventually(lambda: not planted.exists(), what="it was found")
