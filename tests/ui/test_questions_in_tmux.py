"""A question at the keyboard, in a real terminal: edited, pushed down by what is printed, taken back."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.tmux import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

PROGRAM = """
import asyncio, contextlib, pathlib, sys
from everturn.cli.terminal import Screen

screen, folder = Screen(), pathlib.Path()

async def printed_meanwhile():
    while not (folder / "print").exists():
        await asyncio.sleep(0.02)
    screen.print_line("printed meanwhile")

async def taken_back(question):
    while not (folder / "cancel").exists():
        await asyncio.sleep(0.02)
    question.cancel()

async def main():
    question = asyncio.ensure_future(screen.ask_line("edit: ", prefill="grün 日本", earlier=["first", "second"]))
    beside = [asyncio.create_task(printed_meanwhile()), asyncio.create_task(taken_back(question))]
    try:
        screen.print_line(f"got {await question!r}")
    except EOFError:
        screen.print_line("got the end of the input")
    except asyncio.CancelledError:
        print("the question is gone" if question.cancelled() and not asyncio.current_task().cancelling() else "stopped")

with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
"""


APPROVAL = """
import asyncio
from rich.text import Text
from everturn.cli.terminal import Screen

screen = Screen()
block = Text("    bash (call_1)", style="bold").append('\\n      "command": "ls ' + "日本 a" * 40 + '; rm -rf  /"')
print("got", asyncio.run(screen.ask_line("    approve bash? ", above=block)))
"""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "TMUX")}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "asks.py").write_text(PROGRAM)
    with Terminal(tmp_path, environment(), columns=60, rows=20) as terminal:
        terminal.run(sys.executable, "asks.py")
        terminal.until("edit: grün 日本")
        yield terminal


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["!"], "grün 日本!"),
        (["Left", "BSpace"], "grün 本"),
        (["C-a", "ganz", "Space"], "ganz grün 日本"),
        (["C-w", "C-w", "blau"], "blau"),
        (["C-u", "fine"], "fine"),
        (["Up", "Up", "Up", "!"], "first!"),
        (["Up", "Down", "!"], "grün 日本!"),
    ],
)
def test_a_line_is_edited_as_in_a_shell(terminal: Terminal, keys: list[str], line: str) -> None:
    terminal.press(*keys, "Enter")
    terminal.until(f"got {line!r}")


def test_a_paste_of_several_lines_is_one_answer(terminal: Terminal) -> None:
    terminal.press("C-u")
    terminal.paste("one\ntwo")
    terminal.until("two")
    terminal.press("Enter")
    terminal.until(repr("one\ntwo"))


def test_what_is_printed_meanwhile_goes_above_the_question(terminal: Terminal, tmp_path: Path) -> None:
    terminal.press("C-u", *"x" * 70)  # two rows
    terminal.until(lambda shown: shown.count("x") == 70)
    (tmp_path / "print").touch()
    terminal.until("printed meanwhile")
    terminal.press("y", "Enter")
    shown = terminal.until("got", lambda shown: shown.count("x") == 140)
    assert shown.index("printed meanwhile") < shown.index("edit: xxx")
    assert shown.count("edit: ") == 1


def test_what_is_asked_about_is_shown_to_its_end_however_narrow_the_terminal_is(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(APPROVAL)

    def whole(shown: str) -> bool:
        return "日本a" * 40 + ';rm-rf/"approvebash?' in "".join(shown.split())

    with Terminal(tmp_path, environment(), columns=60, rows=40) as terminal:
        terminal.run(sys.executable, "asks.py")
        terminal.until(whole)
        terminal.resize(31)
        terminal.until(whole)
        terminal.press("y", "Enter")
        assert whole(terminal.until("got y"))


def test_a_question_that_is_taken_back_leaves_nothing_on_the_screen(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "cancel").touch()
    terminal.until("the question is gone", gone="edit:")


@pytest.mark.parametrize(("key", "end"), [("C-d", "got the end of the input"), ("C-c", "stopped")])
def test_a_question_can_be_left(terminal: Terminal, key: str, end: str) -> None:
    terminal.press("C-u")
    terminal.press(key)
    terminal.until(end)
