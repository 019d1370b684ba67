"""Workers of one queue that host different agents, or different versions of one: what one lacks, another takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity

from everturn import Client, Conversation, Limits, tool
from everturn.errors import Stalled
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.fixture
def soon_told(bounds: Bounds) -> None:
    """Conversations are told at once that no worker was found."""
    bounds(quietly=timedelta(seconds=0.3))


@pytest.fixture
def impatient(bounds: Bounds, soon_told: None) -> None:
    """And give up soon after."""
    bounds(host_patience=timedelta(seconds=0.5))


async def _status(conversation: Conversation, state: str, cause: str) -> bool:
    status = await conversation.status()
    return status.state == state and cause in (status.cause or "")


async def _beside(client: Client) -> Client:
    """A client for a second worker of the same queue: the SDK lets a client have only one."""
    address = client.temporal.service_client.config.target_host
    return await Client.connect(address, task_queue=client.task_queue, by="tester")


async def _kinds(conversation: Conversation) -> list[str]:
    return [event.kind async for event in conversation.events(deltas=False)]


async def test_a_turn_goes_to_the_worker_that_hosts_its_agent_without_a_word(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    caplog: pytest.LogCaptureFixture,
    bounds: Bounds,
) -> None:
    bounds(quietly=timedelta(minutes=1))  # the second worker may take its time to start
    model = scripted(["Sunny."] * 5)
    mine, theirs = agent_on(model, name="weather"), agent_on(model, name="bookkeeper")
    with caplog.at_level(logging.INFO):
        async with hosting(await _beside(client), theirs, cached_conversations=cached_conversations):
            conversation = await client.start(mine, "Paris?")
            await eventually(lambda: "activity.handed_back" in caplog.text, what="the wrong worker had it")
            async with hosting(client, mine, cached_conversations=cached_conversations):
                assert (await conversation.outcome()).text == "Sunny."
    assert await _kinds(conversation) == ["message_received", "turn_started", "replied", "done"]
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info and record.levelno >= logging.INFO]


@pytest.mark.long
async def test_a_conversation_whose_agent_is_hosted_nowhere_says_so_and_goes_on_as_soon_as_it_is(
    client: Client,
    scripted: Scripted,
    soon_told: None,
    cached_conversations: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = scripted(["Sunny."])
    mine, theirs = agent_on(model, name="weather"), agent_on(model, name="bookkeeper")
    async with hosting(client, theirs, cached_conversations=cached_conversations):
        conversation = await client.start(mine, "Paris?")
        await eventually(lambda: _status(conversation, "running", "Waiting for one since"))
        status = await conversation.status()
        assert status.cause
        assert status.cure
        assert f"No worker on task queue {client.task_queue!r}" in status.cause
        assert "has the agent 'weather'" in status.cause
        assert "hosts bookkeeper" in status.cause
        assert "everturn worker" in status.cure
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
        assert described.status is not None
        async with hosting(await _beside(client), mine, cached_conversations=cached_conversations):
            assert (await conversation.outcome()).text == "Sunny."
    assert (await conversation.status()).cause is None
    assert f"worker.awaited conversation='{conversation.id}'" in caplog.text, "who waits for the outcome is told"
    assert await _kinds(conversation) == [
        "message_received", "turn_started", "worker_awaited", "turn_started", "replied", "done"
    ]  # fmt: skip


async def test_a_conversation_whose_agent_is_hosted_nowhere_stalls_after_patience(
    client: Client, scripted: Scripted, impatient: None, cached_conversations: int
) -> None:
    model = scripted(["Sunny."])
    mine, theirs = agent_on(model, name="weather"), agent_on(model, name="bookkeeper")
    async with hosting(client, theirs, cached_conversations=cached_conversations):
        conversation = await client.start(mine, "Paris?")
        with pytest.raises(Stalled, match="has the agent 'weather'"):
            await conversation.reply()
        assert (await conversation.status()).state == "stalled"
    async with hosting(client, mine, cached_conversations=cached_conversations):
        await conversation.resume()
        assert (await conversation.outcome()).text == "Sunny."


def _versions(
    scripted: Scripted, *, planned: dict[str, Any], now: dict[str, Any] | None, calls: list[Any] | None = None
) -> tuple[Any, Any, list[str]]:
    """The clerk with a tool `book` that was planned so, and one after a deploy that changed it; what was booked."""
    booked: list[str] = []

    def make(options: dict[str, Any]) -> Any:
        @tool(name="book", **options)
        def book(invoice: str) -> str:
            booked.append(invoice)
            return "booked"

        return book

    model = scripted(calls or [call("book", {"invoice": "81"}), "Done."])
    old = agent_on(model, tools=[make(planned)])
    new = agent_on(model, tools=[] if now is None else [make(now)])
    return old, new, booked


@pytest.mark.long
async def test_an_approved_call_whose_tool_is_gone_stalls_and_runs_once_it_is_back(
    client: Client, scripted: Scripted, soon_told: None, cached_conversations: int
) -> None:
    planned = {"needs_approval": True, "patience": timedelta(seconds=3), "timeout": timedelta(seconds=3)}
    old, new, booked = _versions(scripted, planned=planned, now=None)
    async with hosting(client, old, cached_conversations=cached_conversations):
        conversation = await client.start(old, "Book it")
        await waiting(conversation)
    async with hosting(client, new, cached_conversations=cached_conversations):
        await conversation.approve()
        await eventually(lambda: _status(conversation, "stalled", "has the tool 'book' of agent 'clerk'"))
        with pytest.raises(Stalled, match="has the tool 'book'"):
            await conversation.reply()
    async with hosting(client, old, cached_conversations=cached_conversations):
        await conversation.resume()
        assert (await conversation.outcome()).text == "Done."
    assert booked == ["81"]
    told = await _kinds(conversation)
    assert (told.count("worker_awaited"), told.count("stalled"), told.count("tool_lost")) == (1, 1, 0)


@pytest.mark.long
async def test_a_run_once_call_finds_the_worker_that_has_its_tool_and_runs_once(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(longest_host_delay=1.0)
    planned = {"needs_approval": True, "effect": "once"}
    old, new, booked = _versions(scripted, planned=planned, now=None)
    async with hosting(client, old, cached_conversations=cached_conversations):
        conversation = await client.start(old, "Book it")
        await waiting(conversation)
    async with hosting(client, new, cached_conversations=cached_conversations):
        await conversation.approve()
        await eventually(lambda: _status(conversation, "running", "has the tool 'book'"))
        async with hosting(await _beside(client), old, cached_conversations=cached_conversations):
            assert (await conversation.outcome()).text == "Done."
    assert booked == ["81"]
    assert (await _kinds(conversation)).count("approval_requested") == 1


async def test_a_run_once_call_that_waits_for_a_worker_is_not_begun_any_more_once_the_conversation_is_closed(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """It ended only when a worker came or patience was over, and a tool that had never begun ran after the close."""
    planned = {"needs_approval": True, "effect": "once"}
    old, new, booked = _versions(scripted, planned=planned, now=None)
    async with hosting(client, old, cached_conversations=cached_conversations):
        conversation = await client.start(old, "Book it")
        await waiting(conversation)
    async with hosting(client, new, cached_conversations=cached_conversations):
        await conversation.approve()
        await eventually(lambda: _status(conversation, "running", "has the tool 'book'"))
        await conversation.close()
        assert (await conversation.outcome()).status == "completed"
    assert booked == []
    (result,) = results_of(await conversation.transcript())
    assert result.text == "This call was denied by tester and did not run. Reason: The conversation was closed."


async def test_the_model_is_told_of_a_tool_that_is_gone_for_good(
    client: Client, scripted: Scripted, soon_told: None, cached_conversations: int
) -> None:
    """Nobody approved the call: nobody has to see to it."""
    begun = asyncio.Event()

    @tool
    async def hold() -> str:
        begun.set()
        await activity.wait_for_worker_shutdown()
        return "held"

    @tool(timeout=timedelta(seconds=1), patience=timedelta(seconds=1))
    def book() -> str:
        return "booked"

    model = scripted([[call("hold"), call("book")], "Done."])
    one_at_a_time = Limits(max_parallel_calls=1)
    old = agent_on(model, tools=[hold, book], limits=one_at_a_time)
    new = agent_on(model, tools=[hold], limits=one_at_a_time)
    async with hosting(client, old, cached_conversations=cached_conversations):
        conversation = await client.start(old, "Book it")
        await begun.wait()
    async with hosting(client, new, cached_conversations=cached_conversations):
        assert (await conversation.outcome()).text == "Done."
    results = results_of(await conversation.transcript())
    assert [(result.text, result.is_error) for result in results] == [
        ("held", False),
        ("The tool book is no longer available.", True),
    ]


@pytest.mark.long
async def test_two_agents_with_different_tools_of_one_name_share_a_queue(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(longest_host_delay=1.0)
    ran: list[str] = []

    @tool(name="book")
    def clerks(invoice: str) -> str:
        ran.append(f"clerk {invoice}")
        return "booked"

    @tool(name="book", needs_approval=True, effect="once")
    def payers(invoice: str) -> str:
        ran.append(f"payer {invoice}")
        return "booked"

    replies = [call("book", {"invoice": "81"}), "Done."]
    clerk = agent_on(scripted(replies), tools=[clerks])
    payer = agent_on(scripted(replies), tools=[payers], name="payer")
    async with (
        hosting(client, clerk, cached_conversations=cached_conversations),
        hosting(await _beside(client), payer, cached_conversations=cached_conversations),
    ):
        by_clerk = await client.start(clerk, "Book it")
        by_payer = await client.start(payer, "Book it")
        await waiting(by_payer)
        await by_payer.approve()
        assert (await by_clerk.outcome()).text == "Done."
        assert (await by_payer.outcome()).text == "Done."
    assert sorted(ran) == ["clerk 81", "payer 81"]
    assert [result.is_error for result in results_of(await by_payer.transcript())] == [False]


async def test_who_may_decide_is_asked_of_a_worker_that_hosts_the_agent(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    model = scripted([call("pay"), "Done."])
    clerk = agent_on(model, tools=[pay], approvers=lambda _, decision: decision.by == "tester")
    other = agent_on(model, name="other")
    async with hosting(client, clerk, cached_conversations=cached_conversations):
        conversation = await client.start(clerk, "Pay")
        await waiting(conversation)
    async with hosting(client, other, cached_conversations=cached_conversations):
        await conversation.approve()
        async with hosting(await _beside(client), clerk, cached_conversations=cached_conversations):
            assert (await conversation.outcome()).text == "Done."
    assert [result.text for result in results_of(await conversation.transcript())] == ["paid"]


async def test_a_local_tool_that_this_worker_lacks_runs_on_another_one(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    options = {"effect": "read", "local": True, "timeout": timedelta(seconds=5), "needs_approval": True}
    old, new, booked = _versions(scripted, planned=options, now=None)
    async with hosting(client, old, cached_conversations=cached_conversations):
        conversation = await client.start(old, "Look")
        await waiting(conversation)
    async with hosting(client, new, cached_conversations=cached_conversations):
        await conversation.approve()
        async with hosting(await _beside(client), old, cached_conversations=cached_conversations):
            assert (await conversation.outcome()).text == "Done."
    assert booked == ["81"]
