"""What models, tools and strangers wrote reaches no terminal raw: each command, with hostile ids and arguments."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from everturn import Client, Conversation, names, tool
from everturn.testing import ScriptedModel, call
from everturn.text.printable import printable
from tests.support.agents import agent_on, hosting
from tests.support.bounds import as_code
from tests.support.hostile import EVIL, raw
from tests.support.prepared import Program, run
from tests.support.shell import Shell
from tests.support.waiting import reaches, waiting

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True, effect="once")
def refund(order: str, cents: int) -> str:
    return f"{cents} back for {order}"


@pytest.fixture
async def hostile(client: Client, scripted: Scripted, shell: Shell, name: str) -> AsyncIterator[Conversation]:
    """A conversation that waits for a decision."""
    shell.environment["EVERTURN_TASK_QUEUE"] = client.task_queue
    calls = [call("refund", {"order": EVIL, "cents": 5}, id="a"), call(f"pay{EVIL}", {EVIL: EVIL}, id="b")]
    agent = agent_on(scripted([calls, f"It is done. {EVIL}"]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, f"Refund {EVIL}", id=f"{name}{EVIL}")
        await waiting(conversation)
        yield conversation
        if (await conversation.status()).state != "done":
            await conversation.deny("*")
            await conversation.outcome()


ALL = """
import sys
from everturn.cli import run_command
for command in eval(sys.argv[1]):
    run_command(command)
