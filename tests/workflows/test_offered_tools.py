"""Messages that name the tools for their answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, Client, CodeExecution, Conversation, WebSearch, tool
from everturn.declared_tools import with_offered
from everturn.errors import InvalidTool, NotFound, Refused, Stalled, Unreachable
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.transcripts import results_of
from tests.support.waiting import QUERY_SECONDS, eventually

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def look_up(word: str) -> str:
    """Looks a word up."""
    return f"{word} means {word}"


@tool
def refund(order: str) -> str:
    """Gives the money back."""
    return f"{order} refunded"


def offered(model: ScriptedModel) -> list[list[str]]:
    """The names of the tools in each request, in the order of the requests."""
    return [[item["function"]["name"] for item in request.get("tools", ())] for request in model.requests]


async def approved(conversation: Conversation, call_id: str) -> bool:
    """Whether the call does not wait any more. While a run ends, a decision on it may be refused."""
    with suppress(Unreachable, NotFound, Refused):
        await conversation.approve(call_id)
        return True
    return False


@pytest.mark.long
async def test_an_answer_has_the_tools_that_its_message_names_over_waits_runs_and_more_messages(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(events=25)  # the next run begins in the middle of the answer
    look = [call("look_up", {"word": f"w{number}"}, id=f"c{number}") for number in range(3)]
    model = scripted([*look, call("refund", {"order": "81"}, id="r1"), "Looked up.", "All again."])
    agent = agent_on(model, tools=[look_up, refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5), tools=["look_up"])
        for number in range(3):
            if number == 1:
                await conversation.send("Hurry")  # taken in the middle of the answer, and names none
            await eventually(lambda wanted=f"c{number}": approved(conversation, wanted), pause=QUERY_SECONDS)
        assert await conversation.reply() == "Looked up."
        fork = await conversation.fork(at_turn=3)
        assert await fork.reply() == "Looked up."
        await conversation.send("And now?")
        assert await conversation.reply() == "All again."
    assert offered(model) == [["look_up"]] * 7 + [["look_up", "refund"]]
    assert len(await runs_of(client, conversation)) >= 2
    [refused] = [result for result in results_of(await conversation.transcript()) if result.call_id == "r1"]
    assert refused.text == "There is no tool 'refund'. The tools are: look_up."


async def test_a_fork_of_an_answer_that_was_closed_beside_its_reply_has_the_same_tools(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    def script(messages: list[dict[str, Any]]) -> Any:
        if any(message["role"] == "assistant" for message in messages):
            return "Looked up."
        assert go_on.wait(60)
        return call("look_up", {"word": "w"})

    model = scripted(script)
    agent = agent_on(model, tools=[look_up, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", tools=["look_up"])
        await eventually(lambda: model.requests)
        await conversation.close()
        go_on.set()
        await conversation.outcome()
        fork = await conversation.fork(at_turn=1)
        assert await fork.reply() == "Looked up."
    assert offered(model) == [["look_up"]] * 2


async def test_no_tools_leave_the_request_as_it_was_and_run_nothing(client: Client, scripted: Scripted) -> None:
    model = scripted([call("refund", {"order": "81"}, id="r1"), "In words."])
    agent = agent_on(model, tools=[look_up, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", tools=[])
        assert await conversation.reply() == "In words."
    assert offered(model) == [["look_up", "refund"]] * 2
    assert {request["tool_choice"] for request in model.requests} == {"none"}
    [refused] = results_of(await conversation.transcript())
    assert refused.is_error
    assert "refunded" not in refused.text


async def test_a_name_that_the_agent_lacks_stalls_the_answer_and_names_those_that_it_has(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(["Done."]), tools=[look_up, refund])
    async with hosting(client, agent):
        for wanted in (["look"], ["look_up", "look"]):
            with pytest.raises(InvalidTool, match=r"no tool 'look'. It has look_up, refund. .*mean 'look_up'"):
                await client.start(agent, "Hi", tools=wanted)
        for wrong in ("look_up", {"look_up": 1}, [{"name": "look_up"}]):
            with pytest.raises(InvalidTool, match="name"):
                await client.start(agent, "Hi", tools=wrong)  # type: ignore[arg-type]
        conversation = await client.send(agent.name, "Hi", id="named", keep_open=timedelta(minutes=5), tools=["look"])
        with pytest.raises(Stalled, match=r"has no tool 'look'. It has look_up, refund.*cancel_turn"):
            await conversation.reply()
        await conversation.cancel_turn()
        await conversation.send("Once more", tools=[look_up])
        assert await conversation.reply() == "Done."


def test_what_the_provider_runs_is_offered_by_name_too() -> None:
    raw = {"type": "web_fetch_20260209", "name": "web_fetch"}
    agent = Agent("clerk", model="anthropic:claude-sonnet-5", tools=[refund, WebSearch(), CodeExecution(), raw])
    narrowed = with_offered(agent, ("web_search",))
    assert (narrowed.tools, narrowed.server_tools, narrowed.raw_tools) == ((), (WebSearch(),), ())
    assert with_offered(agent, ("web_fetch_20260209",)).raw_tools == (raw,)
    assert with_offered(agent, ()).server_tools == ()
