"""A worker that is asked about a conversation by a query may be given events that no workflow task has brought yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from temporalio.api.enums.v1 import EventType

from everturn import Client, names
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.prepared import killed_at_the_end
from tests.support.waiting import WAIT_SECONDS, eventually

SCHEDULED, COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED

ROOT = Path(__file__).parents[2]

DOOMED = """
import asyncio, sys
from everturn import Agent, Client, Model, Worker

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    agent = Agent(sys.argv[4], model=Model("scripted:demo", base_url=sys.argv[3]))
    await Worker(client, agents=[agent]).run()

asyncio.run(main())
"""


async def test_what_a_query_brings_first_is_not_kept(
    server: DevServer, client: Client, scripted: Callable[..., ScriptedModel], cached_conversations: int
) -> None:
    """The query waits for the lost worker, and so does the task of the message after it, but for longer: the next
    worker gets the query first, with the message's event. If it went on from there, with the next message in a second
    step, its history could not be replayed: a replay takes both messages in one."""
    model = scripted(["One.", "Two.", "Three."])
    agent = agent_on(model)
    with killed_at_the_end("-c", DOOMED, server.address, client.task_queue, model.base_url, agent.name):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "One."
        handle = client.temporal.get_workflow_handle(conversation.id)

        async def idle() -> bool:
            kinds = [event.event_type for event in (await handle.fetch_history()).events]
            tasks = [kind for kind in kinds if kind in (SCHEDULED, COMPLETED)]
            return tasks[-1] == COMPLETED

        await eventually(idle)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        asked = asyncio.create_task(handle.query(names.STATUS, rpc_timeout=timedelta(seconds=WAIT_SECONDS)))
        await asyncio.sleep(1)  # it waits at the server; nothing tells when
        await handle.signal(names.MESSAGE, {"text": "2", "message_id": "2"})
        await asked
        await handle.signal(names.MESSAGE, {"text": "3", "message_id": "3"})

        async def answered() -> bool:
            told = await conversation.transcript()
            return "3" in [one.text for one in told] and told[-1].role == "assistant"

        await eventually(answered)
        await conversation.close()
        questions = [message.text for message in await conversation.transcript() if message.role == "user"]
    assert questions == ["1", "2", "3"]  # and the fixture replays its history