"""


def told_by(shell: Shell, *commands: tuple[str, ...]) -> str:
    """What the commands say, one after the other in one process: each of its own would take a second."""
    done = run("-c", ALL, repr(commands), cwd=shell.folder, env=shell.environment, timeout=120, check=True)
    return told(done)


def told(done: subprocess.CompletedProcess[str]) -> str:
    assert raw(done.stdout + done.stderr) == []
    return done.stdout + done.stderr


async def test_every_command_that_looks_and_steers(hostile: Conversation, shell: Shell) -> None:
    looks = await asyncio.to_thread(
        told_by,
        shell,
        ("show", hostile.id),
        ("list",),
        ("list", "--json"),
        ("list", "--agent", EVIL),
        ("list", "--status", EVIL),
        ("show", hostile.id, "--json"),
        ("show", EVIL),
        ("watch", EVIL),
        ("watch", hostile.id, "--since", EVIL),
        ("approve", hostile.id, EVIL),
        ("approve", hostile.id, "a", "--arguments", EVIL),
        ("approve", EVIL),
        ("deny", EVIL, "--reason", EVIL),
        ("answer", hostile.id, EVIL, EVIL),
        ("pause", hostile.id, "--reason", EVIL),
        ("resume", hostile.id),
        ("resume", hostile.id, "--model", EVIL),
        ("resume", EVIL),
        ("cancel-turn", EVIL),
        ("fork", hostile.id, "--at-turn", "9"),
        ("send", EVIL, "Hi"),
        ("export", EVIL),
        ("export", EVIL, "--output", f"{EVIL}.md"),
        ("replay", EVIL),
        ("replay", "--id", hostile.id),
        ("run", "Hi", "-m", EVIL),
        ("run", "Hi", "--agent", "nobody", "--tool", EVIL),
        ("tools", EVIL),
        ("doctor", "--against", EVIL),
        ("worker", "--agents", EVIL),
        (EVIL,),
        ("show", f"--{EVIL}"),
    )
    assert r"\u202egnp.exe" in looks
    assert f"everturn approve {shown_id(hostile)} a" in looks.replace("'", "")
    assert (await waiting(hostile)) == ("a",), "nothing of that decided"
    edited = ("approve", hostile.id, "a", "--arguments", '{"order": "\\u202e", "cents": 4}', "--note", EVIL)
    assert "approved: a" in await asyncio.to_thread(told_by, shell, edited)
    await hostile.outcome()
    after = await asyncio.to_thread(
        told_by,
        shell,
        ("watch", hostile.id),
        ("watch", hostile.id, "--json"),
        ("show", hostile.id),
        ("list", "--status", "done"),
        ("export", hostile.id, "--output", f"it{EVIL}.md"),
    )
    assert r"\u202egnp.exe" in after


def shown_id(conversation: Conversation) -> str:
    return printable(conversation.id)


async def test_at_a_terminal_too(hostile: Conversation, shell: Shell) -> None:
    await hostile.approve("a", {"order": EVIL, "cents": 4}, note=EVIL)
    await hostile.outcome()
    seen = await asyncio.to_thread(
        at_a_terminal,
        shell,
        ("show", hostile.id),
        ("watch", hostile.id),
        ("list",),
        ("export", hostile.id),
        ("export", hostile.id, "--format", "markdown"),
        ("show", hostile.id, "--json"),
    )
    assert raw(seen.replace("\r\n", "\n")) == []
    assert seen.count(r"\u202egnp.exe") > 20


def at_a_terminal(shell: Shell, *commands: tuple[str, ...]) -> str:
    """What a terminal without colours would be sent, as bytes."""
    ours, theirs = pty.openpty()
    with Program(
        *("-c", ALL, repr(commands)),
        cwd=shell.folder,
        env={**shell.environment, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        sent = b""
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # Linux says so when the other side is closed
                break
            if not piece:
                break
            sent += piece
        process.wait(timeout=180)
    os.close(ours)
    return sent.decode()


def test_a_files_tools(alone: Shell) -> None:
    written = EVIL.encode("unicode_escape").decode()
    (alone.folder / "evil.py").write_text(f'def pay(order: str) -> str:\n    """Pay {written}"""\n')
    for more in ((), ("--json",)):
        assert "pay" in told(alone.run("tools", "evil.py", *more))


async def test_completion_offers_no_id_that_a_shell_would_act_on(
    hostile: Conversation, client: Client, shell: Shell, name: str
) -> None:
    harmless = await client.start("clerk", "Hi", id=f"{name}-harmless")
    patient = as_code(completion_seconds=60)
    offering = f"{patient}\nprint(everturn.cli.completion.offer_ids({name!r}))"

    def offered() -> str:
        return told(run("-c", offering, env=shell.environment, timeout=100, check=True))

    seen = ""
    while harmless.id not in seen:  # the list is some moments behind
        seen = await asyncio.to_thread(offered)
    assert "owned" not in seen
    assert hostile.id.startswith(name)
    await client.temporal.get_workflow_handle(harmless.id).terminate()


async def test_a_run_shows_what_comes_and_asks_with_what_is_safe(
    shell: Shell, model: Callable[[Any], None], name: str
) -> None:
    model([call("refund", {"order": EVIL, "cents": 5}, id="a"), f"It is done. {EVIL}"])
    done = await asyncio.to_thread(
        shell.run, "run", f"Refund {EVIL}", "-m", "scripted:x", "--tool", "tools.py", "--yes", "--id", f"{name}{EVIL}"
    )
    assert raw(done.stderr) == []
    assert r"\u202egnp.exe" in done.stderr
    assert done.stdout == f"It is done. {EVIL}\n", "a program gets the reply as it is"


async def test_a_stranger_who_signals_and_starts(client: Client, scripted: Scripted, shell: Shell, name: str) -> None:
    shell.environment["EVERTURN_TASK_QUEUE"] = client.task_queue
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        handle = await client.temporal.start_workflow(
            "Conversation",
            {"agent": "clerk", "message": EVIL, "keep_open": 60, "model": "scripted:demo"},
            id=f"{name}{EVIL}",
            task_queue=client.task_queue,
        )
        await handle.signal(names.PAUSE, {"reason": EVIL, "by": EVIL})
        await handle.signal(names.APPROVE, {"call_id": EVIL, "note": EVIL, "by": EVIL})
        await handle.signal(EVIL, EVIL)
        conversation = client.conversation(handle.id)
        await reaches(conversation, "paused")
        looks = (("show", handle.id), ("list",), ("show", handle.id, "--json"))
        assert r"\u202egnp.exe" in await asyncio.to_thread(told_by, shell, *looks)
        await handle.terminate()
        watched = told(await asyncio.to_thread(shell.run, "watch", handle.id))
        assert r"\u202egnp.exe" in watched


async def test_what_the_temporal_web_ui_shows_of_it(client: Client, hostile: Conversation) -> None:
    handle = client.temporal.get_workflow_handle(hostile.id)
    metadata: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    details = metadata.current_details
    assert r"\u202egnp.exe" in details
    shown = [details]
    await hostile.approve("a", {"order": EVIL, "cents": 4}, note=EVIL)
    await hostile.outcome()
    history = await handle.fetch_history()
    for event in history.events:
        for payload in (event.user_metadata.summary, event.user_metadata.details):
            if payload.data:
                shown += await client.temporal.data_converter.decode([payload])
    assert len(shown) > 4
    assert r"\u202egnp.exe" in shown[1]
    assert raw("".join(shown)) == []
