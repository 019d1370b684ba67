"""What a worker opens once, for the code of the user's that runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from temporalio.worker import Worker as TemporalWorker

from everturn import Client, EverturnPlugin, ToolCall, ToolContext, TurnContext, Worker, tool
from everturn.errors import InvalidAgent, InvalidSetting
from everturn.hooks import Hooks
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@dataclass
class Shop:
    keys: dict[str, str] = field(default_factory=lambda: {"acme": "key-of-acme"})
    open: bool = True
    used: list[str] = field(default_factory=list)


class Shops:
    """Makes shops, and knows them all."""

    def __init__(self) -> None:
        self.made: list[Shop] = []

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Shop]:
        self.made.append(shop := Shop())
        yield shop
        shop.open = False


@tool(effect="once")
def refund(order: str, context: ToolContext[Shop]) -> str:
    shop = context.deps
    shop.used.append("tool")
    assert shop.open
    return f"{order} with {shop.keys[context.tenant or '']}"


async def test_tools_predicates_approvers_and_instructions_find_what_their_worker_opened(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    def asks(arguments: dict[str, Any], context: ToolContext[Shop]) -> bool:
        context.deps.used.append("predicate")
        return True

    def may(call: Any, decision: Any, context: ToolContext[Shop]) -> bool:
        context.deps.used.append("approver")
        return True

    async def instructions(context: TurnContext[Shop]) -> str:
        context.deps.used.append("instructions")
        return "Be brief."

    shops = Shops()
    asked = tool(refund.function, needs_approval=asks) if refund.function else refund
    model = scripted([call("refund", {"order": "81"}), "Done."])
    agent = agent_on(model, tools=[asked], approvers=may, instructions=instructions)
    async with hosting(client, agent, deps=shops, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "It broke", tenant="acme")
        [call_id] = await waiting(conversation)
        await conversation.approve(call_id)
        assert await conversation.reply() == "Done."
        [shop] = shops.made
        assert shop.open
        [result] = [tool_result for message in await conversation.transcript() for tool_result in message.tool_results]
    assert result.text == "81 with key-of-acme"
    assert shop.used == ["instructions", "predicate", "approver", "tool", "instructions"]
    assert not shop.open


async def test_each_worker_of_a_plugin_opens_its_own(client: Client, scripted: Scripted) -> None:
    shops = Shops()
    agent = agent_on(scripted([call("refund", {"order": "81"}), "Done."]), tools=[refund])
    plugin = EverturnPlugin([agent], deps=shops, drain_timeout=timedelta(seconds=20))
    for _ in range(2):
        async with TemporalWorker(client.temporal, task_queue=client.task_queue, plugins=[plugin]):
            outcome = await (await client.start(agent, "It broke", tenant="acme")).outcome()
            assert outcome.text == "Done."
    assert [(shop.open, shop.used) for shop in shops.made] == [(False, ["tool"])] * 2


async def test_deps_that_can_not_be_opened_keep_the_worker_from_starting(client: Client, scripted: Scripted) -> None:
    @asynccontextmanager
    async def away() -> AsyncIterator[Shop]:
        raise ConnectionError("no database at db:5432")
        yield Shop()

    agent = agent_on(scripted(["Hello."]))
    with pytest.raises(InvalidSetting, match="could not be opened: ConnectionError: no database at db:5432"):
        await hosting(client, agent, deps=away).start()

    async def no_manager() -> Shop:
        return Shop()

    wrong: Any = no_manager
    with pytest.raises(InvalidSetting, match="@asynccontextmanager"):
        await hosting(client, agent, deps=wrong).start()


async def test_deps_that_do_not_open_or_close_are_named_and_hold_nobody_up_for_ever(
    client: Client, scripted: Scripted, bounds: Bounds, caplog: pytest.LogCaptureFixture
) -> None:
    def said(event: str) -> str:
        """The first line of the log about it; empty if there is none yet."""
        return next((line for line in caplog.text.splitlines() if event in line), "")

    bounds(deps_say_seconds=0.01, deps_close_seconds=0.01)

    @asynccontextmanager
    async def slow() -> AsyncIterator[Shop]:
        await eventually(lambda: said("deps.still_opening"))
        yield Shop()
        await asyncio.Event().wait()

    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent, deps=slow):
        assert await (await client.start(agent, "Hi")).reply() == "Hello."
    assert "longer than" in said("deps.not_closed")


def test_an_agent_that_wants_deps_is_refused_by_a_worker_without(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]), tools=[refund])
    with pytest.raises(InvalidAgent, match=r"Tool 'refund' of agent 'clerk' wants deps \(Shop\)"):
        Worker(client, agents=[agent])

    class Checked(Hooks):
        def before_tool(self, call: ToolCall, context: ToolContext[Shop]) -> None: ...

    agent = agent_on(scripted(["Hello."]), hooks=[Checked()])
    with pytest.raises(InvalidAgent, match=r"before_tool of hook 'Checked' of agent 'clerk' wants deps \(Shop\)"):
        Worker(client, agents=[agent])
    wrong: Any = Shop()
    with pytest.raises(InvalidSetting, match="can't be called"):
        Worker(client, agents=[agent], deps=wrong)


def test_a_tool_is_tested_without_a_worker() -> None:
    assert refund("81", context=ToolContext(tenant="acme", deps=Shop())) == "81 with key-of-acme"
