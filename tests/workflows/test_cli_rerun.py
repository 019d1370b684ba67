"""`everturn rerun`: red and green, for people and programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from everturn.testing import call
from tests.support.shell import Shell

CANDIDATE = """
from everturn import Agent
from tools import get_weather, refund

clerk = Agent("assistant", model="scripted:x", tools=[get_weather, refund])
"""


def test_a_rerun_is_green_or_red_and_refunds_nothing(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    refunds = call("refund", {"order": "81", "cents": 5})
    model([refunds, "It is done."])
    assert shell.run("run", "Refund", "-m", "scripted:x", "--tool", "tools.py", "--yes", "--id", name).returncode == 0
    (shell.folder / "candidate.py").write_text(CANDIDATE)
    green = shell.run("rerun", name, "--agent", "candidate.py:clerk")
    assert green.returncode == 0, green.stderr
    assert "same calls" in green.stdout
    (shell.folder / "prompt.md").write_text("Be quick.")
    model([refunds, refunds, "It is done."])
    options = ["--agent", "candidate.py", "--system", "prompt.md", "--output", "rerun.md"]
    red = shell.run("rerun", name, *options, "--format", "json")
    assert red.returncode == 1
    told = json.loads(red.stdout)
    assert told["failures"] == ["same calls: 0% of the reruns; at least 100% are wanted"]
    assert told["comparisons"][0]["diverged"]["made"] == {"tool": "refund", "arguments": {"order": "81", "cents": 5}}
    assert "a tool's own words" not in green.stdout + red.stdout
    assert "| diverged |" in (shell.folder / "rerun.md").read_text()
    for wrong in ((), (name,), (name, "--query", "x", "--agent", "candidate.py")):
        assert shell.run("rerun", *wrong).returncode == 2
