"""An agent's `after_tool` hooks see every result, whoever gave it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import activity

from everturn import (
    Agent,
    Client,
    Conversation,
    Limits,
    ModelSettings,
    ToolCall,
    ToolContext,
    ToolResult,
    activity_tool,
    ask_user,
    tool,
)
from everturn.events import ToolFinished
from everturn.guardrails import Pattern
from everturn.hooks import after_tool
from everturn.policy import Rule
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

CARD = "4242 4242 4242 4242"
CARDS = Pattern(r"(?:[0-9]{4}[ -]?){3}[0-9]{4}", redact="[card]", name="cards", on="results")


@tool(runs_on="client")
def from_the_page() -> str:
    """The card that the page holds."""
    return f"page: {CARD}"


@tool(runs_on="client", needs_approval=True)
def from_the_drawer(key: str) -> str:
    """The card in the client's drawer."""
    return f"drawer {key}: {CARD}"


@tool(needs_approval=True)
def from_the_shop() -> str:
    """The card in the shop's books."""
    return f"shop: {CARD}"


@activity.defn
async def from_the_bank() -> str:
    """The card in the bank's books."""
    return f"bank: {CARD}"


async def answered(conversation: Conversation) -> None:
    assert await waiting(conversation) == ("c1",)
    await conversation.answer("c1", f"I say {CARD}")


async def run_here(conversation: Conversation) -> None:
    await asyncio.wait_for(conversation.run_tools([from_the_page]), 30)


async def approved_and_run_here(conversation: Conversation) -> None:
    assert await waiting(conversation) == ("c1",)
    await conversation.approve("c1", {"key": "two"})
    await asyncio.wait_for(conversation.run_tools([from_the_drawer]), 30)


async def approved(conversation: Conversation) -> None:
    assert await waiting(conversation) == ("c1",)
    await conversation.approve("c1")


async def nothing(conversation: Conversation) -> None: ...


def sub_agent(scripted: Scripted, name: str = "cashier") -> Agent:
    return agent_on(scripted([f"The card is {CARD}."]), name=name)


KINDS: dict[str, tuple[Any, str, dict[str, Any], Any]] = {
    "a client": (lambda *_: from_the_page, "from_the_page", {}, run_here),
    "a client, after an approval": (
        lambda *_: from_the_drawer,
        "from_the_drawer",
        {"key": "one"},
        approved_and_run_here,
    ),
    "a person, in the tool's place": (lambda *_: from_the_shop, "from_the_shop", {}, answered),
    "a person who is asked": (lambda *_: ask_user, "ask_user", {"question": "Which card?"}, answered),
    "a sub-agent": (sub_agent, "cashier", {"message": "Which card?"}, nothing),
    "a sub-agent, after an approval": (sub_agent, "cashier", {"message": "Which card?"}, approved),
    "an activity of the user's own, after an approval": (
        lambda *_: activity_tool(from_the_bank, needs_approval=True),
        "from_the_bank",
        {},
        approved,
    ),
    "an activity of the user's own": (lambda *_: activity_tool(from_the_bank), "from_the_bank", {}, nothing),
    "a manual loop": (lambda *_: from_the_shop, "from_the_shop", {}, answered),
}


@pytest.mark.long
async def test_a_card_number_is_redacted_whoever_gave_it(client: Client, scripted: Scripted) -> None:
    given = {kind: make(scripted, f"cashier-{number}") for number, (kind, (make, *_)) in enumerate(KINDS.items())}
    agents = {kind: _clerk(scripted, f"clerk-{number}", given[kind], kind) for number, kind in enumerate(KINDS)}
    others = [one for one in given.values() if isinstance(one, Agent)]
    async with hosting(client, *agents.values(), *others):
        shown = await asyncio.gather(*(_shown(client, agents[kind], given[kind], kind) for kind in KINDS))
    assert dict(zip(KINDS, shown, strict=True)) == dict.fromkeys(KINDS, (True, True))


