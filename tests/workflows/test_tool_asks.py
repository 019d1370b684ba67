"""A tool that asks a person in the middle of its call: the call ends, waits, and is run again with the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import Client, Conversation, ToolContext, tool
from everturn.errors import Refused
from everturn.testing import ScriptedModel, call
from everturn.tools.context_ask import AsksPerson, current_answer
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.transcripts import results_of
from tests.support.transcripts import told as events_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

seen: list[tuple[str, str, str]] = []
"""Of each run: what was done, by whom, and the call's key."""


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@tool(effect="once", needs_approval=True)
def book(table: str, context: ToolContext) -> str:
    """Books a table, on a day that it asks for, until that is one."""
    answer = current_answer()
    seen.append((answer.action if answer else "asked", answer.by if answer else "", context.idempotency_key))
    days = [*(answer.left["days"] if answer else []), *([answer.text] if answer else [])]
    if answer is None or answer.text == "no day":
        raise AsksPerson(f"Which day for {table}?", carried={"days": days})
    return f"{table}: {answer.action} {answer.text} after {len(days)}"


async def told(conversation: Conversation) -> list[str]:
    return [result.text for result in results_of(await conversation.transcript())]


async def asks(conversation: Conversation) -> str:
    """The id of the call, once it asks."""

    async def asking() -> str:
        status = await conversation.status()
        return next((waiting_call.call_id for waiting_call in status.waiting if waiting_call.reason == "tool_asks"), "")

    return str(await eventually(asking))


BOOK = [call("book", {"table": "4"}), "Done."]


async def test_the_answer_is_handed_to_the_next_run_of_the_same_call(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(BOOK), tools=[book])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Book")
        await conversation.approve((await waiting(conversation))[0])
        call_id = await asks(conversation)
        assert (await conversation.status()).state == "awaiting_answer"
        with pytest.raises(Refused, match=r"\(book\) asks a question: answer or deny it"):
            await conversation.approve(call_id)
        await conversation.answer(call_id, "no day")
        await eventually(lambda: len(seen) == 2)
        await conversation.answer(await asks(conversation), "Monday")
        assert (await conversation.outcome()).text == "Done."
    assert await told(conversation) == ["4: accept Monday after 2"]
    assert [(action, by) for action, by, _ in seen] == [("asked", ""), ("accept", "tester"), ("accept", "tester")]
    kinds = [event.kind for event in await events_of(conversation)]
    assert kinds.count("answer_requested") == 2
    assert "tool_lost" not in kinds
    assert len({key for _, _, key in seen}) == 1


async def test_a_denial_is_handed_to_the_tool_and_an_answer_that_is_an_error_calls_it_off(
    client: Client, scripted: Scripted
) -> None:
    replies = [[call("book", {"table": "4"}), call("book", {"table": "5"})], "Done."]
    agent = agent_on(scripted(replies), tools=[book])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Book")
        await waiting(conversation, calls=2)
        await conversation.approve()
        first, other = await waiting_to_answer(conversation)
        await conversation.deny(first, "Not today")
        await conversation.answer(other, "gone", is_error=True)
        assert (await conversation.outcome()).text == "Done."
    assert await told(conversation) == ["4: decline  after 1", "5: cancel gone after 1"]


async def waiting_to_answer(conversation: Conversation) -> list[str]:
    async def both() -> list[str]:
        questions = [
            waiting_call.call_id
            for waiting_call in (await conversation.status()).waiting
            if waiting_call.needs == "answer"
        ]
        return questions if len(questions) == 2 else []

    return sorted(await eventually(both))


@pytest.mark.long
async def test_an_approval_with_other_arguments_holds_for_every_run_though_the_run_was_continued(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(updates=2)
    agent = agent_on(scripted(BOOK), tools=[book])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Book")
        await conversation.approve((await waiting(conversation))[0], arguments={"table": "7"})
        for number in (2, 3, 4):
            await conversation.answer(await asks(conversation), "no day")
            await eventually(lambda n=number: len(seen) == n)
        await conversation.answer(await asks(conversation), "Monday")
        assert (await conversation.outcome()).text == "Done."
        assert len(await runs_of(client, conversation)) > 1
    [text] = await told(conversation)
    assert "with other arguments" in text
    assert text.endswith("7: accept Monday after 4")
    assert len({key for _, _, key in seen}) == 1


@pytest.mark.long
async def test_a_policy_says_who_may_answer(client: Client, scripted: Scripted) -> None:
    def approvers(_: Any, decision: Any) -> bool | str:
        return decision.verdict == "approve" or decision.by == "owner" or "only the owner answers"

    agent = agent_on(scripted(BOOK), tools=[book], approvers=approvers)
    owner = await Client.connect(
        client.temporal.service_client.config.target_host, task_queue=client.task_queue, by="owner"
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Book")
        await conversation.approve((await waiting(conversation))[0])
        call_id = await asks(conversation)
        await conversation.answer(call_id, "Monday")

        async def refused() -> bool:
            return any(
                "only the owner answers" in waiting_call.why for waiting_call in (await conversation.status()).waiting
            )

        await eventually(refused)
        assert await asks(conversation) == call_id, "it still waits for an answer"
        await owner.conversation(conversation.id).answer(call_id, "Tuesday")
        assert (await conversation.outcome()).text == "Done."
    assert await told(conversation) == ["4: accept Tuesday after 1"]


async def test_a_conversation_that_closes_lets_it_not_run_again(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(BOOK), tools=[book])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Book")
        await conversation.approve((await waiting(conversation))[0])
        await asks(conversation)
        await conversation.close()
        await conversation.outcome()
    assert len(seen) == 1
