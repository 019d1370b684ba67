"""The client of programs without asyncio: its methods wait, in scripts and in notebooks, and nothing of it is left."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from everturn import Client, Conversation, Worker
from everturn.client.background_loop import BackgroundLoop
from everturn.client.client import SyncClient
from everturn.client.sync_conversation import SyncConversation
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting, NotFound
from everturn.testing import ScriptedModel, call
from tests.support.prepared import Program, run

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]

OF_ONE_LOOP = {"by_history", "latest_run", "connect"}
"""What gives values that belong to an event loop, or that a program has no use for."""


@pytest.mark.parametrize(("theirs", "ours"), [(Client, SyncClient), (Conversation, SyncConversation)])
def test_each_method_that_waits_is_there(theirs: type, ours: type) -> None:
    methods = {name: inspect.unwrap(getattr(theirs, name, None)) for name in dir(theirs) if not name.startswith("_")}
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    waits = {name for name, method in methods.items() if any(is_one(method) for is_one in kinds)}
    assert waits - OF_ONE_LOOP <= set(dir(ours))
    assert {"events", "where"} <= set(dir(SyncConversation))


PROGRAM = """
import os
import threading

from pydantic import BaseModel

from everturn import Agent, Client, Worker, tool
from everturn.errors import Refused


class Refund(BaseModel):
    cents: int


@tool(effect="once", needs_approval=True)
def refund(cents: int) -> str:
    return f"paid {cents}"


clerk = Agent("clerk", model="scripted:any", tools=[refund], output=Refund)


def main() -> None:
    with Client.connect_sync(by="ann") as client, Worker(client, agents=[clerk]):
        conversation = client.start(clerk, "The lamp is broken.", id="sync")
        for event in conversation.events(deltas=False):
            if event.kind == "approval_requested":
                print("waits for", event.tool, event.arguments)
                try:
                    conversation.approve("nothing")
                except Refused as error:
                    print("refused")
                conversation.approve(event.call_id)
        print(conversation.reply(), conversation.outcome().value, conversation.status().state)
        print([(call.name, result.text, result.decision.by) for call, result in conversation.tool_pairs()])
        print(client.run(clerk, "The lamp is broken.", id="sync").value)
        print(client.conversation("sync").reply())
        print(threading.active_count())
    print([thread.name for thread in threading.enumerate()])
