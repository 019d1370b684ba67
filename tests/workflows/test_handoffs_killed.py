"""A worker is killed in the middle of a handoff: in the filter, and in the first turn of the agent that takes over."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from everturn import Agent, Client, HandOff, Message, Model, Shown, ToolContext, TurnContext, Worker
from everturn.devserver import DevServer
from everturn.events import HandedOff
from everturn.testing import ScriptedModel, call
from tests.support.prepared import killed_at_the_end
from tests.support.transcripts import results_of

ROOT = Path(__file__).parents[2]

DOOMED = """
import asyncio, sys
from everturn import Client, Worker
from tests.workflows.test_handoffs_killed import agents

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    await Worker(client, agents=agents(sys.argv[3])).run()

asyncio.run(main())
"""


class Order(BaseModel):
    number: str
    urgent: bool = False


def agents(dies: str) -> list[Agent]:
    """`dies`: where the first try of a process ends."""

    def last_one(messages: Sequence[Message], context: ToolContext) -> Shown:
        if dies == "filter" and context.attempt == 1:
            os.kill(os.getpid(), 9)
        return Shown(last=1, note=f"{len(messages)} before")

    def instructions(context: TurnContext) -> str:
        if dies == "first turn" and context.attempt == 1:
            os.kill(os.getpid(), 9)
        return "You refund."

    model = Model("scripted:demo", base_url=os.environ["HANDOFF_MODEL"])
    billing = Agent("billing", model=model, instructions=instructions)
    return [
        Agent(
            "triage", model=model, instructions="You sort.", handoff_to=[HandOff(billing, filter=last_one, input=Order)]
        )
    ]


@pytest.mark.parametrize("dies", ["filter", "first turn"])
async def test_a_worker_that_takes_over_in_the_middle_of_a_handoff_hands_it_over_once(
    server: DevServer,
    client: Client,
    scripted: Callable[..., ScriptedModel],
    monkeypatch: pytest.MonkeyPatch,
    cached_conversations: int,
    dies: str,
) -> None:
    model = scripted([call("transfer_to_billing", {"number": "81"}, id="t1"), "Refunded."])
    monkeypatch.setenv("HANDOFF_MODEL", model.base_url)
    with killed_at_the_end("-c", DOOMED, server.address, client.task_queue, dies) as doomed:
        conversation = await client.start("triage", "Refund 81")
        assert await asyncio.to_thread(doomed.wait, 60) == -9
    options = {"drain_timeout": timedelta(seconds=20), "cached_conversations": cached_conversations}
    async with Worker(client, agents=agents("nowhere"), **options):  # type: ignore[arg-type]
        assert await conversation.reply() == "Refunded."
        told = [event async for event in conversation.events() if isinstance(event, HandedOff)]
        messages = await conversation.transcript()
    assert [(event.by, event.agent) for event in told] == [("triage", "billing")]
    [handed] = results_of(messages)
    assert "1 before" in handed.text
    assert '{"number": "81", "urgent": false}' in handed.text
    assert "You refund." in str(model.requests[-1]["messages"])
    assert messages[-1].author == "billing"
