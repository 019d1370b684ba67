"""The loop, on a real server, against a real model server; each test also with every workflow task replaying."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, Image, Limits, ToolContext, ToolFailed, tool
from everturn.errors import AlreadyStarted, Ended, NotFound, Refused, Stalled
from everturn.testing import ScriptedModel, call, fail, say
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


async def test_a_conversation_without_tools_is_one_turn(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(["Hello to you."]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        outcome = await client.run(agent, "Hello")
    assert (outcome.status, outcome.text, outcome.turns, outcome.tool_calls) == ("completed", "Hello to you.", 1, 0)
    assert outcome.usage.input_tokens > 0


async def test_results_come_in_the_order_of_the_calls_and_not_of_their_ends(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    first_may_end = asyncio.Event()

    @tool
    async def wait() -> str:
        await first_may_end.wait()
        return "first"

    @tool
    def hurry() -> str:
        loop.call_soon_threadsafe(first_may_end.set)
        return "second"

    loop = asyncio.get_running_loop()
    agent = agent_on(scripted([[call("wait"), call("hurry")], "Done."]), tools=[wait, hurry])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await conversation.outcome()
        transcript = await conversation.transcript()
    assert [result.text for result in results_of(transcript)] == ["first", "second"]
    assert [message.role for message in transcript] == ["user", "assistant", "tool", "assistant"]


async def test_an_open_conversation_idles_takes_messages_and_closes(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(["One.", "Two.", "Three."]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "First", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "One."
        assert (await conversation.status()).state == "idle"
        await conversation.send("Second")
        assert await conversation.reply() == "Two."
        assert await conversation.reply() == "Two.", "nothing new was said"
        await conversation.close()
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.turns) == ("completed", 2)
    assert [message.text for message in await conversation.transcript()] == ["First", "One.", "Second", "Two."]
    with pytest.raises(Ended, match="is over"):
        await conversation.send("Third")


async def test_an_open_conversation_ends_when_nobody_says_anything(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "First", keep_open=timedelta(milliseconds=50))
        assert (await conversation.outcome()).status == "completed"


async def test_a_message_in_mid_turn_is_taken_at_the_next_turn_boundary_after_the_results(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    running, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        running.set()
        await may_end.wait()
        return "worked"

    agent = agent_on(scripted([call("work"), "Done with both."]), tools=[work])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await running.wait()
        await conversation.send("And hurry")
        may_end.set()
        assert await conversation.reply() == "Done with both."
    roles = [(message.role, message.text) for message in await conversation.transcript()]
    assert roles == [
        ("user", "Go"),
        ("assistant", ""),
        ("tool", ""),
        ("user", "And hurry"),
        ("assistant", "Done with both."),
    ]


async def test_a_repeated_message_id_is_taken_once_even_after_the_end(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two.", "Three."]))
    async with hosting(client, agent):
        for _ in range(2):
            conversation = await client.send(agent, "Hello", id=f"{client.task_queue}-chat", message_id="m1")
            assert await conversation.reply() == "One."
            assert (await conversation.outcome()).status == "completed"
        await client.send(agent, "Again", id=conversation.id, message_id="m2")
        assert await conversation.reply() == "Two."
    assert [message.text for message in await conversation.transcript()] == ["Hello", "One.", "Again", "Two."]


async def test_what_the_model_can_fix_is_told_to_it(
    client: Client, scripted: Scripted, cached_conversations: int, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def fails(how: str) -> str:
        raise ToolFailed("no such order") if how == "told" else KeyError("order")

    @tool
    def picture() -> Image:
        return Image(data="aGk=", media_type="image/png")

    calls = [
        call("nothing_like_it", {"a": 1}),
        call("fails", {"why": "x"}),
        call("fails", '{"how": "to'),
        call("fails", {"how": "told"}),
        call("fails", {"how": "raise"}),
        call("picture"),
    ]
    agent = agent_on(scripted([calls, "I see."]), tools=[fails, picture])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "I see."
        results = results_of(await conversation.transcript())
    assert [result.is_error for result in results] == [True, True, True, True, True, False]
    assert "There is no tool 'nothing_like_it'. The tools are: fails, picture." in results[0].text
    assert "how: Field required" in results[1].text
    assert "not a JSON object" in results[2].text
    assert results[3].text == "no such order"
    assert results[4].text == "KeyError: 'order'"
    logged = "error='KeyError' at='fails, in test_conversation.py:"
    assert (caplog.text.count("tool.raised"), caplog.text.count(logged)) == (1, 1), "ToolFailed is no surprise"
    assert results[5].content[0] == Image(data="aGk=", media_type="image/png")


async def test_a_tool_knows_its_call_and_has_one_idempotency_key(client: Client, scripted: Scripted) -> None:
    keys: list[str] = []

    @tool
    def pay(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return f"turn {context.turn}, attempt {context.attempt}"

    # A provider that counts its ids from zero in each reply.
    agent = agent_on(scripted([call("pay", id="0"), call("pay", id="0"), "Paid."]), tools=[pay])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Pay twice")
        await conversation.reply()
    assert keys[0] == f"{conversation.id}:{await conversation.latest_run()}:0"
    assert len(set(keys)) == 2


async def test_an_id_that_runs_is_not_started_again(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello", keep_open=timedelta(minutes=1))
        with pytest.raises(AlreadyStarted, match="is other work"):
            await client.start(agent, "Goodbye", id=conversation.id)
        await conversation.close()
        await conversation.outcome()


async def test_at_its_limit_the_model_concludes_without_tools(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool
    def again() -> str:
        return "again"

    def script(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
        return say("That is all.") if body.get("tool_choice") == "none" else call("again")

    model = scripted(script)
    agent = agent_on(model, tools=[again], limits=Limits(max_turns=50))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        outcome = await client.run(agent, "Go", limits=Limits(max_turns=3))
    assert (outcome.status, outcome.text, outcome.turns) == ("limit_reached", "That is all.", 4)
    assert outcome.reason == "the limit of 3 turns"
    assert "You have reached the limit of 3 turns" in str(model.requests[-1]["messages"][-1])


async def test_a_cancelled_workflow_ends_with_an_outcome_and_every_call_has_its_result(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool
    async def quick() -> str:
        return "quick"

    @tool(needs_approval=True)
    async def guarded() -> str:
        return "never"

    agent = agent_on(scripted([[call("quick"), call("guarded")], "never"]), tools=[quick, guarded])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        handle = client.temporal.get_workflow_handle(conversation.id)
        await eventually(lambda: _told(conversation, "quick"))
        await handle.cancel()
        outcome = await conversation.outcome()
        results = results_of(await conversation.transcript())
    assert outcome.status == "cancelled"
    assert [result.text for result in results] == ["quick", "This call was cut short: the workflow was cancelled."]


async def _told(conversation: Any, text: str) -> bool:
    """Whether a tool's result with this text is in the history."""
    history = await conversation._temporal.get_workflow_handle(conversation.id).fetch_history()
    written = f'"text":"{text}"'.encode()
    return any(
        written in payload.data
        for event in history.events
        for payload in event.activity_task_completed_event_attributes.result.payloads
    ) and bool((await conversation.status()).waiting)


