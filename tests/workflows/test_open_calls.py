"""While one call of a reply waits or runs, the others' results are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from everturn import Client, tool
from everturn.devserver import DevServer
from everturn.exporting import read_conversation, to_markdown
from everturn.history.open_calls import open_calls
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True, effect="once")
def refund(order: str) -> str:
    return f"refunded {order}"


@tool
def dump() -> str:
    return "disk full: /var"


async def test_what_has_finished_is_shown_while_another_call_runs_or_waits(
    client: Client, server: DevServer, scripted: Scripted, alone: Shell, name: str
) -> None:
    may_end = asyncio.Event()

    @tool
    async def scan() -> str:
        await may_end.wait()
        return "scanned"

    reply = [call("dump", {}), call("scan", {}), call("refund", {"order": "81"}), call("refund", {"order": "82"})]
    agent = agent_on(scripted([reply, "Done."]), tools=[dump, scan, refund])
    alone.environment |= {"TEMPORAL_ADDRESS": server.address}
    async with hosting(client, agent):
        conversation = await client.start(agent, "Clean up.", id=name)

        async def states() -> list[str]:
            return [open_call.state for open_call in open_calls(await conversation.by_history())]

        async def reached() -> bool:
            return await states() == ["finished", "runs", "waits", "waits"]

        await eventually(reached, what="one call has finished, one runs, two wait")
        assert [message.role for message in await conversation.transcript()] == ["user", "assistant"]
        await conversation.deny("call_0_3", "not this one")

        shown = (await asyncio.to_thread(alone.run, "show", name)).stdout
        assert "    ✓ dump disk full: /var\n    … scan is running\n    ◆ refund waits for a decision\n" in shown
        assert "    … refund does not run: " in shown
        known = (await asyncio.to_thread(alone.json, "show", name))["open_calls"]
        assert [one["state"] for one in known] == ["finished", "runs", "waits", "settled"]
        assert known[0]["result"]["content"][0]["text"] == "disk full: /var"
        written = to_markdown(await read_conversation(client, name))
        assert "**dump** (`call_0_0`)\n\n```\ndisk full: /var\n```" in written
        assert "**scan** (`call_0_1`) is running" in written

        may_end.set()
        await conversation.approve("call_0_2")
        assert await conversation.reply() == "Done."
    assert await states() == []
    shown = (await asyncio.to_thread(alone.run, "show", name)).stdout
    assert shown.count("disk full: /var") == 1
