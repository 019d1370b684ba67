"""`everturn chat` as a person has it: in a real terminal, with a real server, worker and model server."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.history.reader import first_step
from everturn.testing import ScriptedModel, call, fail, slow
from tests.support.prepared import Program, run
from tests.ui.tmux import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

TOOLS = """
from everturn import tool

def look_up(order: str) -> str:
    "What was ordered."
    return f"Order {order}: a lamp\\n34.90 EUR\\nbroken on arrival"

@tool(needs_approval=True, effect="once")
def refund(order: str, cents: int) -> str:
    "Give money back."
    return f"refunded {cents} of {order}"

@tool(runs_on="client")
def which_colour(of: str) -> str:
    "Ask the customer."
"""
SAID = "The lamp of order 81 arrived broken, so its price was given back to whoever had paid for it."
ASKED = "approve refund? [y]es, [n]o, [e]dit:"
REFUND = call("refund", {"order": "81", "cents": 3490})


def half_told(told: threading.Event) -> Any:
    """Its beginning, and then nothing until somebody has seen that."""
    return slow(SAID, after=2, until=told)  # the first event says only who speaks


@pytest.fixture
def environment(tmp_path: Path, server: DevServer) -> dict[str, str]:
    (tmp_path / "tools.py").write_text(TOOLS)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    command = bin_folder / "everturn"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m everturn "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
    for name in ("CI", "NO_COLOR", "TMUX", "EDITOR", "VISUAL"):
        kept.pop(name, None)
    return {
        **kept,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TEMPORAL_ADDRESS": server.address,
    }


@pytest.fixture
def model(environment: dict[str, str], scripted: Callable[..., ScriptedModel]) -> Callable[[Any], None]:
    def serve(script: Any) -> None:
        environment["SCRIPTED_BASE_URL"] = scripted(script).base_url

    return serve


@pytest.fixture
def name() -> str:
    return f"chat-{uuid4().hex[:8]}"


@pytest.fixture
def clerk(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Starts `everturn worker` with an agent, on a task queue of its own."""
    (tmp_path / "clerk.py").write_text(
        "from everturn import Agent\nfrom tools import look_up, refund\n"
        "clerk = Agent('clerk', model='scripted:x', tools=[look_up, refund])\n"
    )
    environment |= {"EVERTURN_TASK_QUEUE": f"clerk-{uuid4().hex[:8]}", "EVERTURN_AGENTS": "clerk.py"}
    workers: list[Program] = []

    def start() -> None:
        with (tmp_path / "worker.log").open("wb") as log:
            workers.append(Program("-m", "everturn", "worker", cwd=tmp_path, env=environment, stderr=log, stdout=log))

    yield start
    for worker in workers:
        worker.kill()
        worker.wait()