async def test_a_provider_that_refuses_stalls_the_conversation_until_resumed(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    fixed = False

    def script(messages: list[dict[str, Any]]) -> Any:
        return say("At last.") if fixed else fail(400, body={"error": {"message": "bad things"}})

    agent = agent_on(scripted(script))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        with pytest.raises(Stalled, match="bad things"):
            await conversation.reply()
        status = await conversation.status()
        assert status.state == "stalled"
        assert status.cause is not None
        assert "bad things" in status.cause
        with pytest.raises(Refused, match=r"No call waits for a decision now\. `everturn show "):
            await conversation.approve()
        fixed = True
        await conversation.resume()
        assert await conversation.reply() == "At last."


async def test_a_busy_provider_is_asked_again_after_the_time_it_asks_for(client: Client, scripted: Scripted) -> None:
    answers = [
        fail(429, headers={"retry-after": "0.2"}),
        fail(503),
        fail(529, headers={"retry-after-ms": "100"}),
        "There.",
    ]
    asked: list[float] = []

    def script(messages: list[dict[str, Any]]) -> Any:
        asked.append(asyncio.run(_now()))
        return answers[len(asked) - 1]

    agent = agent_on(scripted(script))
    async with hosting(client, agent):
        assert (await client.run(agent, "Go")).text == "There."
    assert asked[1] - asked[0] >= 0.2
    assert asked[3] - asked[2] >= 0.1


async def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_status_needs_no_worker_once_the_conversation_is_over(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello")
        await conversation.outcome()
    status = await conversation.status()
    assert (status.state, status.turn) == ("done", 1)
    with pytest.raises(NotFound, match="There is no conversation 'nobody'"):
        await client.conversation("nobody").status()


async def test_pause_holds_the_next_turn(client: Client, scripted: Scripted, cached_conversations: int) -> None:
    running, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        running.set()
        await may_end.wait()
        return "worked"

    model = scripted([call("work"), "Done."])
    agent = agent_on(model, tools=[work])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await running.wait()
        await conversation.pause("lunch")
        with pytest.raises(Refused, match="already paused"):
            await conversation.pause()
        may_end.set()
        await eventually(lambda: _has_result(conversation))
        assert (await conversation.status()).state == "paused"
        assert len(model.requests) == 1
        await conversation.resume()
        assert await conversation.reply() == "Done."


async def _has_result(conversation: Any) -> bool:
    history = await conversation._temporal.get_workflow_handle(conversation.id).fetch_history()
    return any("worked" in str(event.activity_task_completed_event_attributes.result) for event in history.events)


@pytest.mark.parametrize("held_by", ["stall", "pause"])
async def test_a_conversation_that_is_held_up_can_be_closed_and_asks_no_model_again(
    client: Client, scripted: Scripted, held_by: str
) -> None:
    running, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        running.set()
        await may_end.wait()
        return "worked"

    model = scripted([fail(400)] if held_by == "stall" else [call("work"), "never"], order="arrival")
    agent = agent_on(model, tools=[work])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        if held_by == "pause":
            await running.wait()
            await conversation.pause()
            may_end.set()
            await eventually(lambda: _has_result(conversation))
        await eventually(lambda: _held(conversation))
        await conversation.close()
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason) == ("cancelled", "the conversation was closed before it was answered")
    assert len(model.requests) == 1
    assert [message.role for message in await conversation.transcript()][-1] == (
        "user" if held_by == "stall" else "tool"
    )


async def _held(conversation: Any) -> bool:
    return (await conversation.status()).state in ("stalled", "paused")


async def test_a_local_read_tool_costs_no_event_but_its_marker(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool(effect="read", timeout=timedelta(seconds=5), local=True)
    def look(number: int) -> str:
        if number == 1:
            raise ToolFailed("dark")
        return f"saw {number}"

    agent = agent_on(scripted([call("look", {"number": n}) for n in range(5)] + ["Done."]), tools=[look])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Look")
        assert await conversation.reply() == "Done."
        events = [event.kind async for event in conversation.events()]
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
    results = results_of(await conversation.transcript())
    assert [result.text for result in results] == ["saw 0", "dark", "saw 2", "saw 3", "saw 4"]
    assert events.count("tool_finished") == 5
    assert described.history_length <= 7 * 5 + 12
