"""Pausing and resuming all conversations that a filter finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from everturn import Client, Conversation
from everturn.client.conversations_by_query import RUNNING, find_matching
from everturn.client.many_commands import Steered
from everturn.errors import Refused
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


async def begun(client: Client, count: int) -> list[Conversation]:
    """Conversations that no worker has taken yet, once the index has them."""
    agent = f"clerk-{client.task_queue}"
    made = [await client.start(agent, "Hi", keep_open=timedelta(minutes=5)) for _ in range(count)]

    async def listed() -> bool:
        return len([execution async for execution in find_matching(client.temporal, of(client))]) == count

    await eventually(listed)
    return made


def of(client: Client) -> str:
    return f"TaskQueue = '{client.task_queue}'"


async def states(conversations: list[Conversation]) -> set[str]:
    return {(await conversation.status()).state for conversation in conversations}


@pytest.mark.long
async def test_all_that_match_are_paused_before_any_worker_runs_and_resumed_likewise(
    client: Client, scripted: Scripted
) -> None:
    model = scripted(lambda messages: "Hello.")
    agent = agent_on(model, name=f"clerk-{client.task_queue}")
    conversations = await begun(client, 5)
    everyone = sorted(
        (Steered(conversation.id) for conversation in conversations), key=lambda steered: steered.conversation_id
    )
    assert await client.pause_all(of(client), reason="a restore") == everyone
    assert await client.pause_all(of(client)) == everyone  # safe to repeat
    async with hosting(client, agent):
        assert await states(conversations) == {"paused"}
        assert model.requests == []
        assert len(await client.resume_all(of(client))) == 5
        for conversation in conversations:
            assert await conversation.reply() == "Hello."
            await conversation.close()
            await conversation.outcome()


async def test_what_is_no_conversation_or_no_query_is_left_alone(client: Client) -> None:
    with pytest.raises(Refused, match="The query is empty"):
        await client.pause_all(" ")
    with pytest.raises(Refused, match="Temporal can't read the query"):
        await client.pause_all("EverturnStatus LIKES 'x'")
    # Whatever brackets it closes, it finds nothing but conversations.
    executions = find_matching(client.temporal, "StartTime IS NULL) OR (WorkflowType != 'Conversation'", also=RUNNING)
    assert {execution.workflow_type async for execution in executions} <= {"Conversation"}


async def test_the_command_shows_whom_it_is_about_and_asks(client: Client, shell: Shell) -> None:
    conversations = await begun(client, 2)
    asked = shell.run("pause", "--query", of(client))
    assert asked.returncode == 1
    assert {line.split()[0] for line in asked.stdout.splitlines()} == {
        conversation.id for conversation in conversations
    }
    assert "To do it without a question, use --yes." in asked.stderr
    done = shell.run("pause", "--query", of(client), "--yes", "--reason", "a restore")
    assert done.stdout == "told to pause: 2 of 2; each does so at its next step on a worker\n"
    assert {*shell.json("resume", "--query", of(client), "--yes")["told"]} == {
        conversation.id for conversation in conversations
    }
    for arguments in (["pause"], ["pause", "x", "--query", "y"]):
        assert "Name one conversation, or many with --query" in shell.run(*arguments).stderr
    for conversation in conversations:
        await client.temporal.get_workflow_handle(conversation.id).terminate()
