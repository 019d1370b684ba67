"""worker.py, as a process manager sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everturn.devserver import DevServer, connect_or_start
from tests.support.bounds import as_code
from tests.support.prepared import Program, run
from tests.support.waiting import eventually, until

WORKER = Path(__file__).parents[2] / "worker.py"

AGENT = """
from everturn import Agent

clerk = Agent("clerk", model="scripted:demo", instructions="Be brief.")
"""


DROPS_A_CYCLE = """
import weakref

class Node:
    pass

node = Node()
node.parent = node
weakref.finalize(node, print, "collected", flush=True).atexit = False
del node
"""


@pytest.fixture(scope="module")
async def environment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    file = tmp_path_factory.mktemp("agents") / "clerk.py"
    file.write_text(AGENT)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
    async with connect_or_start() as endpoint:
        yield {**kept, "TEMPORAL_ADDRESS": endpoint.address, "EVERTURN_AGENTS": str(file), "EVERTURN_LOG": "json"}


def test_it_works_until_sigterm_and_says_whether_it_is_well(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "clerk.py"
    file.write_text(AGENT + DROPS_A_CYCLE)
    environment = {**environment, "EVERTURN_TASK_QUEUE": "its-own", "EVERTURN_AGENTS": str(file)}
    assert run(str(WORKER), "--check", env=environment).returncode == 1

    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, WORKER], env=environment, **pipes) as worker:
        until(lambda: worker.poll() is not None or not run(str(WORKER), "--check", env=environment).returncode)
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        printed, logged = worker.communicate(timeout=180)

    assert worker.returncode == 0, logged
    assert printed == "collected\n"  # what is set aside for good has nothing that the agents' modules dropped
    assert '"event": "worker.stopped"' in logged
    assert "Traceback" not in logged


def test_its_process_ends_though_a_thread_of_the_event_loop_does_not() -> None:
    program = f"""
import asyncio, threading
from everturn.worker import process
{as_code(grace_seconds=0.3)}
async def main():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
process.run(main())
"""
    assert run("-c", program).returncode == 0


async def test_one_that_starts_while_the_server_is_away_waits_for_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    async with DevServer(db_filename=tmp_path / "temporal.db") as server:
        await server.stop()
        log = tmp_path / "log"
        variables = {**environment, "TEMPORAL_ADDRESS": server.address}
        with (
            log.open("w") as written,
            Program(str(WORKER), env=variables, stderr=written) as worker,
        ):
            try:
                await eventually(lambda: "server.unreachable" in log.read_text())
                assert server.address in log.read_text()
                assert worker.poll() is None
                await server.start()
                await eventually(lambda: "worker.started" in log.read_text())
            finally:
                worker.kill()
        assert log.read_text().count("server.unreachable") == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"EVERTURN_AGENTS": ""}, "No agents to host. Set EVERTURN_AGENTS"),
        ({"EVERTURN_AGENTS": "no/such.py"}, "no/such.py"),
        ({"EVERTURN_AGENT": "x"}, "Did you mean EVERTURN_AGENTS?"),
        ({"TEMPORAL_PROFILE": "nope"}, "Profile 'nope' not found"),
    ],
)
def test_what_is_wrong_is_one_line(environment: dict[str, str], variables: dict[str, str], said: str) -> None:
    done = run(str(WORKER), env={**environment, **variables})
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
