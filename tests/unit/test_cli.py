"""The command line without a server: exit statuses, one-line errors, and how things look."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from rich.text import Text

from everturn import events
from everturn.cli import run_command
from everturn.cli.labels import labels_of
from everturn.cli.render import EventLines, one_line, table_lines, transcript_lines
from everturn.records import Decision, Message, ToolCall, ToolResult
from everturn.records import Text as TextPart
from tests.support.prepared import Program, run

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*os.environ]:
        if name.startswith(("EVERTURN_", "TEMPORAL_")) or name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", UNREACHABLE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fine.py").write_text('def add(a: int, b: int = 2) -> int:\n    "Add them."\n    return a + b\n')
    (tmp_path / "broken.py").write_text("x = 1\ndef add(:\n")


_read_once = cache(typer.main.get_command)
"""Typer reads the annotations of all commands each time that it is called: a tenth of a second."""


@pytest.fixture(autouse=True)
def _commands_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer.main, "get_command", _read_once)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def status_and_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit status and the one line of standard error."""
    status = run_command(arguments)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("\n")
    assert said.err.count("\n") == 1, said.err
    return status, said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], ["everturn run: Missing argument", "everturn run --help"]),
        (["run", "hi", "--modle", "x"], ["No such option: --modle", "--model"]),
        (["run", "hi"], ["--model", "provider:name", "--agent NAME"]),
        (["run", "", "-m", "scripted:x"], ["message is empty"]),
        (["run", "hi", "--agent", "clerk", "-s", "Be brief."], ["--agent", "has its own"]),
        (["chat"], ["--model", "provider:name"]),
        (["run", "hi", "--agent", "fine.py:clerk"], ["--agent", "is a file", "everturn worker --agents fine.py:clerk"]),
        (["frobnicate"], ["No such command 'frobnicate'. See"]),
        (["rnu"], ["Did you mean 'run'? See everturn --help."]),
        (["list", "--status", "asleep"], ["'asleep' is not a status", "awaiting_approval"]),
        (["list", "--limit", "0"], ["--limit"]),
        (["approve", "x", "c", "--arguments", "{no"], ["--arguments", "not JSON"]),
        (["approve", "x", "c", "--arguments", "[1]"], ["--arguments", "JSON object"]),
        (["approve"], ["ID", "name a conversation, or use --all"]),
        (["approve", "x", "--all"], ["ID", "leave out the ID"]),
        (["deny", "x", "--agent", "clerk"], ["--agent", "goes with --all"]),
        (["deny", "x", "c", "--tool", "refund"], ["--tool", "named already"]),
        (["approve", "x", "c", "--where", "{}"], ["--where", "--always"]),
        (["approve", "x", "--where", "[]"], ["--where", "JSON object"]),
        (["approve", "x", "c", "d", "--arguments", "{}"], ["--arguments", "one call"]),
        (["approve", "--all", "--arguments", "{}"], ["--arguments", "one call"]),
        (["approve", "x", "--within", "0"], ["--within"]),
        (["answer", "x"], ["Missing argument", "CALL"]),
        (["deny", "x", "--reason"], ["everturn deny: Option '--reason' requires", "See everturn deny --help"]),
        (["--nonsense"], ["everturn: No such option: --nonsense", "See everturn --help"]),
        (["send", "x", "caf\udce9"], ["is not UTF-8"]),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: list[str]
) -> None:
    status, line = status_and_line(capsys, *arguments)
    assert status == 2
    assert [words for words in said if words not in line] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "hi", "-m", "foo"], ["'foo' is not a model", "provider:name"]),
        (["run", "hi", "-m", "opnai:x"], ["no provider 'opnai'", "Did you mean 'openai'?"]),
        (["run", "hi", "-m", "openai:x"], ["No key for 'openai:x'", "OPENAI_API_KEY", "everturn models"]),
        (["run", "hi", "-m", "scripted:x"], ["SCRIPTED_BASE_URL"]),
        (["run", "hi", "-m", "ollama:x", "--tool", "broken.py"], ["broken.py, line 2", "Correct the line"]),
        (["run", "hi", "-m", "ollama:x", "--tool", "none.py"], ["no file none.py"]),
        (["run", "hi", "-m", "ollama:x", "--tool", "fine.py"], [UNREACHABLE, "everturn up"]),
        (["run", "hi", "--agent", "clerk"], [UNREACHABLE, "TEMPORAL_ADDRESS"]),
        (["chat", "-m", "openai:x"], ["OPENAI_API_KEY"]),
        (["list"], [UNREACHABLE, "everturn up"]),
        (["show", "x"], [UNREACHABLE]),
        (["approve", "x"], [UNREACHABLE]),
        (["resume", "x", "-m", "opnai:x"], ["Did you mean 'openai'?"]),
        (["worker"], ["EVERTURN_AGENTS"]),
        (["worker", "--agents", "broken.py"], ["broken.py, line 2"]),
        (["up", "--agents", "fine.py"], ["fine.py has no Agent"]),
        (["tools", "broken.py"], ["broken.py, line 2"]),
    ],
    ids=" ".join,
)
def test_a_failure_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: list[str]
) -> None:
    status, line = status_and_line(capsys, *arguments)
    assert status == 1
    assert line.startswith("everturn: ")
    assert [words for words in said if words not in line] == []


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("127.0.0.1", "at '127.0.0.1': the port is missing. Write 127.0.0.1:7233 in TEMPORAL_ADDRESS"),
        (":7233", "at ':7233': the host is missing. Write HOST:PORT in TEMPORAL_ADDRESS"),
        ("https://127.0.0.1:7233/", "its address is no URL. Write 127.0.0.1:7233 in TEMPORAL_ADDRESS. For TLS"),
    ],
)
def test_an_address_that_is_not_whole_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str, problem: str
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    status, line = status_and_line(capsys, "list")
    assert status == 1
    assert problem in line


