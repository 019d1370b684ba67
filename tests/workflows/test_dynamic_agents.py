"""Instructions and tools that functions of the user's decide before each turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, Client, McpServer, Patience, Tool, ToolContext, TurnContext, tool
from everturn.errors import InvalidAgent, NotFound, Stalled
from everturn.history.reader import read_steps
from everturn.history.steps import TurnCompleted
from everturn.prompts import KnownPrompts, Prompt, RecordedPrompt
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
        system = [message["content"] for message in request["messages"] if message["role"] in ("system", "developer")]
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
            return [tool for tool in tools if tool.name != "refund"]
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


async def test_what_a_turn_was_asked_with_is_in_the_history_once(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    def instructions(context: TurnContext) -> str:
        return "Look it up." if context.turn < 3 else "Answer now."

    script = [call("look_up", {"word": "a"}, id="c1"), call("look_up", {"word": "b"}, id="c2"), "Done."]
    agent = agent_on(scripted(script), tools=[look_up], instructions=instructions)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi")
        assert await conversation.reply() == "Done."
    prompts = [await conversation.prompt(turn) for turn in (1, 2, 3)]
    assert [prompt.instructions for prompt in prompts] == ["Look it up.", "Look it up.", "Answer now."]
    assert prompts[0].digest == prompts[1].digest != prompts[2].digest
    assert [tool.name for tool in prompts[0].tools] == ["look_up"]
    assert await conversation.prompt() == prompts[2]
    recorded = [
        step.reply.prompt
        async for step in read_steps(client.temporal, conversation.id)
        if isinstance(step, TurnCompleted) and step.reply.prompt
    ]
    assert [bool(one.packed) for one in recorded] == [True, False, True]
    with pytest.raises(NotFound, match="no answered turn 9"):
        await conversation.prompt(9)


async def test_nothing_is_recorded_for_an_agent_that_is_fixed(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]), instructions="Be brief.")
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        assert await conversation.reply() == "Hello."
    with pytest.raises(NotFound, match="No function chose the instructions or tools of turn 1"):
        await conversation.prompt()


def test_texts_of_prompts_have_a_bound_in_a_run() -> None:
    known = KnownPrompts()
    for number in range(500):
        text = "".join(random.Random(f"{number}").choices("abcdefghijklmnopqrstuvwxyz", k=2_000))
        fields = known.request_fields
        recorded = RecordedPrompt.from_prompt(
            Prompt(instructions=text), known=fields.get("prompts", ()), room=fields.get("prompt_room")
        )
        known.take_prompt(recorded)
    assert known.request_fields["prompt_room"] < 3_000
    assert not recorded.packed
    assert recorded.digest


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
        ({"prepare_tools": lambda context, tools: tools.clear()}, "returned NoneType"),
        ({"prepare_tools": lambda context, tools: [McpServer(url="http://localhost:1")]}, "McpServer"),
    ],
    ids=["no text", "no tool", "no list", "a server"],
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
