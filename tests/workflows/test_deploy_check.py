"""Before a deploy: do the new agents fit what runs?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio import workflow

from everturn import Agent, Client, tool
from everturn.testing import ScriptedModel, call
from everturn.worker.deploy_check import conflicts
from everturn.workflows import ConversationWorkflow
from tests.support.agents import agent_on, hosting
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@tool(name="refund", effect="once")
def refund_by_number(number: int) -> str:
    return "refunded"


@tool(name="refund", effect="read")
def refund_read(order_id: str, cents: int) -> str:
    return "refunded"


@pytest.mark.parametrize(
    ("name", "tools", "problem"),
    [
        ("clerk", [refund], None),
        ("other", [refund], "its agent 'clerk' is not hosted; these are: other"),
        ("clerk", [], "call 'a' is for the tool refund, which agent 'clerk' no longer has"),
        ("clerk", [refund_by_number], "call 'a' no longer fits the schema of refund: number: Field required"),
        ("clerk", [refund_read], "call 'a' was planned with effect 'once', and refund has 'read'"),
    ],
)
async def test_a_deploy_that_does_not_fit_a_running_conversation_is_found(
    client: Client, scripted: Scripted, name: str, tools: list[object], problem: str | None
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    deploy = Agent(name, model="scripted:new", tools=tools)  # type: ignore[arg-type]
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)

        async def found() -> list[tuple[str, str]]:
            return [(one.conversation, one.problem) async for one in conflicts(client, [deploy])]

        if problem is None:
            assert await found() == []
        else:
            # The list of what runs is the visibility store's, which comes a moment later.
            assert await eventually(found) == [(conversation.id, problem)]
        await conversation.close()
        await conversation.outcome()


async def test_calls_that_are_over_conflict_with_nothing(client: Client, scripted: Scripted) -> None:
    two = [call("refund", {"order_id": "81", "cents": 5}, id=one) for one in "ab"]
    agent = agent_on(scripted([two, "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await waiting(conversation, calls=2)

        async def found(name: str) -> list[str]:
            return [one.problem async for one in conflicts(client, [Agent(name, model="scripted:new")])]

        await conversation.deny("a")
        (problem,) = await eventually(lambda: found("clerk"))
        assert problem.startswith("call 'b' is for the tool refund")
        await conversation.cancel_turn()
        assert await found("clerk") == []
        assert len(await found("other")) == 1, "the conversation is still looked at"
        await conversation.close()
        await conversation.outcome()


async def test_code_that_would_not_replay_what_runs_is_found(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)

        async def found() -> list[tuple[str, str]]:
            return [(one.conversation, one.problem) async for one in conflicts(client, [agent])]

        async def with_a_timer_first(self: ConversationWorkflow) -> bool:
            await workflow.sleep(1)
            return False

        assert await found() == []
        with monkeypatch.context() as new_code:
            new_code.setattr(ConversationWorkflow, "_next_message", with_a_timer_first)
            [(where, problem)] = await eventually(found)
        assert where == conversation.id
        assert problem.startswith("diverges: ")
        await conversation.close()
        await conversation.outcome()
