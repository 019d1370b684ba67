"""MCP servers that want OAuth tokens: the worker gets them by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from everturn import Agent, Client, McpOAuth, McpServer
from everturn.cli.mcp_lists import servers_lists
from everturn.errors import InvalidTool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.ports import free_port, listens
from tests.support.prepared import Program
from tests.support.transcripts import texts
from tests.support.waiting import until

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def safe(tmp_path: Path) -> Iterator[str]:
    """The address of one."""
    port = free_port()
    process = Program("-m", "tests.support.mcp_guarded", str(tmp_path), str(port), cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def guarded(safe: str, **options: Any) -> McpServer:
    given: dict[str, Any] = {"client_id": "clerk", "client_secret_env": "SAFE_SECRET", "issuer": safe, **options}
    return McpServer(url=f"{safe}/mcp", oauth=McpOAuth(**given), start_timeout=timedelta(seconds=5))


async def test_a_worker_gets_a_token_and_another_once_that_is_worth_nothing(
    client: Client, scripted: Scripted, safe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFE_SECRET", "s3cret")
    model = scripted([call("open_safe"), "First.", call("open_safe"), "Second."])
    agent = agent_on(model, tools=[guarded(safe)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Open it", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "First."
        assert (tmp_path / "log").read_text().splitlines() == ["token-1 tools"]
        (tmp_path / "revoked").write_text("token-1")
        await conversation.send("Again")
        assert await conversation.reply() == "Second."
        await conversation.close()
    assert (tmp_path / "log").read_text().splitlines() == ["token-1 tools", "token-2 tools"]
    assert await texts(conversation) == ["42 coins", "42 coins"]
    told = str([message.model_dump() for message in await conversation.transcript()])
    assert "s3cret" not in told
    assert "token-1" not in told


@pytest.mark.parametrize(
    ("secret", "issuer", "why"),
    [("wrong", "", "invalid_client"), ("s3cret", "https://other.example", "other.example"), (None, "", "SAFE_SECRET")],
)
async def test_a_server_that_gives_no_token_says_so(
    safe: str, monkeypatch: pytest.MonkeyPatch, secret: str | None, issuer: str, why: str
) -> None:
    if secret:
        monkeypatch.setenv("SAFE_SECRET", secret)
    agent = Agent("clerk", model="openai:x", tools=[guarded(safe, issuer=issuer or safe)])
    [found] = await servers_lists([agent])
    assert why in found.problem
    assert not secret or secret not in found.problem


class Fixed(httpx2.Auth):
    def auth_flow(self, request: httpx2.Request) -> Any:
        request.headers["authorization"] = "Bearer token-of-a-person"
        yield request


async def test_a_function_of_the_users_makes_the_tokens(client: Client, scripted: Scripted, safe: str) -> None:
    model = scripted([call("open_safe"), "Done."])
    agent = agent_on(model, tools=[McpServer(url=f"{safe}/mcp", auth=Fixed)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Open it")
        assert await conversation.reply() == "Done."
    assert await texts(conversation) == ["42 coins"]


def test_a_server_takes_one_kind_of_token_and_a_program_none() -> None:
    oauth = McpOAuth(client_id="a", client_secret_env="B", issuer="https://c")
    with pytest.raises(InvalidTool, match="write either"):
        McpServer(url="https://x", oauth=oauth, auth=Fixed)
    with pytest.raises(InvalidTool, match="belong to a url"):
        McpServer(command=["x"], oauth=oauth)
