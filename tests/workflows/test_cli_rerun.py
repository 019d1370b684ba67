"""`everturn rerun` and `everturn cases`: red and green, for people and programs."""

from __future__ import annotations

import json
import re
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


SCRUB = """
def shout(text: str) -> str:
    return text.replace("jane", "[name]")
"""


def test_cases_are_written_once_without_names_and_are_red_for_what_people_denied(
    shell: Shell, model: Callable[[Any], None], name: str
) -> None:
    refunds = call("refund", {"order": "81", "cents": 5})
    model([refunds, "It is not done, jane."])
    started = shell.start("run", "Refund me, jane", "-m", "scripted:x", "--tool", "tools.py", "--id", name)
    shell.until_one_waits(name)
    assert shell.run("deny", name, "--reason", "jane has no right to it").returncode == 0
    started.communicate(timeout=30)
    (shell.folder / "candidate.py").write_text(CANDIDATE)
    (shell.folder / "pii.py").write_text(SCRUB)
    options = ["cases", "--query", f"WorkflowId = '{name}'", "--redact", "pii.py:shout", "--redact", "email"]
    first = shell.json(*options, "--denied", "-o", "cases")
    assert first["cases"] == [name, f"{name} turn 1"]
    [file] = first["written"]
    written = (shell.folder / file).read_text()
    assert "jane" not in written
    assert "reason: '[name] has no right to it'" in written
    assert shell.json(*options, "-o", "cases")["written"] == []
    assert shell.json(*options, "--edited", "-o", "others")["cases"] == []
    model([refunds, "It is not done, jane."])
    red = shell.run("rerun", "--cases", "cases", "--agent", "candidate.py")
    assert red.returncode == 1
    assert "MISSED calls that people had corrected: 2 made again; at most 0 may be" in red.stdout
    assert re.search(r"\? > \d+ +\? > \?", red.stdout)  # a case holds no tokens and no costs
    model(["I can't do that."])
    (shell.folder / "prompt.md").write_text("Refund nobody.")
    green = shell.run("rerun", "--cases", "cases", "--agent", "candidate.py", "--system", "prompt.md")
    assert green.returncode == 0, green.stdout
    for wrong in (["--redact", "nothing"], ["--redact", "none", "--redact", "email"]):
        assert shell.run("cases", *wrong).returncode in (1, 2)