def test_a_disk_that_is_full_is_one_line_and_exit_1() -> None:
    with (
        Path("/dev/full").open("w") as full,
        Program("-m", "everturn", "models", stdout=full, stderr=subprocess.PIPE) as program,
    ):
        _, errors = program.communicate(timeout=180)
    assert (program.returncode, errors) == (1, "everturn: The output can't be written: No space left on device.\n")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("EVERTURN_TASKQUEUE", "x", "Did you mean EVERTURN_TASK_QUEUE?"),
        ("EVERTURN_LOG", "xml", "'console' or 'json'"),
    ],
)
@pytest.mark.parametrize("arguments", [["run", "hi", "-m", "ollama:x"], ["list"], ["worker"], ["up"]], ids=" ".join)
def test_a_bad_setting_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    name: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv(name, value)
    status, line = status_and_line(capsys, *arguments)
    assert status == 1
    assert name in line
    assert said in line


def test_what_nobody_expected_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(path: Path) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("everturn.loading.load_tools", break_down)
    status, line = status_and_line(capsys, "tools", "fine.py")
    assert status == 1
    assert "ZeroDivisionError: two lines" in line
    assert "EVERTURN_LOG_LEVEL=debug" in line


def test_tools_shows_what_a_model_sees(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["tools", "fine.py", "--json"]) == 0
    (tool,) = json.loads(capsys.readouterr().out)
    assert (tool["name"], tool["description"], tool["effect"]) == ("add", "Add them.", "idempotent")
    assert tool["parameters"]["required"] == ["a"]


def test_models_names_keys_and_never_shows_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-very-secret")
    assert run_command(["models"]) == 0
    assert run_command(["models", "--json"]) == 0
    out = capsys.readouterr().out
    assert "GROQ_API_KEY" in out
    assert "very-secret" not in out
    rows = json.loads(out[out.index("[\n") :])
    assert [row["provider"] for row in rows if row["keys_set"]] == ["groq"]


def test_doctor_has_a_line_for_each_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_AGENTS", "broken.py")
    assert run_command(["doctor", "--json"]) == 1
    findings = {record["part"]: record for record in json.loads(capsys.readouterr().out)}
    assert {part: one["state"] for part, one in findings.items()} == {
        "versions": "ok",
        "settings": "ok",
        "encryption": "note",
        "Temporal": "wrong",
        "fairness": "note",
        "agents": "wrong",
        "keys": "note",
    }
    assert UNREACHABLE in findings["Temporal"]["detail"]
    assert run_command(["doctor"]) == 1
    assert "WRONG Temporal" in capsys.readouterr().out


def test_the_process_has_the_status_too() -> None:
    done = [run("-m", "everturn", *words) for words in (["--version"], ["tools", "none.py"], ["--nope"])]
    assert [one.returncode for one in done] == [0, 1, 2]
    assert done[0].stdout.startswith("everturn ")


