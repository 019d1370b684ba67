"""The tutorial as a newcomer plays it: its own files, its own commands in three terminals, and its own output."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.doc_pages import ROOT, blocks_of
from tests.support.ports import free_port
from tests.ui.tmux import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

BLOCKS = [*blocks_of(ROOT / "docs/tutorial.md")]
COMMANDS = [block.text for block in BLOCKS if block.language == "sh"]


@pytest.fixture
def ports() -> tuple[int, ...]:
    """In place of the tutorial's, which somebody may use here: the model's, Temporal's, the Web UI's."""
    found: set[int] = set()
    while len(found) < 3:
        found.add(free_port())
    return tuple(found)


@pytest.fixture
def terminals(tmp_path: Path, ports: tuple[int, ...]) -> Iterator[list[Terminal]]:
    shop = tmp_path / "shop"
    shop.mkdir()
    for block in BLOCKS:
        if named := re.match(r"# (\w+\.py)\n", block.text):
            (shop / named[1]).write_text(block.text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
    for name in ("CI", "NO_COLOR", "TMUX", "MODEL", "SCRIPTED_BASE_URL"):
        kept.pop(name, None)
    environment = {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    with ExitStack() as stack:
        three = [Terminal(shop, environment, columns=160) for _ in range(3)]
        yield [stack.enter_context(terminal) for terminal in three]
        three[1].press("C-c")


_VARYING = re.compile(
    r"\d\d:\d\d:\d\d|\d+ s ago|seconds=\S+|127\.0\.0\.1:\d+|by \S+@\S+?(?=\])|^⠋.*| \.\.\.$|^\.\.\.$"
    r"|(?<=:)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Times, names of people and machines, ports, marks that move, what is cut with dots, and ids of runs."""


def outputs(heading: str) -> list[list[str]]:
    """The blocks of output under a heading, as the lines that are the same on every machine."""
    text = (ROOT / "docs/tutorial.md").read_text()
    section = text[text.index(f"\n## {heading}") :].split("\n## ")[1]
    blocks = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    return [[line for line in map(plain, block.splitlines()) if line] for block in blocks]


def plain(line: str) -> str:
    return " ".join(_VARYING.sub("", line).split())


def lacking(lines: list[str], shown: str) -> list[str]:
    seen = " ".join(map(plain, shown.splitlines()))
    return [line for line in lines if line not in seen]


def _killed_once_asked(host: Terminal) -> Callable[[str], bool]:
    """A shell says so before its next prompt."""

    def killed(shown: str) -> bool:
        host.press("Enter")
        return "Killed" in shown

    return killed


@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_tutorial_goes_as_it_says(terminals: list[Terminal], tmp_path: Path, ports: tuple[int, ...]) -> None:
    model, host, user = terminals
    model_port, port, ui_port = ports
    (_, tools, serve, up, run, kill, up_again, approve, show, cat) = (
        command.replace("--port 8001", f"--port {model_port}")
        .replace("127.0.0.1:8001", f"127.0.0.1:{model_port}")
        .replace("up --agents shop.py", f"up --agents shop.py --port {port} --ui-port {ui_port}")
        for command in COMMANDS
    )
    user.type(f"export TEMPORAL_ADDRESS=127.0.0.1:{port}")

    user.type(tools)
    user.until(lambda shown: not lacking(outputs("2. Write an agent")[0], shown))

    model.type(serve)
    model.until(f":{model_port}")
    host.type(up)
    host.until(lambda shown: not lacking(outputs("4. Start everything")[0], shown))

    user.clear()
    user.type(run)
    user.until(lambda shown: not lacking(outputs("5. Start a conversation")[0], shown), "send_letter ·")
    host.press("C-z")
    host.until("Stopped")
    host.type(kill)
    host.until(_killed_once_asked(host))
    assert not (tmp_path / "shop/letters.txt").exists()

    host.clear()
    host.type(up_again)
    logged, told, left = outputs("6. Start it again")
    user.until(lambda shown: not lacking(told, shown))
    host.until(lambda shown: not lacking(logged, shown))
    user.press("C-c")
    user.until(lambda shown: not lacking(left, shown))

    user.clear()
    user.type(approve)
    approved, shown_after, letters = outputs("7. Approve")
    user.until(lambda shown: not lacking(approved, shown))
    user.clear()
    host.until("turn=4")
    user.type(show)
    user.until(lambda shown: not lacking(shown_after, shown))
    user.type(cat)
    user.until(lambda shown: not lacking(letters, shown))
