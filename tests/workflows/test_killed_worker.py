"""The last worker was killed on this machine: nobody takes it for one that runs, though the server still lists it."""

from __future__ import annotations

import asyncio

import pytest

from everturn import Client
from everturn.client.pollers import find_pollers
from everturn.errors import Unreachable
from everturn.events import WorkerAwaited
from everturn.settings import Settings
from everturn.worker import process
from tests.support.bounds import Bounds
from tests.support.shell import Shell
from tests.support.waiting import eventually

AGENTS = """
from everturn import Agent

desk = Agent("desk", model="scripted:demo")
"""


async def test_a_worker_that_was_killed_here_is_not_waited_for_in_silence(
    shell: Shell, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(silence=0.1)
    (shell.folder / "desk.py").write_text(AGENTS)
    for name in ("TEMPORAL_ADDRESS", "EVERTURN_TASK_QUEUE"):
        monkeypatch.setenv(name, shell.environment[name])
    client = await Client.connect()

    async def seen() -> bool:
        return bool(await find_pollers(client.temporal, client.task_queue))

    worker = await asyncio.to_thread(shell.start, "worker", "--agents", "desk.py")
    try:
        await eventually(seen, what="the worker polls")
        await process.check(Settings.load())
    finally:
        worker.kill()
        await asyncio.to_thread(worker.communicate)
    assert await seen(), "the server still lists it"
    gone = f"gone from this machine: {worker.pid}@"

    with pytest.raises(Unreachable):
        await process.check(Settings.load())
    checked = await asyncio.to_thread(shell.json, "queues")
    assert checked[0]["workers"] == []
    told = await asyncio.to_thread(shell.run, "doctor")
    (line,) = [line for line in " ".join(told.stdout.split()).split("WRONG") if line.startswith(" workers")]
    assert "none polls the task queue" in line
    assert f"gone from this machine since it polled: {worker.pid}@" in line

    conversation = await client.start("desk", "hi")
    async for event in conversation.events():
        if isinstance(event, WorkerAwaited):
            assert gone in event.cause
            break
    with pytest.raises(Unreachable):
        await conversation.status()
