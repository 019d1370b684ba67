"""Long conversations go on as new runs, and nobody can tell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, Conversation, Limits, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.operators import delete
from tests.support.scripts import page, pages
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.fixture(params=["packed", "in earlier runs"])
def short_runs(request: pytest.FixtureRequest, bounds: Bounds) -> None:
    """A new run every few turns; the transcript travels along, or stays where it is."""
    bounds(events=20)
    if request.param != "packed":
        bounds(packed_bytes=0)


@pytest.mark.long_if(lambda short_runs, size: (short_runs, size) != ("packed", 10))
@pytest.mark.parametrize("size", [10, 4096])
async def test_a_long_conversation_is_many_runs_with_one_transcript(
    client: Client, scripted: Scripted, cached_conversations: int, short_runs: None, size: int
) -> None:
    @tool
    def read_page(number: int) -> str:
        return page(number, size)

    model = scripted(pages(6))
    agent = agent_on(model, tools=[read_page], limits=Limits(max_turns=7))
    async with hosting(client, agent, cached_conversations=cached_conversations) as worker:
        conversation = await client.start(agent, "Read it all")
        assert await conversation.reply() == "Read."
        outcome = await conversation.outcome()
        # Positions go on counting, so a warm memory stays warm; only a result that a delta names is looked up again.
        assert worker.prefixes.misses == 0
    assert (outcome.turns, outcome.tool_calls) == (7, 6)
    assert len(await runs_of(client, conversation)) >= 3
    transcript = await conversation.transcript()
    assert [result.text for result in results_of(transcript)] == [page(number, size) for number in range(6)]
    assert [len(request["messages"]) for request in model.requests] == list(range(1, 14, 2))
    assert [event.kind async for event in conversation.events()].count("tool_finished") == 6


async def test_a_killed_worker_costs_5_seconds_of_a_workflow_task_whoever_started_the_conversation(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(run_seconds=0.0)

    @tool
    def read_page(number: int) -> str:
        return page(number)

    agent, start = agent_on(scripted(pages(1)), tools=[read_page]), {"agent": "clerk", "message": "Read it all"}
    timeouts = []
    async with hosting(client, agent):
        for name, options in (("said nothing", {}), ("said 10", {"task_timeout": timedelta(seconds=10)})):
            handle = await client.temporal.start_workflow(
                "Conversation", start, id=f"{name} {client.task_queue}", task_queue=client.task_queue, **options
            )
            await handle.result()
            runs = await runs_of(client, client.conversation(handle.id))
            handles = [client.temporal.get_workflow_handle(handle.id, run_id=run) for run in runs]
            firsts = [(await handle.fetch_history()).events[0] for handle in handles]
            began = [first.workflow_execution_started_event_attributes for first in firsts]
            timeouts.append([one.workflow_task_timeout.ToSeconds() for one in began])
    assert timeouts == [[5], [10, 5]]


async def test_a_worker_without_memory_finds_what_earlier_runs_hold(
    client: Client, scripted: Scripted, short_runs: None
) -> None:
    hosts: list[Any] = []

    @tool
    async def read_page(number: int) -> str:
        hosts[0].prefixes.clear()
        return page(number)

    model = scripted(pages(5))
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent) as worker:
        hosts.append(worker)
        conversation = await client.start(agent, "Read it all")
        assert await conversation.reply() == "Read."
        assert worker.prefixes.misses == 5
    assert [len(request["messages"]) for request in model.requests] == list(range(1, 12, 2))
    told = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert told == [page(number) for number in range(5)]


@pytest.mark.long
async def test_a_conversation_holds_little_of_what_was_said_and_loses_nothing(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(events=30, held_chars=10_000)

    @tool
    def read_page(number: int) -> str:
        return page(number)

    agent = agent_on(scripted(pages(6)), tools=[read_page])
    async with hosting(client, agent, cached_conversations=cached_conversations) as worker:
        conversation = await client.start(agent, "Read it all", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Read."
        handle = client.temporal.get_workflow_handle(conversation.id)
        shown = await handle.query("transcript", {"from": 0, "limit": 50})
        # The query answers with what is held; the transcript itself is read from the histories.
        assert shown["total"] == shown["from"] + len(shown["messages"]) == 14
        assert 6 < shown["from"] < 14
        assert [result.text for result in results_of(await conversation.transcript())] == [page(n) for n in range(6)]
        worker.prefixes.clear()
        await conversation.send("And?")
        assert await conversation.reply() == "Read."
        assert len(await conversation.transcript()) == 16
        await conversation.close()
        await conversation.outcome()
    assert len(await runs_of(client, conversation)) == 3


@pytest.mark.long_if(lambda short_runs, forgets: short_runs == "packed" or forgets)
@pytest.mark.parametrize("forgets", [False, True], ids=["remembers", "forgets"])
async def test_large_results_are_handed_on_without_being_written_again(
    client: Client, scripted: Scripted, cached_conversations: int, short_runs: None, forgets: bool
) -> None:
    """Each stands in one event, of the run that it came in: else there is no boundary for tools that return much."""
    hosts: list[Any] = []

    @tool
    async def read_page(number: int) -> str:
        if forgets:
            hosts[0].prefixes.clear()
        return page(number, 60_000)

    turns = [[call("read_page", {"number": 3 * turn + number}) for number in range(3)] for turn in range(3)]
    model = scripted([*turns, "Read."])
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent, cached_conversations=cached_conversations) as worker:
        hosts.append(worker)
        conversation = await client.start(agent, "Read it all")
        assert await conversation.reply() == "Read."
        outcome = await conversation.outcome()
        # One that is replayed for each step still holds what came before its first large results.
        assert worker.prefixes.misses == ((3 if cached_conversations else 2) if forgets else 0)
        branch = await conversation.fork(at_turn=2)
        assert (await branch.outcome()).turns == outcome.turns == 4
    runs = await runs_of(client, conversation)
    assert len(runs) >= 3
    written = b"".join([await serialized(client, conversation, run) for run in runs])
    for transcript in (await conversation.transcript(), await branch.transcript()):
        assert [result.text for result in results_of(transcript)] == [page(number, 60_000) for number in range(9)]
    assert [written.count(page(number, 60_000).encode()) for number in range(9)] == [1] * 9
    told = [message["content"] for message in model.requests[3]["messages"] if message["role"] == "tool"]
    assert told == [page(number, 60_000) for number in range(9)]


async def serialized(client: Client, conversation: Conversation, run_id: str) -> bytes:
    history = await client.temporal.get_workflow_handle(conversation.id, run_id=run_id).fetch_history()
    return b"".join(event.SerializeToString() for event in history.events)


async def test_messages_that_come_in_between_are_all_taken(
    client: Client, scripted: Scripted, cached_conversations: int, short_runs: None
) -> None:
    @tool
    async def read_page(number: int) -> str:
        await asyncio.sleep(0.01)
        return page(number, 10)

    agent = agent_on(scripted(pages(6), order="position"), tools=[read_page])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "0", keep_open=timedelta(minutes=1))
        for number in range(1, 9):
            await conversation.send(str(number), message_id=str(number))
            if number % 3 == 0:
                await conversation.send(str(number), message_id=str(number))  # a repeat
        await conversation.reply()
        said = [message.text for message in await conversation.transcript() if message.role == "user"]
        assert said == [str(number) for number in range(9)]
        assert len(await runs_of(client, conversation)) >= 3
        await conversation.close()
        await conversation.outcome()


async def test_messages_that_wait_in_the_inbox_go_along_to_the_next_run(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(events=14)
    bounds(inbox_bytes=300)  # one of these messages fills a turn
    said = [f"{number}: {'again ' * 40}" for number in range(4)]
    may_end = asyncio.Event()

    @tool
    async def read_page(number: int) -> str:
        await may_end.wait()
        return f"page {number}"

    model = scripted([call("read_page", {"number": 1}), "A", "B", "C", "D"])
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, said[0], keep_open=timedelta(minutes=1), message_id="m0")
        for number in (1, 2, 3):
            await conversation.send(said[number], message_id=f"m{number}")
        may_end.set()
        await eventually(lambda: len(model.requests) >= 3)
        await conversation.reply()
        for number in (1, 2, 3):  # which do not count, in whatever run the first ones came
            await conversation.send(said[number], message_id=f"m{number}")
        await conversation.close()
        await conversation.outcome()
    handed_on = [await inbox_of(client, conversation, run_id) for run_id in (await runs_of(client, conversation))[1:]]
    assert max(map(len, handed_on)) >= 2
    transcript = await conversation.transcript()
    assert [message.text for message in transcript if message.role == "user"] == said


async def inbox_of(client: Client, conversation: Conversation, run_id: str) -> list[Any]:
    """What was handed on to a run in the inbox, as Temporal has it."""
    history = await client.temporal.get_workflow_handle(conversation.id, run_id=run_id).fetch_history()
    given = history.events[0].workflow_execution_started_event_attributes.input.payloads[0].data
    inbox: list[Any] = json.loads(given)["carry"].get("inbox", [])
    return inbox


async def test_approvals_and_counters_go_on_through_the_runs(
    client: Client, scripted: Scripted, short_runs: None
) -> None:
    asked: list[int] = []

    @tool(needs_approval=lambda arguments: arguments["number"] % 3 == 2)
    def read_page(number: int) -> str:
        asked.append(number)
        return page(number, 10)

    agent = agent_on(scripted(pages(100)), tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", limits=Limits(max_turns=7))
        for _ in range(2):
            await conversation.approve(*await waiting(conversation))
        await waiting_is_over(conversation)
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.turns) == ("limit_reached", 8)
    assert asked == list(range(7))


async def waiting_is_over(conversation: Conversation) -> None:
    await eventually(lambda: _no_waiting(conversation))


async def _no_waiting(conversation: Conversation) -> bool:
    return not (await conversation.status()).waiting


async def test_a_revived_conversation_knows_what_was_said_long_before(
    client: Client, scripted: Scripted, short_runs: None
) -> None:
    @tool
    def read_page(number: int) -> str:
        return page(number, 10)

    model = scripted(pages(5))
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        await conversation.outcome()
        await client.send(agent, "And?", id=conversation.id)
        assert await conversation.reply() == "Read."
        assert (await conversation.outcome()).turns == 7
    assert len(model.requests[-1]["messages"]) == 13
    assert [message.text for message in await conversation.transcript() if message.role == "user"] == [
        "Read it all",
        "And?",
    ]


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_what_earlier_runs_hold_is_kept_before_their_histories_are_deleted(
    client: Client, scripted: Scripted, bounds: Bounds, forgetful: None
) -> None:
    bounds(events=24, packed_bytes=0)

    @tool
    def read_page(number: int) -> str:
        return page(number, 10)

    model = scripted(pages(5))
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent) as worker:
        conversation = await client.start(agent, "Read it all", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Read."
        runs = await runs_of(client, conversation)
        await eventually(lambda: _kept(client, conversation))
        await delete(client, conversation, *runs[:-1])
        worker.prefixes.clear()
        await conversation.send("And?")
        assert await conversation.reply() == "Read."
        assert len(model.requests[-1]["messages"]) == 13
        await conversation.close()
        await conversation.outcome()
    assert len(results_of(await conversation.transcript())) == 5


async def _kept(client: Client, conversation: Conversation) -> bool:
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    return any(b'"kind":"packed"' in event.SerializeToString() for event in history.events)
