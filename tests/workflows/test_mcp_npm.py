"""MCP's own reference servers, as npm has them: for files, and the one that does everything once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn import Client, Image, McpServer, McpTool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

SERVERS = ("server-filesystem", "server-everything")


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the servers, installed."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("npm")
    packages = [f"@modelcontextprotocol/{name}" for name in SERVERS]
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    try:
        subprocess.run(
            ["npm", "install", "--prefix", folder, *quiet, *packages], check=True, capture_output=True, timeout=100
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm could not install them: {str(error.stderr)[-300:]}")
    return folder / "node_modules" / ".bin"


@pytest.mark.long
async def test_files_are_written_once_a_person_said_so(
    client: Client, scripted: Scripted, npm: Path, tmp_path: Path
) -> None:
    letter = tmp_path / "letter.txt"
    model = scripted(
        [
            call("write_file", {"path": str(letter), "content": "Dear Sir"}),
            [call("read_text_file", {"path": str(letter)}), call("read_text_file", {"path": "/etc/passwd"})],
            "Done.",
        ]
    )
    files = McpServer(command=[str(npm / "mcp-server-filesystem"), str(tmp_path)])
    agent = agent_on(model, tools=[files])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Write a letter")
        [call_id] = await waiting(conversation)
        assert not letter.exists()
        await conversation.approve(call_id)
        assert (await conversation.outcome()).text == "Done."
    _, read, refused = results_of(await conversation.transcript())
    assert letter.read_text() == "Dear Sir"
    assert "Dear Sir" in read.text
    assert refused.is_error
    assert "Access denied" in refused.text


@pytest.mark.long
async def test_pictures_links_and_questions_of_the_server_that_has_everything(
    client: Client, scripted: Scripted, npm: Path
) -> None:
    calls = [call("get-sum", {"a": 2, "b": 3}), call("get-tiny-image"), call("get-resource-links", {"count": 1})]
    calls += [call("get-structured-content", {"location": "New York"})]
    model = scripted([calls, call("trigger-elicitation-request"), "Done."])
    ask = {"trigger-elicitation-request": McpTool(effect="idempotent", needs_approval=False)}
    every = McpServer(command=[str(npm / "mcp-server-everything"), "stdio"], overrides=ask)
    agent = agent_on(model, tools=[every])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Try it")
        [call_id] = await waiting(conversation)
        [asked] = (await conversation.status()).waiting
        assert asked.reason == "tool_asks"
        await conversation.answer(call_id, {"name": "Ada"})
        assert (await conversation.outcome()).text == "Done."
    added, pictured, linked, structured, answered = results_of(await conversation.transcript())
    assert "5" in added.text
    assert any(isinstance(part, Image) for part in pictured.content)
    assert "[resource " in linked.text
    assert "temperature" in structured.text
    assert "Ada" in answered.text


@pytest.mark.long
async def test_a_task_of_the_server_that_has_everything_is_followed_and_asks(
    client: Client, scripted: Scripted, npm: Path
) -> None:
    """In the protocol of 2025: we ask for a task, and what it asks makes it once more."""
    plain = call("simulate-research-query", {"topic": "python"})
    asking = call("simulate-research-query", {"topic": "python", "ambiguous": True})
    model = scripted([plain, asking, "Done."])
    idempotent = {"simulate-research-query": McpTool(effect="idempotent")}
    every = McpServer(command=[str(npm / "mcp-server-everything"), "stdio"], overrides=idempotent)
    agent = agent_on(model, tools=[every])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Try it")
        [call_id] = await waiting(conversation)
        [asked] = (await conversation.status()).waiting
        assert "multiple interpretations" in asked.why
        await conversation.answer(call_id, "snake")
        assert (await conversation.outcome()).text == "Done."
    first, second = results_of(await conversation.transcript())
    assert "Research Report: python" in first.text
    assert "python (snake)" in second.text
