"""What `everturn tools --mcp` and `everturn doctor --mcp` say of MCP servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from everturn.cli import run_command

ROOT = Path(__file__).parents[2]

AGENTS = """
import sys
from everturn import Agent, McpServer

shop = McpServer(command=[sys.executable, "-m", "tests.support.mcp_shop", {folder!r}], cwd={root!r}, allow=["find"])
clerk = Agent("clerk", model="openai:x", tools=[shop])
"""
GONE = """
from everturn import Agent, McpServer

clerk = Agent("clerk", model="openai:x", tools=[McpServer(command=["no-such-program-here"])])
"""


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    file = tmp_path / "served.py"
    file.write_text(AGENTS.format(folder=str(tmp_path), root=str(ROOT)))
    return file


def test_tools_of_servers_are_shown_if_asked_for(agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["tools", str(agents), "--mcp", "--json"]) == 0
    [tool] = json.loads(capsys.readouterr().out)
    assert (tool["name"], tool["effect"], tool["needs_approval"]) == ("find", "read", False)
    assert tool["parameters"]["required"] == ["name"]


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gone.py"
    file.write_text(GONE)
    assert run_command(["tools", str(file), "--mcp"]) == 1
    assert "MCP server 'no-such-program-here' can't be asked" in capsys.readouterr().err
    file.write_text("from everturn import Agent\nclerk = Agent('clerk', model='openai:x')")
    assert run_command(["tools", str(file), "--mcp"]) == 1


def test_doctor_starts_servers_only_if_asked_to(
    agents: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("EVERTURN_AGENTS", str(agents))
    run_command(["doctor", "--json"])
    findings = {record["part"]: record for record in json.loads(capsys.readouterr().out)}
    assert findings["MCP servers"]["state"] == "note"
    assert not (agents.parent / "log").exists(), "nothing was started"
    run_command(["doctor", "--json", "--mcp"])
    findings = {record["part"]: record for record in json.loads(capsys.readouterr().out)}
    name = f"MCP server {Path(sys.executable).name}"
    [found] = [one for part, one in findings.items() if part.startswith("MCP server ")]
    assert found["state"] == "ok", name
    assert "1 tools: find" in found["detail"]
