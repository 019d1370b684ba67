"""The one law: nothing grows with the conversation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from everturn import Client, Conversation, Limits, Worker, tool
from everturn.activities.prefix_cache import PrefixCache
from everturn.payloads import ModelRequest
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.scripts import page, pages
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

TURNS = 200


async def measured(client: Client, conversation: Conversation) -> tuple[int, int]:
    """History: bytes and events."""
    described = await client.temporal.get_workflow_handle(conversation.id).describe()
    return described.raw_description.workflow_execution_info.history_size_bytes, described.history_length


@pytest.mark.long
async def test_200_turns_with_4_kb_results_cost_little_more_than_the_records_themselves(
    client: Client, scripted: Scripted
) -> None:
    @tool
    def read_page(number: int) -> str:
        return page(number)

    agent = agent_on(scripted(pages(TURNS), keep=0), tools=[read_page], limits=Limits(max_turns=TURNS + 1))
    async with hosting(client, agent) as worker:
        conversation = await client.start(agent, "Read it all")
        assert await conversation.reply() == "Read."
        records = sum(len(message.model_dump_json().encode()) for message in await conversation.transcript())
        size, events = await measured(client, conversation)
    assert size < 2.3 * records
    assert events <= 12 * TURNS + 15
    assert (worker.prefixes.hits, worker.prefixes.misses) == (TURNS, 0)


@pytest.mark.long
async def test_no_payload_grows_with_the_conversation(client: Client, scripted: Scripted) -> None:
    @tool
    def read_page(number: int) -> str:
        return page(number)

    agent = agent_on(scripted(pages(16)), tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        await conversation.reply()
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    # A try that is made again, on a busy machine, says why the one before it failed.
    again = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    sizes = [event.ByteSize() for event in history.events if event.event_type != again]
    first, last = sizes[10 : 10 * 3], sizes[-10 * 3 : -10]
    assert max(last) <= max(first) + 20


@pytest.mark.long
@pytest.mark.parametrize("size", [10, 4096, 100_000], ids=["inline", "named", "large"])
async def test_with_its_memory_emptied_before_every_turn_a_worker_says_the_same_byte_for_byte(
    client: Client, scripted: Scripted, size: int
) -> None:
    hosts: list[Worker] = []

    @tool
    async def read_page(number: int) -> str:
        return page(number, size)

    @tool(name="read_page")
    async def read_page_and_forget(number: int) -> str:
        hosts[0].prefixes.clear()
        return page(number, size)

    seen = []
    for forgets in (False, True):
        model = scripted(pages(4))
        agent = agent_on(model, tools=[read_page_and_forget if forgets else read_page])
        async with hosting(client, agent) as worker:
            hosts[:] = [worker]
            conversation = await client.start(agent, "Read it all")
            assert await conversation.reply() == "Read."
        assert not any(result.is_error for result in results_of(await conversation.transcript()))
        transcript = [message.model_dump_json() for message in await conversation.transcript()]
        seen.append((transcript, [request["messages"] for request in model.requests]))
        # A large result is remembered when its tool ends, so it is there although the prefix is not.
        assert worker.prefixes.misses == (4 if forgets else 0)
    assert seen[0] == seen[1]


async def test_another_worker_reads_the_history_once_and_goes_on(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(held_chars=1_000)  # it replays the conversation, which does not hold all of it

    @tool
    def read_page(number: int) -> str:
        return page(number)

    agent = agent_on(scripted(pages(3)), tools=[read_page])
    guarded = agent_on(scripted(pages(3)), tools=[tool(read_page.function, needs_approval=True)])
    async with hosting(client, guarded):
        conversation = await client.start(guarded, "Read it all")
        await waiting(conversation)
        await conversation.approve()
        await waiting(conversation)
    async with hosting(client, agent) as second:
        await conversation.approve()
        assert await conversation.reply() == "Read."
        assert second.prefixes.misses == 1


@pytest.mark.parametrize("forgotten", [False, True], ids=["remembered", "forgotten"])
@pytest.mark.parametrize("local", [False, True], ids=["in its event", "in its marker"])
async def test_a_large_result_stands_in_the_history_once(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, local: bool, forgotten: bool
) -> None:
    if forgotten:
        monkeypatch.setattr(PrefixCache, "remember_result", lambda *_: None)

    @tool(effect="read", timeout=timedelta(seconds=5), local=local)
    def read_page(number: int) -> str:
        return page(number)

    agent = agent_on(scripted(pages(1)), tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it")
        await conversation.reply()
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    assert sum(b"page 0000" in event.SerializeToString() for event in history.events) == 1
    requests = [
        ModelRequest.model_validate_json(event.activity_task_scheduled_event_attributes.input.payloads[0].data)
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "call_model"
    ]
    assert [request.named for request in requests] == [(), ("call_0_0",)]
    (result,) = [result for message in await conversation.transcript() for result in message.tool_results]
    assert result.text == page(0)