def test_the_help_imports_nothing_that_is_slow() -> None:
    """temporalio alone takes a second and more; without it, the help takes 0.3 s."""
    code = "import sys, everturn.cli; print({'temporalio', 'httpx', 'structlog'} & sys.modules.keys())"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert listed.stdout.strip() == "set()"


# ---------------------------------------------------------------- how it looks

CALL = ToolCall(call_id="c1", name="refund", arguments={"order": "81", "cents": 5})


def result(text: str, **fields: Any) -> ToolResult:
    return ToolResult(call_id="c1", name="refund", content=(TextPart(text=text),), **fields)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (events.ToolCalled(turn=1, call=CALL), '  → refund(order="81", cents=5)'),
        (
            events.ToolCalled(turn=1, call=CALL, refused="no such\ntool"),
            '  ✗ refund(order="81", cents=5)  no such tool',
        ),
        (
            events.ApprovalRequested(turn=1, call=CALL, why="it costs"),
            '  ◆ refund(order="81", cents=5) waits: it costs',
        ),
        (events.ToolFinished(turn=1, result=result("gone")), '  ✓ refund(order="81", cents=5)  gone'),
        (events.ToolFinished(turn=1, result=result("no", is_error=True)), '  ✗ refund(order="81", cents=5)  no'),
        (events.Decided(call_id="c1", verdict="deny", by="ann", note="x"), "◆ denied by ann (x): refund"),
        (events.Decided(call_id="c1", verdict="approve", arguments={"cents": 4}), "◆ approved, as refund(cents=4)"),
        (events.Stalled(turn=2, cause="No key.", cure="Set it."), "! stalled in turn 2: No key. Set it."),
        (events.Done(why="it was cancelled"), "■ it was cancelled"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_an_event_is_a_line(event: events.Event, line: str) -> None:
    lines = EventLines(width=160)
    lines.lines_for(events.ToolCalled(turn=1, call=CALL))
    (event_line,) = lines.lines_for(event)
    assert line in event_line.plain


def test_nothing_that_a_model_or_tool_wrote_reaches_the_terminal_as_a_command() -> None:
    nasty = "\x1b[2J\x1b]0;owned\x07 [bold]x[/bold]\r\x9b31m"
    (line,) = EventLines(width=160).lines_for(events.ToolFinished(turn=1, result=result(nasty)))
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line.plain)
    assert "[bold]x[/bold]" in line.plain


def test_a_transcript_reads_from_top_to_bottom() -> None:
    decided = Decision(verdict="approve", by="ann", arguments={"order": "81", "cents": 4})
    notice = TextPart(text="[Approved by ann with other arguments: ...]\n")
    answered = ToolResult(call_id="c1", name="refund", content=(notice, TextPart(text="gone")), decision=decided)
    messages = [
        Message.user("Refund 81.\nPlease."),
        Message(role="assistant", parts=(TextPart(text="I do."), CALL)),
        Message(role="tool", parts=(answered,)),
        Message(role="assistant", parts=(TextPart(text="Done."),)),
    ]
    assert [line.plain for line in transcript_lines(messages, width=160)] == [
        "",
        "▸ Refund 81.\n  Please.",
        "",
        "● I do.",
        '  → refund(order="81", cents=5)',
        '    ✓ refund [approved by ann, with {"order": "81", "cents": 4}] gone',
        "",
        "● Done.",
    ]


def test_folding_and_columns_keep_to_one_line() -> None:
    assert one_line("a\n  b\tc", 10) == "a b c"
    assert one_line("abcdefgh", 4) == "abc…"
    long = "x" * 200
    table = table_lines(("ID", "N"), [(long, Text("1")), ("b\x1b", "2")])
    assert [line.plain for line in table] == [
        f"ID{' ' * 200}N",
        f"{long}  1",
        f"b\\u001b{' ' * 195}2",
    ]


def test_metadata_is_text_unless_it_is_marked_as_json() -> None:
    given = ["user=u-7", "vip:=true", "roles:=[1, 2]", "note=a=b", "empty="]
    wanted = {"user": "u-7", "vip": True, "roles": [1, 2], "note": "a=b", "empty": ""}
    assert labels_of("acme", given) == {"tenant": "acme", "metadata": wanted}
    assert labels_of(None, None) == {"tenant": None, "metadata": {}}


@pytest.mark.parametrize("given", ["user", "=x", ":=1", "vip:=yes"])
def test_metadata_that_makes_no_sense_is_a_matter_of_usage(given: str) -> None:
    with pytest.raises(typer.BadParameter):
        labels_of(None, [given])
