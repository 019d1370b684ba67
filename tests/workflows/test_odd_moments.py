"""What comes in at the worst moment, or out of all bounds: nothing stands still for ever, and nothing runs for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, Approvals, Client, Limits, Model, Patience, names, tool
from everturn.activities.failures import retry_delay
from everturn.errors import InvalidAgent, Refused, Stalled
from everturn.records import Decision, ToolCall
from everturn.testing import ScriptedModel, call, fail
from tests.conftest import agent_on, eventually, hosting, waiting
from tests.workflows.test_approvals import ONE, refund, signal
from tests.workflows.test_conversation import results_of

Scripted = Callable[..., ScriptedModel]

DECISIONS: dict[str, dict[str, Any]] = {
    names.APPROVE: {"call_id": "a"},
    names.DENY: {"call_id": "*"},
    names.ANSWER: {"call_id": "a", "content": "done"},
    names.CLOSE: {},
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("decision", DECISIONS)
async def test_a_turn_is_cancelled_in_the_same_step_as_somebody_decides(
    client: Client, scripted: Scripted, decision: str, first: bool
) -> None:
    agent = agent_on(scripted([ONE[0], "Ready again."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await waiting(conversation)
    both: list[tuple[str, dict[str, Any]]] = [(names.CANCEL_TURN, {}), (decision, DECISIONS[decision])]
    for name, payload in both if first else reversed(both):
        await signal(conversation, name, payload)
    if decision != names.CLOSE:
        await conversation.send("Again")
    async with hosting(client, agent):
        if decision != names.CLOSE:
            assert await conversation.reply() == "Ready again."
            await conversation.close()
        await conversation.outcome()
        (result,) = results_of(await conversation.transcript())
    assert "cut short" in result.text or "closed" in result.text or result.text in ("done", "5 back for 81")


async def test_no_policy_is_asked_about_the_clock_and_about_closing(client: Client, scripted: Scripted) -> None:
    asked: list[str] = []

    def approvers(call: ToolCall, decision: Decision) -> bool:
        asked.append(decision.by)
        return False

    agent = agent_on(
        scripted([*ONE, *ONE]),
        tools=[refund],
        approvers=approvers,
        approvals=Approvals(expire_after=timedelta(seconds=2)),
    )
    async with hosting(client, agent):
        expiring = await client.start(agent, "Go")
        await waiting(expiring)
        await expiring.approve("a")
        await eventually(lambda: asked == ["tester"])
        await expiring.outcome()  # and that nobody may decide holds up no expiry
        (result,) = results_of(await expiring.transcript())
        assert "Nobody decided" in result.text
        closing = await client.start(agent, "Go")
        await waiting(closing)
        await closing.close()
        await closing.outcome()
    assert asked == ["tester"]


@pytest.mark.parametrize("odd", ["cancelled", "huge"])
async def test_a_policy_may_do_anything_and_the_call_waits_on(client: Client, scripted: Scripted, odd: str) -> None:
    def approvers(call: ToolCall, decision: Decision) -> str:
        if odd == "cancelled":
            raise asyncio.CancelledError
        return "no" * 1_500_000

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.approve("a")
        await eventually(lambda: _doubted(conversation))
        await conversation.close()
        await conversation.outcome()


async def _doubted(conversation: Any) -> bool:
    return any("may not decide" in one.why for one in (await conversation.status()).waiting)


async def test_expected_arguments_go_with_one_call(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        with pytest.raises(Refused, match="Expected arguments go with one call"):
            await conversation.approve("*", expected={"cents": 5})
        await conversation.close()


async def test_a_model_name_that_is_none_stalls_and_says_so(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([fail(401), "Done."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", model="nonsense:x")
        with pytest.raises(Stalled, match="nonsense"):
            await conversation.reply()
        with pytest.raises(Refused, match="There is no model 'nonsense'"):
            await conversation.resume(model="nonsense")
        await conversation.close()
        await conversation.outcome()


async def test_closed_twice_while_it_is_stalled_it_ends(client: Client, scripted: Scripted) -> None:
    model = scripted([fail(401)] * 5)
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        with pytest.raises(Stalled):
            await conversation.reply()
    for _ in range(2):
        await signal(conversation, names.CLOSE, {})
    async with hosting(client, agent):
        await conversation.outcome()
    assert len(model.requests) == 1


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_no_more_tools_run_than_the_limit_says(client: Client, scripted: Scripted, limit: int) -> None:
    ran: list[int] = []

    @tool
    def count(number: int) -> str:
        ran.append(number)
        return "counted"

    reply = [call("count", {"number": number}) for number in range(4)]
    agent = agent_on(scripted([reply, "Done."]), tools=[count], limits=Limits(max_tool_calls=limit))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
        results = results_of(await conversation.transcript())
    assert sorted(ran) == list(range(limit))
    assert [result.text == "counted" for result in results] == [number < limit for number in range(4)]


async def test_an_endless_reason_and_an_endless_wait_are_bounded(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund], approvals=Approvals(expire_after=timedelta.max))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta.max)
        await waiting(conversation)
        await signal(conversation, names.CANCEL_TURN, {"reason": "x" * 1_900_000})
        await eventually(lambda: _idle(conversation))
        await conversation.close()
        outcome = await conversation.outcome()
    assert outcome.status == "cancelled"
    assert len(outcome.reason or "") < 5_000


async def _idle(conversation: Any) -> bool:
    return bool((await conversation.status()).state == "idle")


async def test_a_local_tool_that_is_always_late_runs_out_of_patience(client: Client, scripted: Scripted) -> None:
    tries: list[int] = []

    @tool(effect="read", local=True, timeout=timedelta(seconds=0.5), patience=timedelta(seconds=3))
    async def slow() -> str:
        tries.append(1)
        await asyncio.sleep(60)
        return "never"

    async with hosting(client, agent := agent_on(scripted([call("slow"), "So be it."]), tools=[slow])):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "So be it."
    (result,) = results_of(await conversation.transcript())
    assert (result.is_error, result.text) == (True, "slow did not finish within 0:00:00.500000.")
    assert 2 <= len(tries) <= 6


def test_no_provider_can_ask_for_more_than_time_holds() -> None:
    for seconds in (1e300, float("inf"), 99_999_999_999_999.0):
        assert retry_delay(seconds, attempt=1, longest=Patience().max_retry_delay) == Patience().max_retry_delay


def test_models_of_one_name_are_refused() -> None:
    model = Model("openai-chat:m", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(InvalidAgent, match="more than once"):
        Agent("clerk", model=model, fallback_models=[model])
