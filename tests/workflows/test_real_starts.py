"""Each command as a program of its own, in which nothing was imported before: other tests fork most of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn.cli import app
from everturn.testing import call
from tests.support.shell import Shell

ELSEWHERE = {"demo", "up", "web", "codec", "mcp"}
"""They run until somebody stops them, and really start in the tests of their own."""


@pytest.mark.long
def test_every_command_comes_up_by_itself(
    shell: Shell, model: Callable[[Any], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REAL_STARTS", "1")
    model(lambda messages: call("refund", {"order": "81", "cents": 5}) if len(messages) == 1 else "It is done.")
    tools = ["-m", "scripted:x", "--tool", "tools.py"]
    over = f"'{name}' is over"
    commands: list[tuple[list[str], int, str]] = [
        (["run", "Refund order 81", *tools, "--yes", "--id", name], 0, "It is done."),
        (["chat", *tools, "--id", name], 0, "The conversation is over"),
        (["show", name], 0, "It is done."),
        (["cost", name], 0, "TURNS"),
        (["list"], 0, ""),
        (["budget", "nobody"], 1, "has no budget"),
        (["evaluations", "--conversation", "nobody"], 0, "No answer is judged"),
        (["watch", name], 0, "completed"),
        (["export", name, "-o", "it.db"], 0, "exported"),
        (["tools", "tools.py"], 0, "get_weather"),
        (["models"], 0, "anthropic:"),
        (["replay", "--id", name], 0, "OK"),
        (["rerun", name], 2, "--agent"),
        (["cases", "-o", "cases", "--query", f"WorkflowId = '{name}'"], 0, "cases of"),
        (["doctor"], 1, "workers"),
        (["queues"], 0, "ROLES"),
        (["fork", name, "--at-turn", "1", "--id", f"{name}-2"], 0, ""),
        *((["approve", name], 1, over), (["deny", name], 1, over), (["answer", name, "call_0_0", "42"], 1, over)),
        *((["pause", name], 1, over), (["resume", name], 1, over), (["close", name], 1, over)),
        (["cancel-turn", name], 1, over),
        (["erase", "nobody"], 0, "nobody"),
        (["worker"], 1, "No agents to host"),
        (["send", name, "And?"], 0, "sent"),
    ]
    for arguments, status, said in commands:
        done = shell.run(*arguments, says="/quit\n")
        assert (arguments, done.returncode) == (arguments, status), done.stderr
        assert said in done.stdout + done.stderr
    named = {command.name for command in app.registered_commands}
    assert named - {arguments[0] for arguments, _, _ in commands} == ELSEWHERE
