"""The Temporal server that a command has started dies: the command says so, and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from everturn.cli.server_watch import while_it_runs
from everturn.devserver import DevServer
from everturn.errors import Unreachable
from everturn.testing import slow
from tests.support.ports import free_port
from tests.support.shell import Shell
from tests.support.waiting import WAIT_SECONDS, until

AGENTS = """
from everturn import Agent

desk = Agent("desk", model="scripted:demo")
"""


def server_of(pid: int) -> list[int]:
    """The process of the Temporal server that this one has started."""
    children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"start-dev" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _errors(told: str) -> list[str]:
    return [line for line in told.splitlines() if "The Temporal server that this command started" in line]


@pytest.mark.parametrize("agents", [[], ["--agents", "desk.py"]], ids=["alone", "with a worker"])
def test_up_ends_and_says_why(alone: Shell, agents: list[str]) -> None:
    (alone.folder / "desk.py").write_text(AGENTS)
    port, ui_port = free_port(), free_port()
    with alone.start("up", "--port", str(port), "--ui-port", str(ui_port), "--db", "it.db", *agents) as up:
        assert up.stderr
        until(lambda: "Ctrl-C ends it." in up.stderr.readline())
        (server,) = server_of(up.pid)
        os.kill(server, signal.SIGKILL)
        told = up.stderr.read()  # of what it has buffered, `communicate` would know nothing
    assert up.returncode == 1
    assert "Traceback" not in told
    (line,) = _errors(told)
    assert f"at 127.0.0.1:{port}, was killed by SIGKILL. Its log is it.log. Run the command again: " in line


def test_run_ends_and_says_why(alone: Shell, model: Callable[[Any], None]) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        begun.set()
        return slow("Hello.", until=may_end)

    model(script)
    with alone.start("run", "hi", "-m", "scripted:x") as run:
        assert begun.wait(WAIT_SECONDS)
        (server,) = server_of(run.pid)
        os.kill(server, signal.SIGKILL)
        _, error_text = run.communicate(timeout=180)
        may_end.set()
    assert run.returncode == 1
    assert "Traceback" not in error_text
    (line,) = _errors(error_text)
    assert "was killed by SIGKILL." in line


async def test_what_is_stopped_or_killed_on_purpose_has_not_ended_by_itself() -> None:
    async with DevServer() as server, while_it_runs(server):
        await server.restart()
        assert server.exit_status is None


async def test_a_block_ends_with_its_server_and_otherwise_with_its_own_error() -> None:
    async def served(block: Callable[[DevServer], Awaitable[None]]) -> None:
        async with DevServer() as server, while_it_runs(server):
            await block(server)

    async def ends(server: DevServer) -> None:
        assert server._process
        server._process.terminate()
        await asyncio.Event().wait()

    async def fails(server: DevServer) -> None:
        raise ZeroDivisionError

    with pytest.raises(Unreachable, match="ended with exit status 0"):
        await served(ends)
    with pytest.raises(ZeroDivisionError):
        await served(fails)