"""

SAID = [
    "waits for refund {'cents': 1200}",
    "refused",
    "cents=1200 cents=1200 done",
    "[('refund', 'paid 1200', 'ann')]",
    "cents=1200",
    '{"cents": 1200}',
]


def environment(server: DevServer, model: ScriptedModel) -> dict[str, str]:
    return {
        **os.environ,
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": f"sync-{uuid4().hex[:8]}",
        "SCRIPTED_BASE_URL": model.base_url,
        "PYTHONPATH": str(ROOT),
    }


async def ran(program: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    return await asyncio.to_thread(
        subprocess.run, command, env=variables, capture_output=True, text=True, timeout=120, check=False
    )


async def ran_forked(program: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    strict = "import warnings\nwarnings.simplefilter('error')\n"
    return await asyncio.to_thread(run, "-c", strict + textwrap.dedent(program), env=variables, timeout=120)


def refunding(scripted: Scripted) -> ScriptedModel:
    return scripted([call("refund", {"cents": 1200}, id="r1"), '{"cents": 1200}'])


@pytest.mark.parametrize(
    "called",
    [
        "main()",
        # As in a notebook's cell: a loop runs in this thread.
        "import asyncio\n\nasync def cell() -> None:\n    main()\n\nasyncio.run(cell())",
    ],
    ids=["script", "notebook"],
)
async def test_a_program_without_asyncio(called: str, server: DevServer, scripted: Scripted) -> None:
    variables = environment(server, refunding(scripted))
    starts = ran if called == "main()" else ran_forked
    done = await starts(PROGRAM.replace('"sync"', repr(uuid4().hex)) + called, variables)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, lines[:6]) == (0, "", SAID)
    assert "everturn-sync" not in lines[-1], lines[-1]


async def test_a_program_that_closes_nothing_ends_all_the_same(server: DevServer, scripted: Scripted) -> None:
    program = """
        from everturn import Client

        client = Client.connect_sync()
        print(len([*client.conversations(agent="an agent of no test")]))
        events = client.conversation("nobody").events()
        raise SystemExit(3)
    """
    done = await ran_forked(program, environment(server, scripted(["Hello."])))
    assert (done.returncode, done.stdout, done.stderr) == (3, "0\n", "")


async def test_ctrl_c_ends_the_wait_and_the_conversation_goes_on(server: DevServer, scripted: Scripted) -> None:
    variables = environment(server, refunding(scripted))
    program = PROGRAM + textwrap.dedent("""
        with Client.connect_sync() as client, Worker(client, agents=[clerk]):
            conversation = client.start(clerk, "The lamp is broken.")
            for event in conversation.events(deltas=False):
                if event.kind == "approval_requested":
                    break
            try:
                print("waits", flush=True)
                conversation.reply()
            except KeyboardInterrupt:
                print("interrupted", conversation.status().state, flush=True)
            conversation.approve()
            print(conversation.reply())
            conversation.reply()
            print("waits", flush=True)
            client.start(clerk, "Once more.").reply()
    """)
    running = Program("-c", program, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    try:
        lines: list[str] = []
        while len(lines) < 5:
            lines.append(await asyncio.to_thread(running.stdout.readline))
            if lines[-1] == "waits\n":
                await asyncio.to_thread(waits_in_main_thread, running.pid)
                running.send_signal(signal.SIGINT)
            assert lines[-1]
            if lines.count("waits\n") == 2:
                break
        await asyncio.to_thread(running.wait, 60)
    finally:
        running.kill()
        running.stdout.close()
        assert running.stderr is not None
        error = running.stderr.read()
        running.stderr.close()
    assert lines == ["waits\n", "interrupted awaiting_approval\n", "cents=1200\n", "waits\n"]
    assert running.returncode == -signal.SIGINT
    assert error.rstrip().endswith("KeyboardInterrupt")


def waits_in_main_thread(pid: int) -> None:
    """Returns once the main thread sleeps in the kernel: it has gone on from its last print."""
    stat = Path(f"/proc/{pid}/task/{pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        threading.Event().wait(0.01)


async def test_the_thread_is_shared_and_ends_with_the_last_client(server: DevServer) -> None:
    def use() -> None:
        first = Client.connect_sync(server.address)
        second = Client.connect_sync(server.address)
        assert first.loop is second.loop
        first.close()
        first.close()
        with pytest.raises(NotFound):
            second.conversation("nobody").status()
        assert second.acting_as("bob").client.by == "bob"
        with second:
            pass
        with pytest.raises(InvalidSetting, match="This sync client is closed"):
            second.count()
        assert not any(thread.name == "everturn-sync" for thread in threading.enumerate())

    await asyncio.to_thread(use)


async def test_a_call_that_would_wait_for_itself_is_refused(server: DevServer) -> None:
    def use() -> Any:
        with Client.connect_sync(server.address) as client:

            async def inside() -> None:
                client.conversation("any").status()

            with pytest.raises(InvalidSetting, match="in its own event loop"):
                client.loop.run(inside())

    await asyncio.to_thread(use)


def test_who_waits_while_another_thread_closes_the_client_is_told_so() -> None:
    loop = BackgroundLoop.acquire()
    has_begun = threading.Event()
    problems: list[InvalidSetting] = []

    async def wait_for_ever() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    def wait_for_answer() -> None:
        with pytest.raises(InvalidSetting, match="closed in another thread") as refused:
            loop.run(wait_for_ever())
        problems.append(refused.value)

    thread = threading.Thread(target=wait_for_answer, daemon=True)
    thread.start()
    has_begun.wait()
    loop.release()
    thread.join(20)
    assert problems


def test_a_server_that_is_not_there_leaves_no_thread() -> None:
    from everturn.errors import Unreachable

    with pytest.raises(Unreachable):
        Client.connect_sync("127.0.0.1:1")
    assert BackgroundLoop._current is None


async def test_an_async_client_is_told_from_a_sync_one(client: Client, scripted: Scripted) -> None:
    from tests.support.agents import agent_on

    worker = Worker(client, agents=[agent_on(scripted(["Hello."]))])
    with pytest.raises(InvalidSetting, match="its client is not a sync one"), worker:
        pass
