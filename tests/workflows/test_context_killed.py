"""A worker is killed in the middle of a call: the next one has the same context, and deps of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from everturn import Agent, Client, Model, ToolContext, TurnContext, Worker, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from tests.support.prepared import Program, killed_at_the_end
from tests.support.transcripts import results_of

ROOT = Path(__file__).parents[2]

DOOMED = """
import asyncio, sys
from everturn import Client, Worker
from tests.workflows.test_context_killed import find, opened

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    await Worker(client, agents=find, deps=opened).run()

asyncio.run(main())
"""


@asynccontextmanager
async def opened() -> AsyncIterator[int]:
    yield os.getpid()


@tool
def work(context: ToolContext[int]) -> str:
    """Works, in one process, until that is killed; in the next one to its end."""
    if context.attempt == 1:
        os.kill(context.deps, 9)
    return f"{context.tenant} {context.metadata['order']} {context.deps} {context.agent}"


def instructions(context: TurnContext[int]) -> str:
    return f"Order {context.metadata['order']}, turn {context.turn}."


async def find(name: str, version: str | None) -> Agent:
    model = Model("scripted:demo", base_url=os.environ["CONTEXT_MODEL"])
    return Agent(name, model=model, tools=[work], instructions=instructions)


async def test_a_worker_that_takes_over_has_the_same_context_and_deps_of_its_own(
    server: DevServer,
    client: Client,
    scripted: Callable[..., ScriptedModel],
    monkeypatch: pytest.MonkeyPatch,
    cached_conversations: int,
) -> None:
    model = scripted([call("work", {}, id="c1"), "Done."])
    monkeypatch.setenv("CONTEXT_MODEL", model.base_url)
    with killed_at_the_end("-c", DOOMED, server.address, client.task_queue) as doomed:
        conversation = await client.start("ada@1", "Go", tenant="acme", metadata={"order": "81"})
        assert await _ended(doomed) == -9
    options = {"drain_timeout": timedelta(seconds=20), "cached_conversations": cached_conversations}
    async with Worker(client, agents=find, deps=opened, **options):  # type: ignore[arg-type]
        assert await conversation.reply() == "Done."
        [result] = results_of(await conversation.transcript())
        assert [(await conversation.prompt(turn)).instructions for turn in (1, 2)] == [
            "Order 81, turn 1.",
            "Order 81, turn 2.",
        ]
    assert result.text == f"acme 81 {os.getpid()} ada@1"


async def _ended(process: Program) -> int:
    return await asyncio.to_thread(process.wait, 60)
