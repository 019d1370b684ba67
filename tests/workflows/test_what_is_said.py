"""Messages: each is taken as it was meant, or refused before it is sent; none is passed over or lost in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError

from everturn import Client, Image, Message, Text, tool
from everturn.client.messages import message_payload
from everturn.errors import Refused, Stalled
from everturn.records import Document, Thinking, ToolResult
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.waiting import WAIT_SECONDS, eventually

Scripted = Callable[..., ScriptedModel]

PIXEL = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("message", "message_id", "why"),
    [
        ("Hi", "x" * 501, "message_id: String should have at most 500 characters"),
        ("Hi", 7, "message_id: Input should be a valid string"),
        ("", "1", "The message has no parts"),
        ("  \n", "1", "The message is empty"),
        ([], "1", "The message has no parts"),
        (7, "1", "can't be sent: 7"),
        ([7], "1", "can't be sent: 7"),
        ({"role": "user", "content": "Hi"}, "1", "can't be sent: {'role'"),
        (Message(role="assistant", parts=(Text(text="Hi"),)), "1", "The message has the role 'assistant'"),
        ([ToolResult(call_id="a")], "1", "can't be sent"),
        ([Thinking(text="hm")], "1", "can't be sent"),
        ([{"type": "input_file", "file_id": "file-1"}], "1", "A file id works with one provider"),
        ([{"type": "document", "source": {"type": "file", "file_id": "f"}}], "1", "file id works"),
        (
            [{"kind": "document", "url": "http://x", "file_id": "f"}],
            "1",
            "fields that document doesn't have: 'file_id'",
        ),
        ([{"kind": "video", "url": "http://x"}], "1", "no parts of the kind 'video'"),
        ([{"kind": "image"}], "1", "either data= .* or url="),
        (["Hi"] * 1_001, "1", "The message has 1,001 parts; the limit is 1,000"),
        ([Text(text="Hi", extra={"cache_control": {}})], "1", 'Name the provider: Message.role="user"'),
        ([{"type": "text", "text": "Hi", "cache_control": {}}], "1", "which only one provider can read"),
    ],
)
async def test_what_a_conversation_would_pass_over_is_refused_before_it_is_sent(
    client: Client, message: Any, message_id: Any, why: str
) -> None:
    with pytest.raises(Refused, match=why):
        await client.conversation("nobody").send(message, message_id=message_id)
    with pytest.raises(Refused, match=why):
        await client.send("clerk", message, id="nobody", message_id=message_id)
    if message:
        with pytest.raises(Refused, match=why):
            await client.start("clerk", message, message_id=message_id)


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ("Hi", [Text(text="Hi")]),
        (["Hi"], [Text(text="Hi")]),
        (Text(text="Hi"), [Text(text="Hi")]),
        (Message.user("Hi"), [Text(text="Hi")]),
        ([{"kind": "image", "url": "http://x"}], [Image(url="http://x")]),
        ([{"type": "image_url", "image_url": {"url": "http://x"}}], [Image(url="http://x")]),
        (
            (
                {"type": "text", "text": "Hear:"},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            ),
            [Text(text="Hear:"), Document(data="AAAA", media_type="audio/mp3")],
        ),
        (iter([Text(text="a"), Image(data=PIXEL, media_type="image/png")]), None),
    ],
)
def test_what_programs_have_at_hand_is_taken(message: Any, parts: list[Any] | None) -> None:
    sent = message_payload(message, message_id="1").as_message()
    assert sent.role == "user"
    assert list(sent.parts) == (parts or [Text(text="a"), Image(data=PIXEL, media_type="image/png")])


async def test_a_users_message_is_taken_wherever_a_text_is(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        assert (await client.run(agent, Message.user("x"))).text == "One."
        extra = Message(role="user", parts=(Text(text="x", extra={"cache_control": {}}),), provider="anthropic")
        conversation = await client.start(agent, extra, keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "One."
        await conversation.send(extra)
        assert await conversation.reply() == "Two."
        said = [message for message in await conversation.transcript() if message.role == "user"]
        assert said == [extra, extra], "with what its provider is to read"


NOT_FOR_USERS: list[dict[str, Any]] = [
    {"kind": "tool_call", "call_id": "x", "name": "pay"},
    {"kind": "tool_result", "call_id": "x", "name": "pay", "content": [{"kind": "text", "text": "paid"}]},
    {"kind": "thinking", "text": "hm"},
    {"kind": "opaque", "data": {"type": "image"}},
    {"kind": "server_tool_use", "name": "web_search", "data": {}},
]


@pytest.mark.parametrize("part", NOT_FOR_USERS, ids=lambda part: part["kind"])
async def test_a_part_that_no_user_may_send_is_refused_on_the_wire_too(
    client: Client, scripted: Scripted, part: dict[str, Any]
) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    why = f"A user's message has no parts of the kind {part['kind']!r}. It has text, image, document."
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "One."
        handle = client.temporal.get_workflow_handle(conversation.id)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("message", {"parts": [{"kind": "text", "text": "2"}, part]})
        assert why in str(refused.value.cause)
        await handle.signal("message", {"parts": [part]})
        await conversation.send("2")
        assert await conversation.reply() == "Two."
        assert [message.text for message in await conversation.transcript()] == ["1", "One.", "2", "Two."]
        started = await client.temporal.start_workflow(
            "Conversation",
            {"agent": "clerk", "message": [part]},
            id=f"{conversation.id}-2",
            task_queue=client.task_queue,
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await started.result()
        assert why.removesuffix(".") in str(failed.value.cause)


# ---------------------------------------------------------------- while it closes


@pytest.mark.parametrize(
    ("by", "keep_open"),
    [("the conversation", None), ("the client", timedelta(minutes=1)), ("a signal twice", None)],
)
async def test_what_is_said_while_a_conversation_closes_takes_it_up_again(
    client: Client, scripted: Scripted, cached_conversations: int, by: str, keep_open: timedelta | None
) -> None:
    go = asyncio.Event()

    @tool
    async def look() -> str:
        await asyncio.wait_for(go.wait(), WAIT_SECONDS)
        return "seen"

    agent = agent_on(scripted([call("look"), "Here again."]), tools=[look])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Look", keep_open=keep_open)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await eventually(lambda: activity_runs(handle, "look"))
        await conversation.close()
        match by:
            case "the conversation":
                await conversation.send("More", message_id="m1")
            case "the client":
                await client.send(agent, "More", id=conversation.id, message_id="m1")
            case _:
                for _ in range(2):
                    await handle.signal("message", {"text": "More", "message_id": "m1"})
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("message", {"text": "And more"})
        assert "closing" in str(refused.value.cause)
        go.set()
        assert await conversation.reply() == "Here again."
        if keep_open:
            await conversation.close()
        outcome = await conversation.outcome()
    said = [message.text for message in await conversation.transcript() if message.role == "user"]
    assert said == ["Look", "More"]
    assert (outcome.status, outcome.tail) == ("completed", ())


async def activity_runs(handle: Any, name: str) -> bool:
    pending = (await handle.describe()).raw_description.pending_activities
    return any(entry.activity_type.name == name for entry in pending)


async def test_what_is_said_while_a_stalled_conversation_closes_is_answered(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """Both come in one workflow task: the message behind the close."""
    agent = agent_on(scripted(lambda messages: fail(401) if len(messages) == 1 else "Both answered."))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi")
        with pytest.raises(Stalled):
            await conversation.reply()
    handle = client.temporal.get_workflow_handle(conversation.id)
    await handle.signal("close", {})
    await conversation.send("More")
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert (await conversation.outcome()).text == "Both answered."
    said = [message.text for message in await conversation.transcript() if message.role == "user"]
    assert said == ["Hi", "More"]
