"""A program that connected ends with its own exit status, whatever the SDK's threads are at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel
from tests.exits.programs import PROGRAMS, ROOT, STUCK, UNANSWERED, written

pytestmark = pytest.mark.long  # each is a program of its own, and more than once

TIMES = 2
"""At once. `make exits` runs them a hundred times."""


def ended(program: str, server: DevServer, *, times: int = TIMES, **environment: str) -> list[str]:
    """What is wrong with the ends of several runs at once."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
    environment = {**kept, "TEMPORAL_ADDRESS": server.address, **environment}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**environment, "EVERTURN_TASK_QUEUE": f"exits-{uuid4().hex}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(times)
    ]
    try:
        error_texts = [run.communicate(timeout=180)[1] for run in runs]
    finally:
        for run in runs:
            run.kill()
            run.communicate()  # also closes its pipe
    return [f"{run.returncode}: {text}" for run, text in zip(runs, error_texts, strict=True) if run.returncode]


@pytest.mark.parametrize("name", ["start", "follow and leave", "a client of one's own beside"])
def test_a_short_program_waits_for_a_thread_that_is_still_reporting(name: str, server: DevServer) -> None:
    assert ended(written(name, slow=True), server, times=1) == [], "it happens in every run"


@pytest.mark.parametrize("name", ["connect only", "nobody answers", "send", "never left its worker"])
def test_a_short_program_ends_as_it_should(name: str, server: DevServer) -> None:
    assert name in PROGRAMS
    assert ended(written(name), server) == []


def test_a_program_that_never_left_its_worker_does_not_wait_for_it_for_ever(server: DevServer) -> None:
    """Its tasks were cancelled, and it waits for one that was on its way to them."""
    program = written("never left its worker", before=STUCK)
    assert ended(program, server, times=1) == []


def test_a_program_that_never_left_its_worker_does_not_wait_for_a_task_that_nobody_answers(server: DevServer) -> None:
    assert ended(UNANSWERED, server, times=1) == []


def test_the_hello_of_the_readme_ends_as_it_should(server: DevServer, scripted: Callable[..., ScriptedModel]) -> None:
    program = (ROOT / "examples" / "hello.py").read_text()
    model = scripted(lambda *_: "It is sunny.")
    assert ended(program, server, MODEL="scripted:demo", SCRIPTED_BASE_URL=model.base_url) == []


def test_a_fork_does_not_wait_for_its_parents_threads(server: DevServer) -> None:
    forked = written("connect only") + "import os, sys\nif child := os.fork(): sys.exit(os.waitpid(child, 0)[1])\n"
    assert ended(forked, server) == []


FORKED = """
import gc, os, sys
from everturn.errors import InvalidSetting

if os.environ["FROZEN"]:
    gc.freeze()
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    asyncio.run(Client.connect())
except InvalidSetting as error:
    sys.exit("before it connects" not in str(error))
sys.exit("it has connected")
"""


@pytest.mark.parametrize("frozen", ["", "frozen"])
def test_a_fork_that_tries_to_connect_is_told_why_it_can_not_and_ends(frozen: str, server: DevServer) -> None:
    assert ended(written("connect only") + FORKED, server, FROZEN=frozen) == []


def test_a_programs_own_last_words_can_still_use_its_client(server: DevServer) -> None:
    program = """
import asyncio, atexit
from everturn import Client

runner = asyncio.Runner()
client = runner.run(Client.connect())

@atexit.register
def last_words():
    runner.run(client.start("nobody", "Bye"))
    runner.close()
"""
    assert ended(program, server) == []


def test_the_programs_are_files_that_run(tmp_path: Path) -> None:
    for name in PROGRAMS:
        compile(written(name), name, "exec")
