"""Calls that the client runs and answers: a tool of its own, a manual loop, a question to a person."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from everturn import Approvals, Client, Conversation, Image, Text, ToolCall, ToolContext, ToolFailed, ask_user, tool
from everturn.errors import InvalidTool
from everturn.payloads import WaitingCall
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

LOOK: dict[str, Any] = {
    "name": "look",
    "description": "Look at the screen.",
    "parameters": {"type": "object", "properties": {"screen": {"type": "integer"}}},
}
PICTURE = Image(data="aGVsbG8=", media_type="image/png")


def look(screen: int = 1) -> str:
    return f"a cat on screen {screen}"


async def look_later(screen: int, context: ToolContext) -> list[Text | Image]:
    return [Text(text=f"{context.call_id}: "), PICTURE]


def stumble(screen: int) -> str:
    raise RuntimeError(f"no screen {screen}")


def fail(screen: int) -> str:
    raise ToolFailed("It is dark.")


async def the_waiting_call(conversation: Conversation) -> WaitingCall:
    await waiting(conversation)
    (call,) = (await conversation.status()).waiting
    return call


@pytest.mark.parametrize(
    ("function", "arguments", "told", "is_error"),
    [
        (look, {"screen": 2}, "a cat on screen 2", False),
        (tool(look, name="another"), {"screen": 2}, "a cat on screen 2", False),
        (look_later, {"screen": 2}, "l: ", False),
        (stumble, {"screen": 2}, "RuntimeError: no screen 2", True),
        (fail, {"screen": 2}, "It is dark.", True),
        (look, {"screen": "two"}, "screen: Input should be a valid integer", True),
        (lambda: [Text(text=f"{number} ") for number in range(1_001)], {}, "999 \n1000 ", False),
        (lambda: "x" * 300_000, {}, "[Cut: 200,000 of 300,000 characters are shown.", False),
        (
            lambda: {1, object},
            {},
            "do not call it again to get its result, which can't be shown. The tool returned a set",
            True,
        ),
    ],
)
async def test_a_call_is_run_here_and_answered_in_one_go(
    client: Client, scripted: Scripted, function: Any, arguments: dict[str, Any], told: str, is_error: bool
) -> None:
    made = tool(function, name="look") if getattr(function, "__name__", "") == "<lambda>" else function
    agent = agent_on(scripted([call("look", arguments, id="l"), "Done."]), tools=[{**LOOK, "parameters": {}}])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        given = await conversation.call_tool(await the_waiting_call(conversation), made)
        assert await conversation.reply() == "Done."
        (result,) = results_of(await conversation.transcript())
    assert given is not None
    assert result == given.model_copy(update={"decision": result.decision})
    assert told in result.text
    assert (result.is_error, result.decision and result.decision.by) == (is_error, "tester")
    assert (PICTURE in result.content) == (function is look_later)


async def test_somebody_else_may_answer_first(client: Client, scripted: Scripted) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def look_long(screen: int) -> str:
        begun.set()
        may_end.wait(60)
        return "too late"

    agent = agent_on(scripted([call("look", {"screen": 1}, id="l"), "Done."]), tools=[LOOK])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        running = asyncio.create_task(conversation.call_tool(await the_waiting_call(conversation), look_long))
        await eventually(begun.is_set)
        await conversation.answer("l", "a dog")
        await conversation.outcome()
        may_end.set()
        assert await running is None
        (result,) = results_of(await conversation.transcript())
    assert result.text == "a dog"


async def test_a_call_without_a_function_is_refused_before_anything_runs(client: Client) -> None:
    with pytest.raises(InvalidTool, match="'ask_user' has no function to run here"):
        await client.conversation("c").call_tool(ToolCall(call_id="l", name="ask_user"), ask_user)


async def test_a_client_serves_its_tools_until_the_reply(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """Two calls at once, one that waited before, and one that a worker runs."""
    together = threading.Barrier(2, timeout=180)
    names: list[str] = []

    @tool(runs_on="client")
    def open_door(number: int) -> str:
        names.append(threading.current_thread().name)
        if number:
            together.wait()
        return f"door {number} is open"

    @tool
    def knock() -> str:
        return "Come in."

    doors = [call("open_door", {"number": number}, id=f"d{number}") for number in (1, 2)]
    script = [call("open_door", {"number": 0}, id="d0"), [*doors, call("knock")], "In."]
    agent = agent_on(scripted(script), tools=[open_door, knock])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go in", keep_open=timedelta(minutes=5))
        await waiting(conversation)
        assert await conversation.run_tools([open_door]) == "In."
        assert await conversation.run_tools([open_door]) == "In.", "nothing runs a second time"
        told = [result.text for result in results_of(await conversation.transcript())]
        await conversation.close()
        await conversation.outcome()
    assert told == ["door 0 is open", "door 1 is open", "door 2 is open", "Come in."]
    assert len(names) == 3
    assert threading.main_thread().name not in names


async def test_a_server_of_tools_fails_as_reply_does(client: Client, scripted: Scripted) -> None:
    from everturn.errors import NotFound, Stalled
    from everturn.testing import fail as failing

    with pytest.raises(NotFound):
        await client.conversation("nobody").run_tools([look])
    agent = agent_on(scripted([failing(401)]), tools=[LOOK])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        with pytest.raises(Stalled):
            await conversation.run_tools([look])
        await conversation.close()


@pytest.mark.parametrize("by", ["tool", "agent"])
async def test_a_call_that_nobody_answers_times_out_and_the_model_is_told(
    client: Client, scripted: Scripted, cached_conversations: int, by: str
) -> None:
    second = timedelta(seconds=1)
    mine = tool(look, runs_on="client", timeout=second) if by == "tool" else LOOK
    approvals = Approvals(expire_after=timedelta(hours=1) if by == "tool" else second, on_expiry="approve")
    agent = agent_on(scripted([call("look", {"screen": 1}, id="l"), "Done."]), tools=[mine], approvals=approvals)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Look")
        assert await conversation.reply() == "Done."
        (result,) = results_of(await conversation.transcript())
        assert await conversation.call_tool(ToolCall(call_id="l", name="look"), look) is None
    assert (result.is_error, result.text) == (True, "look timed out: no answer came within 0:00:01.")


async def test_a_manual_loop_hands_every_call_back_and_runs_nothing(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    ran: list[str] = []

    @tool(needs_approval=True)
    def refund(order_id: str) -> str:
        ran.append(threading.current_thread().name)
        return f"refunded {order_id}"

    calls = [call("refund", {"order_id": "81"}, id="a"), call("refund", "{no json", id="b"), call("no_such", id="c")]
    agent = agent_on(scripted([calls, "Done."]), tools=[refund], loop="manual")
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund")
        events = conversation.events()
        wanted = {}
        async for event in events:
            if event.kind == "answer_requested":
                wanted[event.call.call_id] = event.call
            if len(wanted) == 3:
                break
        status = await conversation.status()
        assert (status.state, status.waiting[0].why) == (
            "awaiting_answer",
            "the loop is manual: send refund's result as the answer",
        )
        assert not ran
        await conversation.call_tool(wanted["a"], refund)
        await conversation.call_tool(wanted["b"], refund)
        await conversation.answer("c", "There is no such tool.", is_error=True)
        assert await conversation.reply() == "Done."
        results = results_of(await conversation.transcript())
    assert len(ran) == 1
    assert [(result.call_id, result.is_error) for result in results] == [("a", False), ("b", True), ("c", True)]
    assert "order_id" in results[1].text


async def test_the_model_asks_the_user_and_hears_the_answer(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    question = {"question": "Which lamp?", "choices": ["the red one", "the blue one"]}
    model = scripted([[call("ask_user", question, id="q"), call("ask_user", {"question": "When?"}, id="r")], "Sent."])
    agent = agent_on(model, tools=[ask_user])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Send the lamp")
        await waiting(conversation, calls=2)
        status = await conversation.status()
        assert status.state == "awaiting_answer"
        assert [waiting_call.why for waiting_call in status.waiting] == [
            "Which lamp? (the red one / the blue one)",
            "When?",
        ]
        assert [waiting_call.expires_at for waiting_call in status.waiting] == [None, None]
        await conversation.answer("q", "the red one")
        await conversation.answer("r", "today")
        assert await conversation.reply() == "Sent."
    told = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert told == ["the red one", "today"]
    (offered,) = model.requests[0]["tools"]
    assert offered["function"]["parameters"]["required"] == ["question"]
    assert "Ask the user" in offered["function"]["description"]


async def test_questions_that_make_no_sense_go_back_to_the_model(client: Client, scripted: Scripted) -> None:
    agent = agent_on(
        scripted([call("ask_user", {"choices": ["a"]}), "Well."]),
        tools=[replace(ask_user, timeout=timedelta(seconds=9))],
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Ask")
        assert await conversation.reply() == "Well."
        (result,) = results_of(await conversation.transcript())
    assert "question: Field required" in result.text


@pytest.mark.parametrize(
    ("content", "told", "is_error"),
    [
        (
            [{"type": "text", "text": "See:"}, {"type": "image", "data": PICTURE.data, "mimeType": "image/png"}],
            2,
            False,
        ),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE.data}}, 1, False),
        ({"content": [{"type": "text", "text": "no screen"}], "isError": True}, 1, True),
    ],
)
async def test_an_answer_of_content_blocks_is_the_parts_that_they_mean(
    client: Client, scripted: Scripted, content: Any, told: int, is_error: bool
) -> None:
    agent = agent_on(scripted([call("look", {"screen": 1}, id="l"), "Done."]), tools=[LOOK])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        await waiting(conversation)
        await conversation.answer("l", content)
        await conversation.outcome()
        (result,) = results_of(await conversation.transcript())
    assert (len(result.content), result.is_error) == (told, is_error)
    assert is_error or result.content[-1] == PICTURE


@pytest.mark.parametrize(
    "payload",
    [
        {"call_id": "l"},
        {"call_id": "l", "content": "x", "parts": [{"kind": "text", "text": "y"}]},
        {"call_id": "l", "parts": []},
        {"call_id": "l", "parts": [{"kind": "thinking", "text": "y"}]},
    ],
)
async def test_an_answer_has_content_or_parts(client: Client, scripted: Scripted, payload: dict[str, Any]) -> None:
    agent = agent_on(scripted([call("look", {"screen": 1}, id="l"), "Done."]), tools=[LOOK])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        await waiting(conversation)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("answer", payload)
        await handle.signal("answer", {"call_id": "l", "content": None})
        await conversation.outcome()
        (result,) = results_of(await conversation.transcript())
    assert result.text == "null"


async def test_a_result_that_the_conversation_never_takes_is_told_and_not_offered_for_ever(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(run_bytes=45_000)
    agent = agent_on(scripted([[call("look", id="a"), call("look", id="b")], "Done."]), tools=[LOOK])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        await waiting(conversation, calls=2)
        for waits in (await conversation.status()).waiting:  # one after the other: together, both would be taken
            await conversation.call_tool(waits, tool(lambda: "x" * 30_000, name="look"))
        assert await conversation.reply() == "Done."
        taken, refused = results_of(await conversation.transcript())
    assert (len(taken.text), taken.is_error, refused.is_error) == (30_000, False, True)
    assert "The tool ran, but its result could not be sent: It has 30," in refused.text