def everturn(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    return run("-m", "everturn", *arguments, env=environment, cwd=folder, check=True).stdout


def test_a_question_a_tool_an_approval_and_back_again(
    environment: dict[str, str],
    tmp_path: Path,
    model: Callable[[Any], None],
    clerk: Callable[[], None],
    name: str,
) -> None:
    told, left = threading.Event(), threading.Event()
    model([call("look_up", {"order": "81"}), REFUND, half_told(told), slow("It was.", until=left)])
    clerk()
    with Terminal(tmp_path, environment) as terminal:
        terminal.until(lambda _: "clerk" in (tmp_path / "worker.log").read_text())
        terminal.run("everturn", "chat", "--agent", "clerk", "--id", name)
        terminal.until("▸")
        terminal.type("Order 81 arrived broken.")
        terminal.until('✓ look_up(order="81")  Order 81: a lamp … 2 more lines', '"cents": 3490', ASKED)
        terminal.type("y")
        terminal.until('✓ refund(order="81", cents=3490)  refunded 3490 of 81')
        terminal.until("● The lamp", gone="paid for it")  # it streams
        told.set()
        shown = terminal.until(lambda shown: shown.rstrip().endswith("▸"))
        assert SAID in " ".join(shown.split())
        assert shown.count("● The") == 1

        terminal.type("Was it?")
        terminal.until("thinking")
        terminal.press("C-c")
        terminal.until("The conversation goes on without you.", f"everturn chat --id {name}")
        assert "Traceback" not in terminal.shown()
        terminal.press("C-l")
        terminal.run("everturn", "chat", "--id", name)
        left.set()
        shown = terminal.until("● It was.", lambda shown: shown.rstrip().endswith("▸"))
        assert "▸ Was it?" in shown
        terminal.type("/quit")
        terminal.until(lambda shown: shown.rstrip().endswith("$"))
    assert '"state": "done"' in everturn(environment, tmp_path, "show", name, "--json")


def test_a_call_is_edited_in_the_editor_and_the_next_denied_with_a_reason(
    environment: dict[str, str], tmp_path: Path, model: Callable[[Any], None], name: str
) -> None:
    model([REFUND, "Less.", REFUND, "Not."])
    editor = tmp_path / "bin" / "lower"
    editor.write_text('#!/bin/sh\ngrep -q 3490 "$1" && sed -i s/3490/oops/ "$1" || sed -i s/oops/900/ "$1"\n')
    editor.chmod(0o755)
    environment["EDITOR"] = "lower"
    with Terminal(tmp_path, environment) as terminal:
        terminal.run("everturn", "chat", "-m", "scripted:x", "--tool", "tools.py", "--id", name)
        terminal.until("▸")
        terminal.type("Refund order 81.")
        terminal.until(ASKED)
        terminal.type("e")
        terminal.until("This is not JSON", lambda shown: shown.rstrip().endswith(ASKED))
        terminal.type("e")
        terminal.until('as refund(order="81", cents=900)', "refunded 900 of 81", "● Less.")

        terminal.until(lambda shown: shown.rstrip().endswith("▸"))
        terminal.type("And again.")
        terminal.until(lambda shown: shown.count('"cents": 3490') == 3 and shown.rstrip().endswith(ASKED))
        terminal.type("n")
        terminal.until("why not?")
        terminal.type("Once is enough.")
        terminal.until("(Once is enough.)", "● Not.")


def test_a_question_goes_away_when_somebody_else_decides(
    environment: dict[str, str], tmp_path: Path, model: Callable[[Any], None], name: str
) -> None:
    model([REFUND, "Done."])
    with Terminal(tmp_path, environment) as terminal:
        terminal.run("everturn", "run", "Refund it.", "-m", "scripted:x", "--tool", "tools.py", "--id", name)
        terminal.until(ASKED)
        terminal.press("y", "e")  # and thinks about it
        environment["USER"] = environment["LOGNAME"] = "ann"
        everturn(environment, tmp_path, "approve", name)
        ended = ("approved by ann", "refunded 3490 of 81", "Done.", lambda shown: shown.rstrip().endswith("$"))
        terminal.until(*ended, gone=ASKED)
        # Nobody reads the keyboard any more but the shell: what is typed is shown once.
        terminal.type("echo ok")
        assert terminal.until("\nok").count("echo ok") == 1


def test_a_call_for_a_person_is_answered_in_its_place_while_somebody_watches(
    environment: dict[str, str], tmp_path: Path, model: Callable[[Any], None], name: str
) -> None:
    told = threading.Event()
    model([call("which_colour", {"of": "lamp"}), half_told(told)])
    watching = tmp_path / "watching"
    watching.mkdir()
    with Terminal(tmp_path, environment) as terminal, Terminal(watching, environment) as watcher:
        terminal.run("everturn", "run", "A lamp, please.", "-m", "scripted:x", "--tool", "tools.py", "--id", name)
        terminal.until('"of": "lamp"', "your answer to which_colour:")
        watcher.run("everturn", "watch", name)
        watcher.until("waiting for somebody to decide")
        terminal.type("green")
        terminal.until("answered by", 'which_colour(of="lamp")')
        watcher.until("● The lamp", gone="paid for it")
        terminal.until("● The lamp", gone="paid for it")  # whoever waits for it reads along
        told.set()
        shown = watcher.until("■ completed · 2 turns")
        assert SAID in " ".join(shown.split())
        assert shown.count("● The lamp") == 1
        shown = terminal.until("paid for it", lambda shown: shown.rstrip().endswith("$"))
        assert shown.count("The lamp of order 81") == 1
    assert asyncio.run(is_streamed(environment, name)), "in steps of 0.2 s, and not of 1.5 s"


async def is_streamed(environment: dict[str, str], name: str) -> bool:
    client = await Client.connect(environment["TEMPORAL_ADDRESS"])
    started = await first_step(client.temporal, name)
    return started is not None and started.start.stream


def test_what_is_said_while_it_stalls_waits_for_resume_and_is_answered_then(
    environment: dict[str, str],
    tmp_path: Path,
    model: Callable[[Any], None],
    clerk: Callable[[], None],
    name: str,
) -> None:
    model([fail(401, "no such key"), "I can hear you."])
    clerk()
    with Terminal(tmp_path, environment) as terminal:
        terminal.until(lambda _: "clerk" in (tmp_path / "worker.log").read_text())
        terminal.run("everturn", "chat", "--agent", "clerk", "--id", name)
        terminal.until("▸")
        terminal.type("Hi.")
        terminal.until("! stalled", lambda shown: shown.rstrip().endswith("▸"))
        terminal.type("What is wrong?")
        terminal.until(lambda shown: shown.count("! stalled") == 2 and shown.rstrip().endswith("▸"))
        terminal.type("/resume")
        terminal.until("● I can hear you.", lambda shown: shown.rstrip().endswith("▸"))
