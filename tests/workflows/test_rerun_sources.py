"""What is rerun: conversations that were reset, forked and continued in new runs, at a turn and whole, in another
namespace, read by a judge. None of it is anybody's news: no rerun sends to a webhook."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from everturn import Client, Conversation, Webhook, names, tool
from everturn.devserver import DevServer
from everturn.errors import NotFound
from everturn.evals import cases_of, read_recorded, rerun
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.namespaces import new_namespace
from tests.support.operators import reset_to
from tests.support.scripts import by_turn
from tests.support.waiting import eventually
from tests.support.webhook_receiver import SECRET, Receiver

Scripted = Callable[..., ScriptedModel]

ran: list[str] = []


@tool(effect="read")
def find_order(order_id: str) -> str:
    """Finds an order."""
    ran.append("find_order")
    return f"order {order_id}: 1200 cents"


@tool(effect="idempotent", needs_approval=True)
def refund(order_id: str) -> str:
    """Refunds an order."""
    ran.append("refund")
    return f"refunded {order_id}"


ANSWERED = 3
REPLIES = [call("find_order", {"order_id": "81"}), call("refund", {"order_id": "81"}), "Refunded.", "Welcome."]


async def refunded(conversation: Conversation) -> None:
    """Up to the first answer. A reset may apply the approval of before."""

    async def is_answered() -> bool:
        status = await conversation.status()
        if status.waiting:
            await conversation.approve("*")
        return status.state == "idle" and status.turn == ANSWERED

    await eventually(is_answered)


async def thanked(conversation: Conversation) -> str:
    await conversation.send("Thanks.")
    assert await conversation.reply() == "Welcome."
    await conversation.close()
    await conversation.outcome()
    return conversation.id


async def test_what_was_reset_forked_and_continued_is_rerun_whole_and_at_a_turn_and_no_rerun_is_news(
    client: Client, scripted: Scripted, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    bounds(events=30)
    with Receiver() as receiver:
        webhook = Webhook(url=f"{receiver.base_url}/hook", secret_env="SECRET")
        agent = agent_on(scripted(by_turn(*REPLIES)), tools=[find_order, refund], webhook=webhook)
        async with hosting(client, agent):
            conversations = [
                await client.start(agent, "Refund order 81.", keep_open=timedelta(hours=1)) for _ in range(2)
            ]
            continued, reset = conversations
            for conversation in conversations:
                await refunded(conversation)
            await reset_to(client, reset, task=0)
            await refunded(reset)
            forked = await continued.fork(1)
            await refunded(forked)
            ids = [await thanked(conversation) for conversation in (continued, reset, forked)]
            await eventually(lambda: set(ids) <= heard_of(receiver))
        ran.clear()

        whole = await rerun(client, ids, agent=agent)
        assert [compared.verdict for compared in whole.comparisons] == ["same calls"] * 3
        for turn in (2, 3):
            at_turn = await rerun(client, ids, agent=agent, at_turn=turn)
            assert [compared.verdict for compared in at_turn.comparisons] == ["same calls"] * 3
        broken = agent_on(scripted(lambda _: fail(401, "no such key")), tools=[refund], webhook=webhook)
        for options in ({}, {"at_turn": 2}):
            stalled = await rerun(client, ids[0], agent=broken, **options)
            assert "stalled" in stalled.comparisons[0].problem
        cases = cases_of(await read_recorded(client, ids[0]))
        of_cases = await rerun(client, cases, agent=agent)
        assert all(compared.same_calls for compared in of_cases.comparisons)
        assert ran == []
        assert await deliveries_of_reruns(client) == []
        assert heard_of(receiver) == set(ids)


def heard_of(receiver: Receiver) -> set[str]:
    return {message["data"]["conversation_id"] for message in receiver.messages}


async def deliveries_of_reruns(client: Client) -> list[str]:
    query = f"WorkflowType = '{names.WEBHOOK}' AND TaskQueue STARTS_WITH '{client.task_queue}-rerun-'"
    return [delivery.id async for delivery in client.temporal.list_workflows(query)]


async def test_a_rerun_in_another_namespace_is_there_and_a_judge_says_whether_it_means_the_same(
    client: Client, server: DevServer, scripted: Scripted
) -> None:
    agent = agent_on(scripted(by_turn("It is paid.")))
    async with hosting(client, agent):
        conversation = await client.run(agent, "Is it paid?")
    elsewhere = await Client.connect(server.address, namespace=await new_namespace(server))
    candidate = agent_on(scripted(by_turn("Yes, paid.")))
    judged = []
    for word in ("Yes.", "no", "perhaps"):
        judge = agent_on(scripted([word])).model
        reruns = await rerun(client, conversation.id, agent=candidate, to=elsewhere, judge=judge)
        judged.append(reruns.comparisons[0].same_meaning)
    assert judged == [True, False, None]
    [compared] = reruns.comparisons
    assert (await elsewhere.conversation(compared.rerun.id).transcript())[-1].text == "Yes, paid."
    with pytest.raises(NotFound):
        await client.conversation(compared.rerun.id).transcript()
    assert [listed.id async for listed in elsewhere.conversations()] == []
