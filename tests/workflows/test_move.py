"""docs/howto/move-to-another-namespace.md: a conversation goes on in another namespace, under its own id."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.errors import NotFound, Refused
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.doc_pages import ROOT, blocks_of
from tests.support.namespaces import new_namespace
from tests.support.shell import Shell
from tests.support.waiting import WAIT_SECONDS

Scripted = Callable[..., ScriptedModel]

COMMANDS = [
    line
    for block in blocks_of(ROOT / "docs/howto/move-to-another-namespace.md")
    for line in block.text.splitlines()
    if block.language == "sh"
]


@pytest.fixture(scope="module")
async def agents(server: DevServer) -> str:
    """Another namespace of the server."""
    return await new_namespace(server)


async def test_the_pages_commands_take_a_conversation_along(
    server: DevServer, client: Client, scripted: Scripted, agents: str, shell: Shell
) -> None:
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    name = f"order-{uuid4().hex[:8]}"
    there = await Client.connect(server.address, namespace=agents, task_queue=client.task_queue)
    async with hosting(client, agent):
        conversation = await client.start(agent, "One", id=name, keep_open=timedelta(minutes=5))
        await conversation.reply()
        await conversation.send("Two")
        await conversation.reply()
        shell.environment["EVERTURN_TASK_QUEUE"] = client.task_queue
        for beginning in ("everturn show", "everturn close", "everturn fork"):
            await asyncio.to_thread(type_in, shell, beginning, order=name, agents=agents)
        await conversation.outcome()
    moved = there.conversation(name)
    async with hosting(there, agent):
        await asyncio.to_thread(type_in, shell, "everturn send", order=name, agents=agents)
        assert await moved.reply() == "Reply 5."
        texts = [message.text for message in await moved.transcript()]
        assert texts == ["One", "Reply 1.", "Two", "Reply 3.", "Did it arrive?", "Reply 5."]
        status = await moved.status()
        assert (status.turn, status.usage.output_tokens > 0) == (3, True)
        # Nothing of it points back: the old one may go.
        await client.erase(conversation.id)
        assert len(await moved.transcript()) == 6
        with pytest.raises(NotFound):
            await moved.fork(at_turn=1)
        await moved.close()
        await moved.outcome()


def type_in(shell: Shell, beginning: str, *, order: str, agents: str) -> None:
    """The page's command, with this test's names in it."""
    line = next(line for line in COMMANDS if beginning in line)
    line = re.sub(r"\border-81\b", order, re.sub(r"\bagents\b", agents, line))
    namespace, _, *arguments = shlex.split(line)
    before = dict(shell.environment)
    shell.environment["TEMPORAL_NAMESPACE"] = namespace.partition("=")[2]
    done = shell.run(*arguments)
    shell.environment = before
    assert done.returncode == 0, (line, done.stderr)


async def test_a_transcript_that_is_too_long_to_travel_needs_a_storage(
    server: DevServer, client: Client, scripted: Scripted, agents: str, bounds: Bounds, tmp_path: object
) -> None:
    bounds(moved_bytes=10)
    agent = agent_on(scripted(["Hi."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello")
        await conversation.outcome()
    there = await Client.connect(server.address, namespace=agents, task_queue=client.task_queue)
    with pytest.raises(Refused, match=r"can't be copied into the fork.*EVERTURN_STORAGE"):
        await conversation.fork(1, to=there)
    stores = await Client.connect(server.address, namespace=agents, task_queue=client.task_queue, storage=str(tmp_path))
    moved = await conversation.fork(1, to=stores)
    async with hosting(stores, agent):
        assert [message.text for message in await moved.transcript()] == ["Hello", "Hi."]
        assert await asyncio.wait_for(moved.reply(), WAIT_SECONDS) == "Hi."
        await moved.close()
