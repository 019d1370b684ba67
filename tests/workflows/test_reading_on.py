"""A reply is read from where the last one was, and not the whole run again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHistoryEventAsyncIterator

from everturn import Client, Conversation, tool
from everturn.client.followed_reply import FollowedReply
from everturn.events import Replied
from everturn.history.reader import HistoryReader
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds

Scripted = Callable[..., ScriptedModel]
DAY = timedelta(days=1)


@tool
def look(number: int) -> str:
    """Look."""
    return f"saw {number}"


class Reads:
    """How many events were fetched, and how many of them were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched = self.read = 0
        read, fetch = HistoryReader.read_event, WorkflowHistoryEventAsyncIterator.fetch_next_page

        async def reading(reader: HistoryReader, event: object) -> object:
            self.read += 1
            return await read(reader, event)  # type: ignore[arg-type]

        async def fetching(pages: WorkflowHistoryEventAsyncIterator, **options: object) -> None:
            await fetch(pages, **options)  # type: ignore[arg-type]
            self.fetched += len(pages.current_page or ())

        monkeypatch.setattr(HistoryReader, "read_event", reading)
        monkeypatch.setattr(WorkflowHistoryEventAsyncIterator, "fetch_next_page", fetching)

    def take(self) -> tuple[int, int]:
        taken, self.fetched, self.read = (self.fetched, self.read), 0, 0
        return taken


@pytest.mark.long
@pytest.mark.parametrize("handle", ["the same handle", "another handle"])
async def test_each_reply_reads_what_came_since_the_last_one(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, handle: str
) -> None:
    turns = 4
    script = [one for n in range(turns) for one in (call("look", {"number": n}), f"Reply {n}.")]
    agent = agent_on(scripted(script), tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look 0", keep_open=DAY)
        reads, before = Reads(monkeypatch), 0
        for number in range(turns):
            asks = conversation if handle == "the same handle" else client.conversation(conversation.id)
            if number:
                await asks.send(f"Look {number}")
            assert await asks.reply() == f"Reply {number}."
            _, read = reads.take()
            length = int((await conversation.cursor()).partition("/")[2])
            # The answer is there before its turn's last events, and for a moment the server shows some more.
            assert read <= length + 12 - before
            before = length
        for _ in range(2):  # the first of them reads what has come since the answer was there
            assert await client.conversation(conversation.id).reply() == f"Reply {turns - 1}."
        reads.take()
        assert await client.conversation(conversation.id).reply() == f"Reply {turns - 1}."
        assert reads.take() == (0, 0)
        await conversation.close()
        assert (await conversation.outcome()).text == f"Reply {turns - 1}."
        assert await conversation.reply() == f"Reply {turns - 1}."


async def test_a_place_that_the_server_no_longer_knows_costs_the_whole_run_once(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted([*"abc"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "a?", keep_open=DAY)
        for reply in "abc":
            assert await conversation.reply() == reply
            [seen] = client.read_positions._seen.values()
            seen.reading.mark.token = b"of another server"
            if reply != "c":
                await conversation.send(reply)
        await conversation.close()


async def test_two_who_wait_at_the_same_time_both_get_the_reply(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([*"abc"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "a?", keep_open=DAY)
        for reply in "abc":
            assert {*await asyncio.gather(conversation.reply(), conversation.reply())} == {reply}
            if reply != "c":
                await conversation.send(reply)
        await conversation.close()


@pytest.mark.long
async def test_a_run_that_goes_on_as_a_new_one_is_read_from_its_beginning(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=20)
    agent = agent_on(scripted([*"abcdef"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "a?", keep_open=DAY)
        runs = set()
        for reply in "abcdef":
            assert await conversation.reply() == reply
            runs.add(await conversation.latest_run())
            if reply != "f":
                await conversation.send(reply)
        assert len(runs) > 1
        await conversation.close()


@pytest.mark.long
async def test_what_was_done_meanwhile_is_seen(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["a", *[call("look", {"number": n}) for n in range(3)], "b", "c"]), tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "a?", keep_open=DAY)
        assert await conversation.reply() == "a"
        await conversation.pause()
        await conversation.send("b?")
        await conversation.resume()
        assert await conversation.reply() == "b"
        other = await Client.connect(client.temporal.service_client.config.target_host, task_queue=client.task_queue)
        elsewhere = other.conversation(conversation.id)
        await elsewhere.send("c?")
        assert await elsewhere.reply() == "c"
        assert await conversation.reply() == "c"
        await conversation.close()


async def _by_reply(conversation: Conversation) -> str:
    return await conversation.reply()


async def _by_run_tools(conversation: Conversation) -> str:
    return await conversation.run_tools([])


async def _by_its_answer(conversation: Conversation) -> str:
    async with FollowedReply(conversation) as answer:
        events = [*answer.events, *[event async for event in answer.follow_on()]]
    return [event.message.text for event in events if isinstance(event, Replied)][-1]


@pytest.mark.parametrize("waits", [_by_reply, _by_run_tools, _by_its_answer])
async def test_another_handle_waits_for_what_the_server_has_taken(
    client: Client, scripted: Scripted, waits: Callable[[Conversation], Awaitable[str]]
) -> None:
    """A signal that comes while a worker has a workflow task in hand is in the history only after that."""
    agent = agent_on(scripted(lambda messages: f"reply to {messages[-1]['content']}"))
    async with hosting(client, agent):
        conversation = await client.start(agent, "0", keep_open=DAY)
        for number in range(5):
            assert await waits(client.conversation(conversation.id)) == f"reply to {number}"
            await conversation.send(str(number + 1))
        assert await waits(client.conversation(conversation.id)) == "reply to 5"
        await conversation.close()
        await conversation.outcome()
