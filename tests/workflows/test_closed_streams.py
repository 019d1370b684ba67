"""Commands whose output nobody reads, whose streams are closed, or that are given bytes that are no text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everturn import Client
from everturn.errors import Refused
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell

pytestmark = pytest.mark.long  # each starts all of these commands

COMMANDS = [
    ["list"],
    ["show", "CONVERSATION"],
    ["watch", "CONVERSATION", "--json"],
    ["export", "CONVERSATION"],
    ["tools", "tools.py"],
    ["doctor"],
]
HALF = "\ud800"


@pytest.fixture
async def long_conversation(client: Client, scripted: Callable[..., ScriptedModel], name: str) -> str:
    """Longer than a pipe takes."""
    agent = agent_on(scripted(["word " * 20_000]))
    async with hosting(client, agent):
        await client.run(agent, "Talk.", id=name)
    return name


def start(shell: Shell, arguments: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "everturn", *arguments], cwd=shell.folder, env=shell.environment, **streams
    )


def about(arguments: list[str], conversation: str) -> list[str]:
    return [argument.replace("CONVERSATION", conversation) for argument in arguments]


async def test_a_command_whose_reader_has_gone_ends_quietly(shell: Shell, long_conversation: str) -> None:
    running = []
    for arguments in COMMANDS:
        reader, writer = os.pipe()
        process = start(
            shell, about(arguments, long_conversation), stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE
        )
        os.close(writer)
        os.close(reader)
        running.append(process)
    error_texts = [process.communicate(timeout=180)[1].decode() for process in running]
    assert error_texts == [""] * len(running)
    assert {process.returncode for process in running} == {1}


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]], ids=["stdin", "stdout", "stderr", "all"])
async def test_a_closed_stream_stops_no_command(shell: Shell, long_conversation: str, closed: list[int]) -> None:
    """The shell's <&- >&- 2>&-, and what daemons are started with."""

    def close() -> None:
        for number in closed:
            os.close(number)

    running = [
        start(
            shell,
            about(arguments, long_conversation),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=close,
        )
        for arguments in COMMANDS
    ]
    error_texts = [process.communicate(timeout=180)[1].decode() for process in running]
    assert not [text for text in error_texts if "Error" in text or "Traceback" in text]
    expected = [1 if arguments[0] == "doctor" else 0 for arguments in COMMANDS]  # nobody hosts an agent
    assert [process.returncode for process in running] == expected


@pytest.mark.parametrize("both", [False, True], ids=["stderr", "stdout and stderr"])
def test_an_error_that_nobody_reads_is_still_a_status(shell: Shell, both: bool) -> None:
    reader, writer = os.pipe()
    process = start(
        shell,
        ["show", "nobody"],
        stdin=subprocess.DEVNULL,
        stdout=writer if both else subprocess.DEVNULL,
        stderr=writer,
    )
    os.close(writer)
    os.close(reader)
    assert process.wait(timeout=180) == 1


@pytest.mark.parametrize(
    ("name", "stops"),
    [("SOMEBODYS", False), ("USER", False), ("EVERTURN_TASK_QUEUE", True), ("TEMPORAL_NAMESPACE", True)],
)
def test_a_variable_that_is_not_utf8_is_named_or_left_alone(shell: Shell, name: str, stops: bool) -> None:
    shell.environment[name] = os.fsdecode(b"\xff")
    done = shell.run("list", "--json")
    assert done.returncode == (1 if stops else 0), done.stderr
    assert done.stderr == (f"everturn: The value of {name} is not UTF-8.\n" if stops else "")


def test_a_prompt_that_is_not_utf8_is_refused(shell: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "everturn", "run", "-", "--agent", "nobody"],
        cwd=shell.folder,
        env=shell.environment,
        input=b"a\xffb",
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"everturn: Standard input is not UTF-8:")


async def test_half_a_surrogate_pair_is_refused_in_an_id_and_a_filter(client: Client) -> None:
    with pytest.raises(Refused, match=r"The id .* can't be written as UTF-8"):
        await client.start("clerk", "Hello", id=HALF)
    with pytest.raises(Refused, match=r"The id .* can't be written as UTF-8"):
        await client.send("clerk", "Hello", id=HALF)
    with pytest.raises(Refused, match=r"The id .* can't be written as UTF-8"):
        client.conversation(HALF)
    with pytest.raises(Refused, match=r"The agent .* can't be written as UTF-8"):
        await client.count(HALF)
    with pytest.raises(Refused, match=r"The agent .* can't be written as UTF-8"):
        async for _ in client.conversations(agent=HALF):
            pass
    with pytest.raises(Refused, match=r"The address .* can't be written as UTF-8"):
        await Client.connect(HALF)


def test_an_export_to_a_full_disk_says_so(shell: Shell, long_conversation: str) -> None:
    with Path("/dev/full").open("wb") as full:
        process = start(shell, ["export", long_conversation], stdout=full, stderr=subprocess.PIPE)
        error_text = process.communicate(timeout=180)[1].decode()
    assert (process.returncode, error_text) == (1, "everturn: The output can't be written: No space left on device.\n")