def _clerk(scripted: Scripted, name: str, given: Any, kind: str) -> Agent:
    called = given.name if isinstance(given, Agent) else KINDS[kind][1]
    model = scripted([call(called, KINDS[kind][2], id="c1"), "Done."])
    options = {"loop": "manual"} if "manual" in kind else {}
    return agent_on(model, tools=[given], hooks=[CARDS], name=name, **options)


async def _shown(client: Client, agent: Agent, given: Any, kind: str) -> tuple[bool, bool]:
    """Whether the result is redacted in the transcript, and whether it is the same in the events."""
    _, name, _, settle = KINDS[kind]
    rules = [Rule(tool=given.name if isinstance(given, Agent) else name, then="ask")]
    conversation = await client.start(agent, "Which card?", policy=rules if "approval" in kind else [])
    await settle(conversation)
    assert (await conversation.outcome()).text == "Done.", kind
    finished = [event.result.text async for event in conversation.events() if isinstance(event, ToolFinished)]
    [result] = results_of(await conversation.transcript())
    return CARD not in result.text and "[card]" in result.text, finished == [result.text]


async def test_a_hook_that_fails_withholds_an_answer(client: Client, scripted: Scripted) -> None:
    @after_tool
    def broken(call: ToolCall, result: ToolResult, context: ToolContext) -> None:
        raise LookupError("no books")

    agent = agent_on(scripted([call("from_the_page", id="c1"), "Done."]), tools=[from_the_page], hooks=[broken])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Which card?")
        await answered(conversation)
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert CARD not in result.text
    assert "withheld" in result.text
    assert result.is_error


async def test_hooks_see_the_call_as_it_was_approved_and_the_notice_of_that_stays(
    client: Client, scripted: Scripted
) -> None:
    keys = []

    @after_tool
    def replaces(call: ToolCall, result: ToolResult, context: ToolContext) -> str:
        keys.append((call.arguments["key"], result.text))
        return "a card"

    agent = agent_on(
        scripted([call("from_the_drawer", {"key": "one"}, id="c1"), "Done."]), tools=[from_the_drawer], hooks=[replaces]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Which card?")
        await approved_and_run_here(conversation)
    [result] = results_of(await conversation.transcript())
    assert keys == [("two", f"drawer two: {CARD}")]
    assert result.text == '[Approved by tester with other arguments: {"key":"two"}]\na card'


async def test_what_hooks_have_not_seen_is_in_no_transcript(client: Client, scripted: Scripted) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    @after_tool
    async def slow(call: ToolCall, result: ToolResult, context: ToolContext) -> None:
        begun.set()
        await goes_on.wait()

    cashier = sub_agent(scripted)
    agent = agent_on(scripted([call("cashier", {"message": "Which?"}, id="c1")]), tools=[cashier], hooks=[slow])
    async with hosting(client, agent, cashier):
        conversation = await client.start(agent, "Which card?")
        await asyncio.wait_for(begun.wait(), 30)
        await client.temporal.get_workflow_handle(conversation.id).terminate()
        goes_on.set()
        [result] = results_of(await conversation.transcript())
    assert CARD not in result.text
    assert result.is_error


@activity.defn
async def much_for_much(text: str) -> str:
    """Returns much."""
    return f"{CARD} " * 40_000


async def test_what_is_too_large_to_be_shown_to_hooks_is_withheld(client: Client, scripted: Scripted) -> None:
    asks = call("much_for_much", {"text": "much" * 325_000}, id="c1")
    limits = Limits(max_result_chars=1_000_000)
    options: dict[str, Any] = {"limits": limits, "settings": ModelSettings(stream=False)}  # else, 40,000 pieces
    agent = agent_on(scripted([asks, "Done."]), tools=[activity_tool(much_for_much)], hooks=[CARDS], **options)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Which card?")
        assert (await conversation.outcome()).text == "Done."
        finished = [event.result.text async for event in conversation.events() if isinstance(event, ToolFinished)]
    [result] = results_of(await conversation.transcript())
    assert finished == [result.text]
    assert "withheld because the agent's hooks could not check it: the call and its result have 2," in result.text
