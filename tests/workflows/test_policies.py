"""Decisions made in advance: remembered ones, rules by tool and argument, and decisions that come too late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity

from everturn import Client, Conversation, Limits, NeedsApproval, ToolContext, activity_tool, tool
from everturn.errors import Refused
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.operators import signal
from tests.support.transcripts import results_of
from tests.support.transcripts import told as events_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

paid: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int) -> str:
    """Refunds."""
    paid.append(cents)
    return f"{cents} back"


@tool
def note(text: str, tag: str = "plain") -> str:
    """Notes."""
    return f"noted {text}"


def refunds(*cents: int) -> list[Any]:
    return [call("refund", {"order_id": "81", "cents": cent}, id=f"c{cent}") for cent in cents]


async def told(conversation: Conversation) -> list[str]:
    return [result.text for result in results_of(await conversation.transcript())]


async def test_a_decision_for_always_is_one_on_the_calls_that_wait_and_on_those_to_come(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    script = [refunds(1, 2, 3000), refunds(4, 5000), "Done."]
    agent = agent_on(scripted(script), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation, calls=3)
        await conversation.approve("c1", always={"cents": {"at_most": 2000}})
        assert await waiting(conversation) == ("c3000",)
        await conversation.deny("c3000", "too much", always={"cents": {"above": 4000}})
        assert (await conversation.outcome()).text == "Done."
    assert sorted(paid) == [1, 2, 4]
    assert (await told(conversation))[2:] == [
        "This call was denied by tester and did not run. Reason: too much",
        "4 back",
        "This call was denied by the policy of tester and did not run. Reason: too much",
    ]
    decided = [event for event in await events_of(conversation) if event.kind == "decided"]
    assert sorted((one.call_id, one.verdict, one.by, one.by_policy) for one in decided) == [
        ("c1", "approve", "tester", False),
        ("c2", "approve", "tester", True),
        ("c3000", "deny", "tester", False),
        ("c4", "approve", "tester", True),
        ("c5000", "deny", "tester", True),
    ]


async def test_a_policy_holds_back_what_no_tool_asks_for_and_lets_go_of_what_waits(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    calls = [*refunds(1), call("note", {"text": "x"}, id="n1"), call("note", {"text": "rm"}, id="n2")]
    agent = agent_on(scripted([calls, "Done."]), tools=[refund, note])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1), id=None)
        await waiting(conversation)
        await conversation.set_policy([{"tool": "refund", "then": "ask"}])
        assert [waiting_call.call_id for waiting_call in (await conversation.status()).waiting] == ["c1"]
        assert [(rule.tool, rule.by) for rule in (await conversation.status()).policy] == [("refund", "tester")]
        await conversation.set_policy(
            [
                {"tool": "*", "then": "approve"},
                {"tool": "note", "then": "deny", "where": {"text": {"equals": "x"}}, "reason": "no x"},
            ]
        )
        assert await conversation.reply() == "Done."
        await conversation.close()
        await conversation.outcome()
    assert paid == [1]


async def test_a_policy_denies_and_asks_from_the_first_turn_on(client: Client, scripted: Scripted) -> None:
    calls = [call("note", {"text": text}, id=text) for text in ("a", "b", "c")]
    agent = agent_on(scripted(["Hello.", calls, "Done."]), tools=[note])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.set_policy(
            [
                {"tool": "note", "then": "deny", "where": {"text": {"equals": "a"}}},
                {"tool": "note", "then": "ask", "where": {"text": {"equals": "b"}}, "reason": "is it b?"},
            ]
        )
        await conversation.send("Note")
        assert await waiting(conversation) == ("b",)
        [waiting_call] = (await conversation.status()).waiting
        assert (waiting_call.reason, waiting_call.why) == ("needs_approval", 'is it b? (by default: tag="plain")')
        await conversation.approve("b")
        assert await conversation.reply() == "Done."
        await conversation.close()
        await conversation.outcome()
    assert await told(conversation) == [
        "This call was denied by the policy of tester and did not run.",
        "noted b",
        "noted c",
    ]


async def test_what_is_decided_for_always_goes_on_into_the_next_run(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(updates=1)
    agent = agent_on(scripted([refunds(1), refunds(2), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        await conversation.approve("c1", always=True)
        await conversation.outcome()
        assert len(await runs_of(client, conversation)) > 1
    assert paid == [1, 2]


async def test_a_rule_of_somebody_who_may_not_decide_decides_nothing(client: Client, scripted: Scripted) -> None:
    def approvers(_: Any, decision: Any) -> bool:
        return bool(decision.by == "owner")

    agent = agent_on(scripted([refunds(1), "Done."]), tools=[refund], approvers=approvers)
    address = client.temporal.service_client.config.target_host
    owner = await Client.connect(address, task_queue=client.task_queue, by="owner")
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        await conversation.set_policy([{"tool": "refund", "then": "approve", "by": "owner"}])

        async def turned_down() -> bool:
            return [waiting_call.reason for waiting_call in (await conversation.status()).waiting] == ["not_allowed"]

        await eventually(turned_down)
        await owner.conversation(conversation.id).set_policy([{"tool": "refund", "then": "approve"}])
        assert (await conversation.outcome()).text == "Done."
    assert paid == [1]


async def test_what_can_t_be_decided_for_always_is_refused(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([refunds(1), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        with pytest.raises(Refused, match="can't change arguments"):
            await conversation.approve("c1", {"order_id": "81", "cents": 2}, always=True)
        with pytest.raises(Refused, match="condition"):
            await conversation.approve("c1", always={"cents": {"atmost": 2}})
        with pytest.raises(Refused, match="rule"):
            await conversation.set_policy([{"tool": "refund", "then": "perhaps"}])
        with pytest.raises(Refused, match="bytes"):
            await conversation.set_policy([{"tool": "x", "then": "ask", "reason": "y" * 1_000}] * 50)
        await conversation.approve("c1")
        await conversation.outcome()


async def test_no_edit_goes_beyond_a_rule_that_denies(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([refunds(1), "Done."]), tools=[refund])
    much = {"tool": "refund", "then": "deny", "where": {"cents": {"above": 100}}, "reason": "too much"}
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund", policy=[much])
        await waiting(conversation)
        with pytest.raises(Refused, match="tester denies refund with these arguments"):
            await conversation.approve("c1", {"order_id": "81", "cents": 500})
        await signal(conversation, "approve", {"call_id": "c1", "arguments": {"order_id": "81", "cents": 500}})
        await conversation.approve("c1", {"order_id": "81", "cents": 99})
        await conversation.outcome()
    assert paid == [99]


async def test_a_decision_is_not_taken_after_its_time(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([refunds(1), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        handle = client.temporal.get_workflow_handle(conversation.id)
        for verdict, more in (("approve", {}), ("deny", {}), ("answer", {"content": "x"})):
            with pytest.raises(Refused, match="s too late"):
                await conversation._send_update(verdict, {"call_id": "c1", "valid_until": 1.0, **more})
            await handle.signal(verdict, {"call_id": "c1", "valid_until": 1.0, **more})
        assert await waiting(conversation) == ("c1",)
        await conversation.approve("c1", within=timedelta(hours=1))
        await conversation.outcome()
    assert paid == [1]


@tool(effect="once")
def pay(cents: int, context: ToolContext, currency: str = "EUR") -> str:
    """Pays."""
    if cents > 100 and not context.approved:
        raise NeedsApproval(f"{cents} is more than 100")
    paid.append(cents)
    return f"paid {cents}"


async def test_a_tool_may_find_that_a_person_has_to_approve(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    calls = [call("pay", {"cents": cents}, id=f"p{cents}") for cents in (5, 500, 700)]
    agent = agent_on(scripted([calls, "Done."]), tools=[pay])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay")
        await waiting(conversation, calls=2)
        questions = {
            waiting_call.call_id: (waiting_call.reason, waiting_call.why)
            for waiting_call in (await conversation.status()).waiting
        }
        assert questions["p500"] == ("needs_approval", '500 is more than 100 (by default: currency="EUR")')
        await conversation.deny("p700", "no")
        await conversation.approve("p500")
        await conversation.outcome()
    assert sorted(paid) == [5, 500]
    assert (await told(conversation))[1:] == ["paid 500", "This call was denied by tester and did not run. Reason: no"]
    assert "tool_lost" not in [event.kind for event in await events_of(conversation)]


@tool
def unclear(number: bool) -> str:
    """Says why in no words that can be written."""
    raise NeedsApproval(5 if number else "half an emoji: \ud800")  # type: ignore[arg-type]


async def test_whatever_a_tool_says_of_why_it_waits(client: Client, scripted: Scripted) -> None:
    calls = [call("unclear", {"number": number}, id=str(number)) for number in (True, False)]
    agent = agent_on(scripted([calls, "Done."]), tools=[unclear])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=2)
        why = {waiting_call.call_id: waiting_call.why for waiting_call in (await conversation.status()).waiting}
        await conversation.deny("*")
        await conversation.outcome()
    assert why == {"True": "5", "False": "half an emoji: \ufffd"}


@tool
def never_enough() -> str:
    """Asks for ever."""
    raise NeedsApproval("again")


async def test_a_rule_does_not_let_a_tool_ask_for_ever(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([[call("never_enough", id="n")], "Done."]), tools=[never_enough])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.approve("n", always=True)
        await waiting(conversation)
        await conversation.deny("n")
        await conversation.outcome()


async def test_a_rule_for_a_tool_that_no_agent_has_is_named_in_the_log(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    model = scripted(["Hello.", "Hello."])
    helper = agent_on(model, name="helper", tools=[note])
    agent = agent_on(model, tools=[refund, helper])
    known = [{"tool": name, "then": "ask"} for name in ("*", "refund", "note", "helper", "read_result")]
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1), policy=known)
        await client.send(agent.name, "Hi", id=conversation.id, policy=[{"tool": "refnd", "then": "deny"}])
        await conversation.reply()
        assert "policy.unknown_tool" not in caplog.text
        await conversation.set_policy([{"tool": "refnd", "then": "deny"}, *known])
        assert "a rule for 'refnd'" in caplog.text
        assert "Did you mean 'refund'?" in caplog.text
        await conversation.close()
        await conversation.outcome()


@pytest.mark.parametrize("kind", ["free", "by rule", "by a person", "sub-agent", "approvers", "may not"])
async def test_a_rule_that_denies_holds_for_calls_that_wait_until_others_are_done(
    client: Client, scripted: Scripted, kind: str, cached_conversations: int
) -> None:
    """They had passed the gate when it came, and nothing of them had begun."""
    began = asyncio.Event()
    released = asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        began.set()
        await released.wait()
        return "nothing"

    @tool(effect="once", needs_approval=kind in ("by rule", "by a person"))
    def pay(cents: int) -> str:
        paid.append(cents)
        return "paid"

    payer = agent_on(scripted(["I paid."]), name="pay")
    options: dict[str, Any] = {"tools": [look, payer if kind == "sub-agent" else pay]}
    if kind in ("approvers", "may not"):
        options["approvers"] = lambda _, decision: kind == "approvers" or decision.by != "tester"
    arguments = {"message": "Pay"} if kind == "sub-agent" else {"cents": 5}
    model = scripted([[call("look", {}, id="l"), call("pay", arguments, id="p")], "Done."])
    agent = agent_on(model, limits=Limits(max_parallel_calls=1), **options)
    policy = [{"tool": "pay", "then": "approve"}] if kind == "by rule" else []
    async with hosting(client, agent, payer, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", policy=policy)
        await eventually(began.is_set, what="the first call runs")
        if kind == "by a person":
            await waiting(conversation)
            await conversation.approve("p")
        await conversation.set_policy([{"tool": "pay", "then": "deny", "reason": "closed"}])
        released.set()
        await conversation.outcome()
    denial = "This call was denied by the policy of tester and did not run. Reason: closed"
    assert await told(conversation) == ["nothing", "paid" if kind == "may not" else denial]
    assert paid == ([5] if kind == "may not" else [])


@pytest.mark.parametrize("kind", ["tool", "sub-agent", "activity", "client"])
async def test_a_rule_that_denies_holds_for_an_approved_call_that_approvers_are_asked_about(
    client: Client, scripted: Scripted, kind: str, cached_conversations: int
) -> None:
    approvers_asked = asyncio.Event()
    released = asyncio.Event()

    async def approvers(_: Any, decision: Any) -> bool:
        approvers_asked.set()
        await released.wait()
        return True

    @tool
    def pay() -> str:
        paid.append(5)
        return "paid"

    @activity.defn(name="pay")
    async def pay_once() -> str:
        paid.append(5)
        return "paid"

    payer = agent_on(scripted(["I paid."]), name="pay")
    tools = {
        "tool": pay,
        "sub-agent": payer,
        "activity": activity_tool(pay_once),
        "client": replace(pay, runs_on="client"),
    }
    arguments = {"message": "Pay"} if kind == "sub-agent" else {}
    agent = agent_on(scripted([call("pay", arguments, id="p"), "Done."]), tools=[tools[kind]], approvers=approvers)
    async with hosting(client, agent, payer, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", policy=[{"tool": "pay", "then": "ask"}])
        await waiting(conversation)
        await conversation.approve("p")
        await eventually(approvers_asked.is_set)
        await conversation.set_policy([{"tool": "pay", "then": "deny", "reason": "closed"}])
        released.set()
        await conversation.outcome()
    [text] = await told(conversation)
    assert text.startswith("This call was denied by the policy of tester")
    assert "Reason: closed" in text
    assert paid == []
