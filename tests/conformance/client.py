"""One scenario of the conformance tests, as their client: `python -m tests.conformance.client URL`.

A worker whose agent has that server calls each of its tools once. What a tool asks is answered with nothing, so that
defaults hold.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any
from urllib.parse import urlsplit

import httpx

from everturn import Agent, Client, McpOAuth, McpServer, McpTool, Model, Tool, Worker
from everturn.cli.mcp_lists import servers_lists
from everturn.testing import ScriptedModel, call

EXAMPLES = {"number": 5, "integer": 5, "string": "text", "boolean": True}


def issuer_of(url: str) -> str:
    """What whoever sets the worker up knows, and these tests don't say."""
    place = urlsplit(url)
    said = httpx.get(f"{place.scheme}://{place.netloc}/.well-known/oauth-protected-resource{place.path}").json()
    found = httpx.get(f"{said['authorization_servers'][0].rstrip('/')}/.well-known/oauth-authorization-server").json()
    return str(found["issuer"])


def server_at(url: str) -> McpServer:
    given: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if not os.environ["MCP_CONFORMANCE_SCENARIO"].startswith("auth/"):
        return McpServer(url=url)
    os.environ["CONFORMANCE_SECRET"] = given["client_secret"]
    oauth = McpOAuth(client_id=given["client_id"], client_secret_env="CONFORMANCE_SECRET", issuer=issuer_of(url))
    return McpServer(url=url, oauth=oauth)


def arguments_of(tool: Tool) -> dict[str, Any]:
    return {name: EXAMPLES.get(one.get("type", ""), "text") for name, one in tool.parameters["properties"].items()}


async def main(url: str) -> None:
    server = server_at(url)
    [found] = await servers_lists([Agent("looking", model="scripted:conformance", tools=[server])])
    if found.problem:
        raise SystemExit(found.problem)
    safe = {tool.name: McpTool(effect="idempotent", needs_approval=False) for tool in found.tools}
    calls = [call(tool.name, arguments_of(tool)) for tool in found.tools]
    client = await Client.connect(task_queue=f"conformance-{os.getpid()}")
    with ScriptedModel([*([calls] if calls else []), "Done."]) as model:
        place = Model("scripted:conformance", base_url=model.base_url)
        agent = Agent("client", model=place, tools=[server.model_copy(update={"overrides": safe})])
        async with Worker(client, agents=[agent]):
            conversation = await client.start(agent, "Call everything")
            async for event in conversation.events(deltas=False):
                if event.kind == "answer_requested":
                    await conversation.answer(event.call.call_id, "{}")
                elif event.kind == "tool_finished":
                    print(event.result.name, event.result.text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
