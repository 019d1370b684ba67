"""What pages show as the output of commands is what these print: line by line, but for random ids."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from everturn import Agent, Budget, Client, Encryption, Limits, QueueLimit, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.doc_pages import BLOCKS
from tests.support.ports import free_port
from tests.support.shell import Shell
from tests.support.waiting import eventually, reaches, until

Scripted = Callable[..., ScriptedModel]

KEY = b64encode(b"k" * 32).decode()


def block(page: str, part: str) -> str:
    """The page's one block of output with this part."""
    [found] = [one.text for one in BLOCKS if one.page.stem == page and one.language == "text" and part in one.text]
    return found


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def in_a_terminal(shell: Shell, *arguments: str, asked: str, says: str) -> str:
    """What a person sees, with what they type once they are asked."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "everturn", *arguments],
        cwd=shell.folder,
        env={**shell.environment, "TERM": "dumb", "COLUMNS": "120"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the end, as a terminal has it
            while more := os.read(ours, 4096):
                seen += more
                if seen.endswith(asked.encode()):
                    os.write(ours, says.encode())
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


@tool
def dump() -> str:
    return "x" * 300_000


async def test_the_page_on_erasing_shows_what_it_prints(
    server: DevServer, scripted: Scripted, tmp_path: Path, alone: Shell
) -> None:
    client = await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}", storage=tmp_path / "stored")
    conversation_id = f"order-{uuid4().hex}"

    def looks(messages: list[dict[str, Any]]) -> Any:
        return "Here." if messages[-1]["role"] == "tool" else call("dump", id="c")

    def asks(messages: list[dict[str, Any]]) -> Any:
        return "Done." if messages[-1]["role"] == "tool" else call("lister", {"message": "List them."}, id="call_0_0")

    lister = agent_on(scripted(looks), name="lister", tools=[dump], limits=Limits(max_result_chars=1_000))
    agent = agent_on(scripted(asks), tools=[lister])
    async with hosting(client, agent, artifacts=tmp_path / "artifacts"):
        conversation = await client.start(agent, "x" * 300_000, id=conversation_id, keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Done."
        forked = await conversation.fork(at_turn=2)
        await forked.close()
        await forked.outcome()
        await conversation.close()
        await conversation.outcome()
    alone.environment |= {
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_STORAGE": str(tmp_path / "stored"),
        "EVERTURN_ARTIFACTS": str(tmp_path / "artifacts"),
    }
    seen = in_a_terminal(alone, "erase", conversation_id, asked="[y/N]: ", says="y\n")
    seen = re.sub(r"(-turn-2-)[0-9a-f]{8}", r"\g<1>5c1d2e7f", seen.replace(conversation_id, "order-81"))
    assert seen == block("erase-conversations", "Erase all of this")


async def test_the_page_on_encryption_shows_what_is_printed(
    server: DevServer, scripted: Scripted, alone: Shell
) -> None:
    alone.environment |= {"TEMPORAL_ADDRESS": server.address, "EVERTURN_ENCRYPTION_KEYS": f"2026-11:{KEY}"}
    told = alone.run("doctor").stdout.splitlines()
    assert block("encrypt-conversations", "AES-GCM;").rstrip("\n") in told

    queue = f"q-{uuid4().hex[:8]}"
    client = await Client.connect(server.address, task_queue=queue, encryption=Encryption({"2026-11": b"k" * 32}))
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
    alone.environment["EVERTURN_ENCRYPTION_KEYS"] = f"2027-05:{b64encode(b'o' * 32).decode()}"
    refused = alone.run("export", conversation.id)
    assert in_one_line(refused.stderr) == in_one_line(
        block("encrypt-conversations", "which this process does not have")
    )


def test_the_page_on_encryption_shows_what_the_codec_server_prints(alone: Shell, tmp_path: Path) -> None:
    wanted = block("encrypt-conversations", "Codec server")
    seen = tmp_path / "seen"
    with seen.open("w") as output:
        environment = {**alone.environment, "EVERTURN_ENCRYPTION_KEYS": f"2026-11:{KEY}", "COLUMNS": "120"}
        command = [sys.executable, "-m", "everturn", "codec", "--port", "0"]
        with subprocess.Popen(command, cwd=alone.folder, env=environment, stdout=output, stderr=output) as process:
            try:
                until(lambda: "Ctrl-C" in seen.read_text() or process.poll() is not None)
            finally:
                process.send_signal(signal.SIGINT)
    assert re.sub(r":\d+\n", ":8089\n", seen.read_text(), count=1) == wanted


async def test_the_page_on_troubleshooting_shows_what_a_stalled_conversation_says(
    server: DevServer, alone: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    client = await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}")
    conversation_id = f"order-{uuid4().hex}"
    desk = Agent("desk", model="openai:gpt-5.5")
    async with hosting(client, desk):
        conversation = await client.start(desk, "Hello", id=conversation_id)
        await anext(event async for event in conversation.events(deltas=False) if event.kind == "stalled")
        alone.environment |= {"TEMPORAL_ADDRESS": server.address}
        shown = (await asyncio.to_thread(alone.run, "show", conversation_id)).stdout
        await conversation.close()
        await conversation.outcome()
    assert in_one_line(block("troubleshooting", "No key for")) in in_one_line(
        shown.replace(conversation_id, "order-81")
    )


async def test_the_page_on_tenants_shows_what_is_printed(server: DevServer, scripted: Scripted, alone: Shell) -> None:
    client = await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}", by="tester")
    tenant, conversation_id = uuid4().hex[:4], f"order-{uuid4().hex}"
    clerk = agent_on(scripted(lambda messages: "It is a lamp."))
    alone.environment |= {"TEMPORAL_ADDRESS": server.address}
    await client.set_budget(tenant, Budget(tokens_per_day=50, conversations=20))
    async with hosting(client, clerk):
        for _ in range(2):
            await client.run(clerk, "What is order 81?", tenant=tenant)
        conversation = await client.start(clerk, "What is order 81?", id=conversation_id, tenant=tenant)
        await reaches(conversation, "stalled")
        budget = (await asyncio.to_thread(alone.run, "budget", tenant)).stdout
        shown = (await asyncio.to_thread(alone.run, "show", conversation_id)).stdout
        await conversation.close()
        await conversation.outcome()
        await client.set_budget(tenant, None)
    budget = re.sub(r"\d{4}-\d\d-\d\d", "2026-11-22", budget.replace(tenant, "acme"))
    _, _, wanted = block("limit-tenants", "everturn budget acme\n").partition("\n")
    assert budget == wanted
    _, _, wanted = block("limit-tenants", "everturn show order-81").partition("\n")
    assert in_one_line(wanted) in in_one_line(shown.replace(conversation_id, "order-81").replace(tenant, "acme"))


async def test_the_page_on_roles_shows_the_queues(server: DevServer, scripted: Scripted, alone: Shell) -> None:
    alone.environment |= {"TEMPORAL_ADDRESS": server.address, "EVERTURN_TASK_QUEUE": "orders"}
    clerk = agent_on(scripted([]))
    client, beside = [await Client.connect(server.address, task_queue="orders") for _ in range(2)]
    async with hosting(client, clerk, roles=["workflows", "tools"]), hosting(beside, clerk, roles=["models"]):

        async def seen() -> bool:
            found = await client.task_queues()
            return len(found) == 2 and all(one.workers for one in found)

        await eventually(seen)
        limit = QueueLimit(per_second=5)
        await client.limit_task_queue("models", limit, reason="the key is shared")
        shown = (await asyncio.to_thread(alone.run, "queues")).stdout
        await client.limit_task_queue("models", None)
    _, _, wanted = block("model-turns-and-tools-apart", "everturn queues\n").partition("\n")
    assert shown == wanted


def test_the_page_on_troubleshooting_shows_what_is_said_without_a_server(alone: Shell) -> None:
    alone.environment |= {"TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}"}
    said = alone.run("list").stderr.replace(alone.environment["TEMPORAL_ADDRESS"], "127.0.0.1:7233")
    assert in_one_line(said) == in_one_line(block("troubleshooting", "No Temporal server answers"))


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    folder = tmp_path / "folder"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith(("LANG", "LC_"))}
    return Shell(folder, {**kept, "HOME": str(folder)})
