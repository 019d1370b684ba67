"""Instructions and tools that functions of the user's decide before each turn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, Client, McpServer, Patience, Tool, ToolContext, TurnContext, tool
from everturn.errors import InvalidAgent, Stalled
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of

Scripted = Callable[..., ScriptedModel]


@tool
def look_up(word: str) -> str:
    """Looks a word up."""
    return f"{word} means {word}"


@tool
def refund(order: str) -> str:
    """Gives the money back."""
    return f"{order} refunded"


def asked_of(model: ScriptedModel) -> list[tuple[str, list[str]]]:
    """What each turn was asked with: the instructions, and the names of the tools."""
    asked = []
    for request in model.requests:
        system = [one["content"] for one in request["messages"] if one["role"] in ("system", "developer")]
        asked.append(("".join(system), [one["function"]["name"] for one in request.get("tools", ())]))
    return asked


async def test_instructions_are_a_function_of_the_turn(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    def instructions(context: TurnContext) -> str:
        assert context.now.tzinfo is not None
        return f"{context.agent} for {context.tenant}, {context.metadata['name']}, turn {context.turn}"

    model = scripted([call("look_up", {"word": "lamp"}), "Done."])
    agent = agent_on(model, tools=[look_up], instructions=instructions)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi", tenant="acme", metadata={"name": "Ada"})
        assert await conversation.reply() == "Done."
    said = [text for text, _ in asked_of(model)]
    assert said == ["clerk for acme, Ada, turn 1", "clerk for acme, Ada, turn 2"]


async def test_a_turn_has_the_tools_that_a_function_gives_it(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    def of_the_user(order: str, context: ToolContext) -> str:
        """Made for this conversation."""
        return f"{context.metadata['role']}: {order}"

    async def prepare(context: TurnContext, tools: list[Tool]) -> list[Any]:
        if context.metadata["role"] == "guest":
            return [one for one in tools if one.name != "refund"]
        return [*tools, tool(of_the_user, name="escalate")]

    script = [call("refund", {"order": "81"}, id="c1"), call("escalate", {"order": "81"}, id="c2"), "Done."]
    results = {}
    for role in ("guest", "staff"):
        model = scripted(script)
        agent = agent_on(model, tools=[look_up, refund], prepare_tools=prepare)
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversation = await client.start(agent, "Hi", metadata={"role": role})
            assert await conversation.reply() == "Done."
            results[role] = [result.text for result in results_of(await conversation.transcript())]
        assert {tuple(tools) for _, tools in asked_of(model)} == {
            ("look_up",) if role == "guest" else ("look_up", "refund", "escalate")
        }
    assert results["staff"] == ["81 refunded", "staff: 81"]
    assert results["guest"] == [
        "There is no tool 'refund'. The tools are: look_up.",
        "There is no tool 'escalate'. The tools are: look_up.",
    ]


async def test_what_a_function_raises_is_tried_again_and_then_stalls(client: Client, scripted: Scripted) -> None:
    tries: list[int] = []

    def passing(context: TurnContext) -> str:
        tries.append(context.attempt)
        if context.attempt < 3:
            raise ConnectionError("the store is away")
        return "Be brief."

    def lasting() -> str:
        raise ConnectionError("the store is away")

    async with hosting(client, agent_on(scripted(["Hello."]), instructions=passing)):
        assert await (await client.start("clerk", "Hi")).reply() == "Hello."
    assert tries == [1, 2, 3]

    short = Patience(model=timedelta(seconds=1))
    async with hosting(client, agent_on(scripted(["Hello."]), instructions=lasting, patience=short)):
        conversation = await client.start("clerk", "Hi")
        with pytest.raises(Stalled, match=r"instructions of agent 'clerk' failed: .*the store is away"):
            await conversation.reply()
        await conversation.close()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"instructions": lambda: 5}, "returned int"),
        ({"prepare_tools": lambda context, tools: [5]}, "tools\\[0\\] of Agent 'clerk'"),
        ({"prepare_tools": lambda context, tools: [McpServer(url="http://localhost:1")]}, "McpServer"),
    ],
    ids=["no text", "no tool", "a server"],
)
async def test_what_can_not_be_used_stalls_at_once(
    client: Client, scripted: Scripted, options: dict[str, Any], cause: str
) -> None:
    async with hosting(client, agent_on(scripted(["Hello."]), tools=[look_up], **options)):
        conversation = await client.start("clerk", "Hi")
        with pytest.raises(Stalled, match=cause):
            await conversation.reply()
        await conversation.close()


def test_functions_that_can_not_be_called_are_refused(scripted: Scripted) -> None:
    wrong: Any = lambda one, two, three: ""  # noqa: E731
    for options in ({"instructions": wrong}, {"prepare_tools": wrong}, {"prepare_tools": 5}, {"instructions": 5}):
        with pytest.raises(InvalidAgent, match=next(iter(options))):
            Agent("clerk", model="scripted:demo", **options)
