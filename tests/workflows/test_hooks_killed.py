"""A worker is killed in one of its hooks: another one runs that hook again, and what it decides holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn import Agent, Client, Model, ToolCall, ToolContext, ToolResult, tool
from everturn.devserver import DevServer
from everturn.hooks import DenyCall, Hooks
from everturn.testing import ScriptedModel, call
from tests.support.agents import hosting
from tests.support.prepared import killed_at_the_end
from tests.support.transcripts import results_of
from tests.support.transcripts import told as events_of

ROOT = Path(__file__).parents[2]

WORKER = """
import asyncio, sys
from everturn import Client, Worker
from tests.workflows.test_hooks_killed import agent_at

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    await Worker(client, agents=[agent_at(sys.argv[3], sys.argv[4])]).run()

asyncio.run(main())
"""


@tool(effect="read")
def look_up(order_id: str) -> str:
    """Looks up."""
    return f"{order_id} was paid with 4242."


class Kills(Hooks):
    """Takes its worker with it at the first try of one point; then it denies one call, and redacts the others."""

    streams = True

    def __init__(self, point: str) -> None:
        self.point = point

    def _at(self, point: str, context: ToolContext) -> None:
        if point == self.point and context.attempt == 1:
            os.kill(os.getpid(), 9)

    def before_tool(self, call: ToolCall, context: ToolContext) -> DenyCall | None:
        self._at("before_tool", context)
        return DenyCall("not 82") if call.arguments["order_id"] == "82" else None

    def after_tool(self, call: ToolCall, result: ToolResult, context: ToolContext) -> str:
        self._at("after_tool", context)
        return result.text.replace("4242", "****")


def agent_at(address: str, point: str) -> Agent:
    return Agent("clerk", model=Model("scripted:demo", base_url=address), tools=[look_up], hooks=[Kills(point)])


@pytest.mark.parametrize("point", ["before_tool", "after_tool"])
async def test_what_a_hook_decides_holds_after_a_kill_in_it(
    server: DevServer, client: Client, scripted: Callable[..., ScriptedModel], cached_conversations: int, point: str
) -> None:
    calls = [call("look_up", {"order_id": one}, id=one) for one in ("81", "82")]
    model = scripted([calls, "Done."])
    agent = agent_at(model.base_url, point)
    with killed_at_the_end("-c", WORKER, server.address, client.task_queue, model.base_url, point) as doomed:
        conversation = await client.start(agent, "Go")
        assert await asyncio.to_thread(doomed.wait, 60) == -9
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert await conversation.reply() == "Done."
        await conversation.outcome()
    assert [result.text for result in results_of(await conversation.transcript())] == [
        "81 was paid with ****.",
        "This call was denied by Kills and did not run. Reason: not 82",
    ]
    acted = [(it.point, it.did, it.call_id) for it in await events_of(conversation) if it.kind == "hook_acted"]
    assert acted == [("before_tool", "denied", "82"), ("after_tool", "changed", "81")]
