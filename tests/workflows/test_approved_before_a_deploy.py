"""A call that a person approves has waited over a deploy: what runs is what was approved, and as often as is safe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from everturn import Agent, Client, Model, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from everturn.tools.tool import Effect
from tests.support.agents import agent_on, hosting
from tests.support.prepared import killed_at_the_end
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]

DOOMED = """
import asyncio, sys
from everturn import Client, Worker
from tests.workflows.test_approved_before_a_deploy import payer

async def main():
    address, task_queue, model, journal = sys.argv[1:]
    client = await Client.connect(address, task_queue=task_queue)
    await Worker(client, agents=[payer(model, journal, effect="once")]).run()

asyncio.run(main())
"""


def payer(model: str, journal: str, *, effect: Effect) -> Agent:
    @tool(effect=effect, needs_approval=True)
    def pay() -> str:
        with Path(journal).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(Path(journal).read_text().split()) == 1:
            os.kill(os.getpid(), 9)
        return "paid"

    return Agent("clerk", model=Model("scripted:demo", base_url=model), tools=[pay])


async def test_a_tool_that_a_deploy_made_run_once_is_not_run_again_by_itself(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    journal = str(tmp_path / "journal")
    model = scripted([call("pay", {}), "Done."]).base_url
    async with hosting(client, payer(model, journal, effect="idempotent")):
        conversation = await client.start("clerk", "Pay")
        [call_id] = await waiting(conversation)
    with killed_at_the_end("-c", DOOMED, server.address, client.task_queue, model, journal) as doomed:
        await conversation.approve(call_id)
        assert await asyncio.to_thread(doomed.wait, 60) == -9
    async with hosting(client, payer(model, journal, effect="once")):

        async def asks_again() -> bool:
            return [pending.reason for pending in (await conversation.status()).waiting] == ["outcome_unknown"]

        await eventually(asks_again)
        assert len(Path(journal).read_text().split()) == 1
        await conversation.approve(call_id)
        assert await conversation.reply() == "Done."
        [result] = results_of(await conversation.transcript())
    assert result.text == "paid"


async def test_defaults_that_a_person_was_shown_are_used_whatever_a_deploy_makes_of_them(
    client: Client, scripted: Scripted
) -> None:
    model = scripted([call("refund", {"cents": 500}), "Done."])

    def refunder(default_currency: str) -> Agent:
        @tool(needs_approval=True)
        def refund(cents: int, currency: str = default_currency) -> str:
            return f"{cents} {currency}"

        return agent_on(model, tools=[refund])

    async with hosting(client, refunder("EUR")):
        conversation = await client.start("clerk", "Refund")
        [call_id] = await waiting(conversation)
        [pending] = (await conversation.status()).waiting
        assert 'currency="EUR"' in pending.why
    async with hosting(client, refunder("USD")):
        await conversation.approve(call_id)
        assert await conversation.reply() == "Done."
        [result] = results_of(await conversation.transcript())
    assert result.text == "500 EUR"
