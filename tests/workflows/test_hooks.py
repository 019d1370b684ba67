"""Hooks: what they see, change, deny, ask and stop, and how it is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, Conversation, Reply, Text, ToolCall, ToolContext, ToolResult, TurnContext, tool
from everturn.errors import Stalled
from everturn.hooks import (
    AskApproval,
    DenyCall,
    Hooks,
    ModelInput,
    StallWith,
    StopWith,
    after_model,
    after_tool,
    before_model,
    before_tool,
)
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.transcripts import told as events_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

paid: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


@tool(effect="once")
def refund(order_id: str, cents: int) -> str:
    """Refunds."""
    paid.append(cents)
    return f"{cents} back for {order_id}, from card 4242"


def refunding(*cents: int) -> list[Any]:
    return [[call("refund", {"order_id": "81", "cents": cent}, id=f"c{cent}") for cent in cents], "Done."]


async def told(conversation: Conversation) -> list[str]:
    return [result.text for result in results_of(await conversation.transcript())]


async def acts(conversation: Conversation) -> list[tuple[str, str, str, str]]:
    found = [event for event in await events_of(conversation) if event.kind == "hook_acted"]
    return [(event.hook, event.point, event.did, event.call_id) for event in found]


async def event_count(conversation: Conversation) -> int:
    described = await conversation._describe()
    return int(described.history_length)


@before_tool
async def bounds(call: ToolCall, context: ToolContext) -> DenyCall | ToolCall | AskApproval | None:
    cents = call.arguments["cents"]
    assert isinstance(cents, int)
    assert (context.call_id, context.turn) == (call.call_id, 1)
    if cents > 900:
        return DenyCall("more than 900")
    if cents > 500:
        return AskApproval("more than 500")
    return call.model_copy(update={"arguments": {**call.arguments, "cents": 100}}) if cents > 100 else None


@after_tool(tools=["refund"])
def no_cards(call: ToolCall, result: ToolResult, context: ToolContext) -> str | None:
    return result.text.replace("4242", "****")


async def test_a_call_is_denied_asked_for_changed_or_left_alone_as_its_hook_says(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(refunding(1000, 600, 300, 50)), tools=[refund], hooks=[bounds, no_cards])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund")
        assert await waiting(conversation) == ("c600",)
        assert (await conversation.status()).waiting[0].why == "more than 500"
        await conversation.approve("c600")
        assert (await conversation.outcome()).text == "Done."
    assert await told(conversation) == [
        "This call was denied by bounds and did not run. Reason: more than 900",
        "600 back for 81, from card ****",
        "100 back for 81, from card ****",
        "50 back for 81, from card ****",
    ]
    assert sorted(paid) == [50, 100, 600]
    found = await acts(conversation)
    assert found[:3] == [
        ("bounds", "before_tool", "denied", "c1000"),
        ("bounds", "before_tool", "asked", "c600"),
        ("bounds", "before_tool", "changed", "c300"),
    ]
    assert sorted(found[3:]) == [("no_cards", "after_tool", "changed", one) for one in ("c300", "c50", "c600")]
    [reply] = [message for message in await conversation.transcript() if message.tool_calls]
    assert [tool_call.arguments["cents"] for tool_call in reply.tool_calls] == [1000, 600, 100, 50]


async def test_hooks_cost_no_event(client: Client, scripted: Scripted) -> None:
    counts = []
    for hooks in ([], [bounds, no_cards, Everything()]):
        agent = agent_on(scripted(refunding(50)), tools=[refund], hooks=hooks)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Refund")
            await conversation.outcome()
        counts.append(await event_count(conversation))
    assert counts[0] == counts[1]


async def test_a_hook_sees_the_arguments_that_a_person_put_in_and_may_deny_those(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(refunding(600)), tools=[refund], hooks=[bounds])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        await conversation.approve("c600", arguments={"order_id": "81", "cents": 2000})

        async def refused() -> Any:
            return [
                waiting_call
                for waiting_call in (await conversation.status()).waiting
                if waiting_call.reason == "invalid_edit"
            ]

        [still] = await eventually(refused)
        assert "are not taken: This call was denied by bounds" in still.why
        await conversation.approve("c600", arguments={"order_id": "81", "cents": 200})

        async def changed() -> Any:
            return [
                waiting_call
                for waiting_call in (await conversation.status()).waiting
                if waiting_call.arguments["cents"] == 100
            ]

        [shown] = await eventually(changed)
        assert "bounds would change them" in shown.why
        await conversation.approve("c600", expected=shown.arguments)
        await conversation.outcome()
    assert paid == [100]
    [result] = await told(conversation)
    assert "with other arguments" in result
    assert result.endswith("100 back for 81, from card 4242")


class Everything(Hooks):
    """Changes nothing."""

    streams = True

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_model(self, given: ModelInput, context: TurnContext) -> None:
        self.seen.append(f"before model {context.turn}: {len(given.new)} of {len(given.messages)}")

    async def after_model(self, reply: Reply, context: TurnContext) -> None:
        self.seen.append(f"after model {context.turn}: {reply.text}")

    def before_tool(self, call: ToolCall, context: ToolContext) -> None:
        self.seen.append(f"before {call.name}")

    async def after_tool(self, call: ToolCall, result: ToolResult, context: ToolContext) -> None:
        self.seen.append(f"after {call.name}: {result.text}")


async def test_a_worker_has_hooks_for_all_its_agents(client: Client, scripted: Scripted) -> None:
    watch = Everything()
    agent = agent_on(scripted(refunding(50)), tools=[refund])
    async with hosting(client, agent, hooks=[watch]):
        await client.run(agent, "Refund")
    assert watch.seen == [
        "before model 1: 1 of 1",
        "after model 1: ",
        "before refund",
        "after refund: 50 back for 81, from card 4242",
        "before model 2: 1 of 3",
        "after model 2: Done.",
    ]


async def test_what_the_model_is_sent_can_be_changed_and_its_reply_before_it_is_recorded(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @before_model
    def without_names(given: ModelInput, context: TurnContext) -> ModelInput:
        said = tuple(
            message.model_copy(update={"parts": (Text(text=message.text.replace("Ann", "N.")),)})
            if message.role == "user"
            else message
            for message in given.messages
        )
        return replace(given, messages=said, instructions="Be brief.", tools=())

    @after_model
    async def with_names(reply: Reply, context: TurnContext) -> Reply:
        return reply.model_copy(
            update={
                "message": reply.message.model_copy(update={"parts": (Text(text=reply.text.replace("N.", "Ann")),)})
            }
        )

    model = scripted(["Hello N.", "Bye N."])
    agent = agent_on(model, tools=[refund], hooks=[without_names, with_names])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "I am Ann", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Hello Ann"
        await conversation.send("Bye, says Ann")
        assert await conversation.reply() == "Bye Ann"
        await conversation.close()
        await conversation.outcome()
    assert [message.text for message in await conversation.transcript()] == [
        "I am Ann",
        "Hello Ann",
        "Bye, says Ann",
        "Bye Ann",
    ]
    sent = str(model.requests)
    assert "I am N." in sent
    assert "I am Ann" not in sent
    assert "Be brief." in sent
    assert "refund" not in sent


@pytest.mark.parametrize("point", ["before_model", "after_model", "before_tool", "after_tool"])
async def test_a_hook_may_stop_with_an_answer(client: Client, scripted: Scripted, point: str) -> None:
    def stop(*_: Any) -> StopWith:
        return StopWith("No more of this.")

    makers: dict[str, Any] = {
        "before_model": before_model,
        "after_model": after_model,
        "before_tool": before_tool,
        "after_tool": after_tool,
    }
    model = scripted(refunding(50))
    agent = agent_on(model, tools=[refund], hooks=[makers[point](stop)], output=int if point != "after_tool" else None)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.text) == ("completed", "No more of this.")
    assert paid == ([50] if point == "after_tool" else [])
    assert len(model.requests) == (0 if point == "before_model" else 1)
    assert (await conversation.transcript())[-1].text == "No more of this."
    assert [(hook, at, did) for hook, at, did, _ in await acts(conversation)] == [("stop", point, "stopped")]


async def test_a_hook_stalls_with_cause_and_cure_and_resume_asks_again(client: Client, scripted: Scripted) -> None:
    closed = [True]

    @before_model
    def only_when_open(given: ModelInput, context: TurnContext) -> StallWith | None:
        return StallWith("The shop is closed.", "Open it.") if closed[0] else None

    agent = agent_on(scripted(["Hello."]), hooks=[only_when_open])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        with pytest.raises(Stalled, match=r"The shop is closed\.") as stalled:
            await conversation.reply()
        assert "Open it." in stalled.value.cure
        closed.clear()
        closed.append(False)
        await conversation.resume()
        assert await conversation.reply() == "Hello."


class Failing(Hooks):
    timeout = timedelta(seconds=0.2)

    def __init__(self, point: str, how: str) -> None:
        def fail(*_: Any) -> Any:
            if how == "hangs":
                time.sleep(3)
            if how == "raises":
                raise RuntimeError("oh")
            return StopWith(None) if how == "means nothing" else 7  # type: ignore[arg-type]

        setattr(self, point, fail)


@pytest.mark.parametrize("how", ["hangs", "raises", "returns", "means nothing"])
@pytest.mark.parametrize("point", ["before_model", "after_model"])
async def test_a_hook_of_the_model_that_fails_stalls_the_conversation(
    client: Client, scripted: Scripted, point: str, how: str
) -> None:
    agent = agent_on(scripted(["Hello."]), hooks=[Failing(point, how)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        with pytest.raises(Stalled, match=f"The hook 'Failing' \\({point}\\) of agent 'clerk' failed"):
            await conversation.reply()
        await conversation.close()


@pytest.mark.parametrize("how", ["hangs", "raises", "returns", "means nothing"])
async def test_a_hook_of_a_tool_that_fails_leaves_it_to_a_person_or_withholds_the_result(
    client: Client, scripted: Scripted, how: str
) -> None:
    agent = agent_on(
        scripted(refunding(50)), tools=[refund], hooks=[Failing("before_tool", how), Failing("after_tool", how)]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        assert await waiting(conversation) == ("c50",)
        assert "the hook 'Failing' failed" in (await conversation.status()).waiting[0].why
        await conversation.approve()
        await conversation.outcome()
    assert await told(conversation) == [
        "The tool refund ran. Its result is withheld because the hook 'Failing' failed."
    ]
    assert paid == [50]


async def test_a_tool_that_a_hook_did_not_show_is_none_of_the_models(client: Client, scripted: Scripted) -> None:
    @before_model
    def no_tools(given: ModelInput, context: TurnContext) -> ModelInput:
        return replace(given, tools=())

    agent = agent_on(scripted(refunding(50)), tools=[refund], hooks=[no_tools])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await conversation.outcome()
    assert await told(conversation) == ["There is no tool 'refund'. The tools are: none."]
    assert paid == []
