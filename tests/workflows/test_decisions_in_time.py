"""Decisions and time: what comes early, late, often or all at once is taken, refused, or said to be under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, Conversation, ToolCall, tool
from everturn.records import Decision
from everturn.testing import ScriptedModel, call, fail
from everturn.workflows import display
from tests.conftest import agent_on, eventually, hosting, waiting
from tests.workflows.test_approvals import ONE, refund, signal
from tests.workflows.test_conversation import results_of
from tests.workflows.test_reset import reset_to_the_last_workflow_task

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def file(document: str) -> str:
    return f"{len(document)} characters filed"


async def test_what_waits_is_written_down_once_however_many_calls_begin_to_wait(
    client: Client, scripted: Scripted, cached_conversations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 400 calls had all 400 written down again: the deadlock detector took that for a hang, for ever."""
    drawn: list[int] = []
    details = display.current_details

    def counting(status: Any, **options: Any) -> str:
        drawn.append(len(status.waiting))
        return details(status, **options)

    monkeypatch.setattr(display, "current_details", counting)
    calls = [call("file", {"document": "x" * 1000}, id=f"c{number}") for number in range(400)]
    agent = agent_on(scripted([calls, "Done."]), tools=[file])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "File them")
        ids = await waiting(conversation, calls=400)
        assert set(drawn) == {0, 400}, "never in between"
        assert set(await conversation.deny("*", reason="no")) == set(ids)
        assert await conversation.reply() == "Done."
    assert len(results_of(await conversation.transcript())) == 400


# ---------------------------------------------------------------- early


async def stalls(conversation: Conversation) -> bool:
    return (await conversation.status()).state == "stalled"


@pytest.mark.parametrize(
    ("name", "payload", "said"),
    [
        ("approve", {"call_id": "a", "by": "ada"}, "5 back for 81"),
        ("deny", {"call_id": "a", "reason": "too late"}, "too late"),
        ("answer", {"call_id": "a", "content": "paid in cash"}, "paid in cash"),
    ],
)
async def test_a_decision_by_signal_that_a_reset_applies_again_before_its_call_waits_is_taken(
    client: Client, scripted: Scripted, cached_conversations: int, name: str, payload: Any, said: str
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
    await signal(conversation, name, payload)
    await reset_to_the_last_workflow_task(client, conversation)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert await conversation.reply() == "Done."
    (result,) = results_of(await conversation.transcript())
    assert said in result.text


async def test_a_resume_by_signal_that_a_reset_applies_again_before_the_stall_is_taken(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted([fail(401), "Hello."]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi")
        await eventually(lambda: stalls(conversation))
    await signal(conversation, "resume", {})
    await reset_to_the_last_workflow_task(client, conversation)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert (await conversation.outcome()).text == "Hello."


async def test_a_decision_by_signal_waits_while_another_persons_is_checked(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def approvers(call: ToolCall, decision: Decision) -> bool:
        asked.set()
        await asyncio.wait_for(go.wait(), 15)
        return decision.by == "boss"

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await signal(conversation, "approve", {"call_id": "a", "by": "clerk"})
        for by in ("intern", "boss"):  # the first may come before the check begins, too
            await signal(conversation, "approve", {"call_id": "a", "by": by})
        await asyncio.wait_for(asked.wait(), 30)
        await signal(conversation, "deny", {"call_id": "a", "by": "boss", "reason": "late"})
        go.set()
        assert await conversation.reply() == "Done."
    (result,) = results_of(await conversation.transcript())
    assert (result.text, result.decision and result.decision.by) == ("5 back for 81", "boss")


async def test_an_approval_from_before_does_not_run_again_what_may_have_run(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """The second click on a button, which came while the call ran, is no word on a doubt that arose later."""
    runs: list[str] = []
    begun, over = asyncio.Event(), asyncio.Event()

    @tool(needs_approval=True, effect="once", timeout=timedelta(seconds=2))
    async def pay() -> str:
        runs.append("paid")
        begun.set()
        await over.wait()
        return "never"

    agent = agent_on(scripted([call("pay", id="a"), "Done."]), tools=[pay])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay")
        await waiting(conversation)
        await signal(conversation, "approve", {"call_id": "a"})
        await asyncio.wait_for(begun.wait(), 30)
        await signal(conversation, "approve", {"call_id": "a"})
        await waiting(conversation)
        (call_waiting,) = (await conversation.status()).waiting
        assert call_waiting.why.startswith("outcome unknown")
        await conversation.deny("a")
        assert await conversation.reply() == "Done."
    assert runs == ["paid"]
