"""`everturn demo`, as CI runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from everturn.cli.demo.checks import PlayedDemo, check_demo
from everturn.cli.demo.kill import Kill
from everturn.cli.demo.stage import INVOICES, SCRIPTED, Stage
from everturn.devserver import DevServer
from everturn.records import Decision, Message, Text, ToolCall, ToolResult


def demo(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
    kept.pop("MODEL", None)
    return subprocess.run(
        [sys.executable, "-m", "everturn", "demo"],
        cwd=tmp_path,
        env={**kept, "CI": "true", "TMPDIR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


HAPPENED = [
    "the worker was killed (SIGKILL); 3 calls were run again",
    "4 effects in journal.csv for 4 bookings, each exactly once (2 before the kill, 2 after)",
    "1 payment in payments.csv, approved and made exactly once",
    "with the sum of 1,651.10 EUR",
    "the transcript is complete: 12 messages, 12 calls, 12 results",
    "Everything happened",
]


@pytest.mark.long
def test_everything_really_happens(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [words for words in HAPPENED if words not in done.stdout] == []
    assert "/namespaces/default/workflows/october-books-" in done.stdout
    assert done.stderr == ""
    # It leaves nothing behind but the folder of the workers' journals, for their successors.
    assert [left.name for left in tmp_path.iterdir() if not (left / "journals").is_dir()] == []


@pytest.mark.long
def test_it_plays_on_a_temporal_that_is_there(tmp_path: Path, server: DevServer) -> None:
    # And where the tutorial has left its own model in the environment, which is gone.
    left = {"MODEL": "scripted:shop", "SCRIPTED_BASE_URL": "http://127.0.0.1:9"}
    done = demo(tmp_path, TEMPORAL_ADDRESS=server.address, **left)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.address in done.stdout


def test_a_missing_key_is_one_line(tmp_path: Path) -> None:
    done = demo(tmp_path, MODEL="groq:some-model", GROQ_API_KEY="")
    assert done.returncode == 1
    assert "GROQ_API_KEY" in done.stderr
    assert done.stderr.count("\n") == 1


# ---------------------------------------------------------------- the checks themselves: they must be able to fail

KILLED = datetime(2026, 11, 1, tzinfo=UTC)
KILL = Kill(KILLED, -9, lines_before=2, new_pid=7)
BOOKED = {"2026-101": 20340, "2026-102": 50895, "2026-103": 17675, "2026-105": 76200}
REPORT = "| **all** | | **1,651.10** |\n"


def played(**changes: object) -> PlayedDemo:
    """A conversation that went as it should."""
    bookings = [
        ToolCall(call_id=f"b{index}", name="book", arguments={"invoice": invoice, "supplier": "s", "cents": cents})
        for index, (invoice, cents) in enumerate(BOOKED.items())
    ]
    report = ToolCall(call_id="r", name="write_report", arguments={"markdown": REPORT})
    pay = ToolCall(call_id="p", name="pay", arguments={"invoice": "2026-102", "iban": "DE1", "cents": 50895})
    approved = Decision(verdict="approve", by="ann")
    messages = [
        Message.user("Do the books."),
        Message(role="assistant", parts=tuple(bookings)),
        Message(role="tool", parts=tuple(ToolResult(call_id=booking.call_id, name="book") for booking in bookings)),
        Message(role="assistant", parts=(report, pay)),
        Message(
            role="tool",
            parts=(
                ToolResult(call_id="r", name="write_report"),
                ToolResult(call_id="p", name="pay", decision=approved),
            ),
        ),
        Message(role="assistant", parts=(Text(text="Done."),)),
    ]
    facts = {"messages": messages, "kill": KILL, "second_tries": [KILLED + timedelta(seconds=5)], **changes}
    return PlayedDemo(conversation_id="x", chain_id="r", **facts)  # type: ignore[arg-type]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """The files as they should be."""
    books = tmp_path / INVOICES
    books.mkdir()
    lines = [f"x:r:b{index},{invoice},s,{cents}\n" for index, (invoice, cents) in enumerate(BOOKED.items())]
    (books / "journal.csv").write_text("".join(lines))
    (books / "payments.csv").write_text("x:r:p,2026-102,DE1,50895\n")
    (books / "report.md").write_text(REPORT)
    stage = Stage.__new__(Stage)
    stage.folder, stage.model = tmp_path, SCRIPTED
    return stage


def failed(stage: Stage, it: PlayedDemo) -> list[int]:
    return [index for index, check in enumerate(check_demo(stage, it)) if not check.happened]


def test_what_went_as_it_should_passes(stage: Stage) -> None:
    assert failed(stage, played()) == []


@pytest.mark.parametrize(
    ("file", "change", "wrong"),
    [
        ("journal.csv", lambda text: text + text.splitlines(keepends=True)[1], 1),  # an effect twice
        ("journal.csv", lambda text: text.partition("\n")[2], 1),  # one is lost
        ("journal.csv", lambda text: text.replace("20340", "20341"), 1),
        ("payments.csv", lambda text: text + text, 2),
        ("payments.csv", lambda text: text[:0], 2),
        ("payments.csv", lambda text: text.replace("DE1", "DE2"), 2),
        ("report.md", lambda text: text.replace("1,651", "1,652"), 3),
    ],
)
def test_a_wrong_effect_is_found(stage: Stage, file: str, change: Callable[[str], str], wrong: int) -> None:
    path = stage.books / file
    path.write_text(change(path.read_text()))
    assert failed(stage, played()) == [wrong]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"kill": None}, 0),
        ({"kill": Kill(KILLED, -15, lines_before=2, new_pid=7)}, 0),
        ({"second_tries": []}, 0),
        ({"messages": played().messages[:-1]}, 4),
    ],
    ids=["never killed", "not by SIGKILL", "nothing was interrupted", "no last word"],
)
def test_a_story_that_did_not_happen_is_found(stage: Stage, changes: dict[str, object], wrong: int) -> None:
    assert failed(stage, played(**changes)) == [wrong]
