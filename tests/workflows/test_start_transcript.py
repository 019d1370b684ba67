"""A conversation that begins with a transcript: in any of the four formats, or as Messages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from everturn import Client, Message, Text, ToolCall, ToolResult
from everturn.errors import Refused
from everturn.formats import to_anthropic, to_gemini, to_openai_chat, to_openai_responses
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting, nowhere

Scripted = Callable[..., ScriptedModel]

SAID: tuple[Message, ...] = (
    Message.user("What is order 81?"),
    Message(role="assistant", parts=(ToolCall(call_id="call_81abc", name="look_up", arguments={"order": "81"}),)),
    Message(role="tool", parts=(ToolResult(call_id="call_81abc", name="look_up", content=(Text(text="a lamp"),)),)),
    Message(role="assistant", parts=(Text(text="A lamp."),)),
)
AS_JSON = [json.loads(message.model_dump_json()) for message in SAID]
PLAIN = [{"role": "user", "content": "What is order 81?"}, {"role": "assistant", "content": "A lamp."}]


@pytest.mark.parametrize(
    "write",
    [lambda said: said, lambda _: AS_JSON, to_openai_chat, to_openai_responses, to_anthropic, to_gemini],
    ids=["messages", "json", "chat", "responses", "anthropic", "gemini"],
)
async def test_the_model_is_shown_what_was_said_before(
    client: Client, scripted: Scripted, write: Callable[[Any], Any], cached_conversations: int
) -> None:
    model = scripted(lambda _: "It was 20 EUR.")
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "What did it cost?", transcript=write(SAID))
        outcome = await conversation.outcome()
        transcript = await conversation.transcript()
    assert (outcome.status, outcome.text, outcome.turns) == ("completed", "It was 20 EUR.", 1)
    user, called, result, said, asked = model.requests[0]["messages"]
    assert [one["role"] for one in (user, called, result, said, asked)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    (call,) = called["tool_calls"]
    assert (call["function"]["name"], result["tool_call_id"], result["content"]) == ("look_up", call["id"], "a lamp")
    assert (said["content"], asked["content"]) == ("A lamp.", "What did it cost?")
    assert [message.role for message in transcript] == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_it_goes_on_after_its_end_with_all_that_was_said(client: Client, scripted: Scripted) -> None:
    model = scripted(lambda messages: f"{len(messages)} messages.")
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "And now?", transcript=PLAIN)
        assert await conversation.reply() == "3 messages."
        await conversation.outcome()
        again = await client.send(agent, "Still there?", id=conversation.id)
        assert await again.reply() == "5 messages."
        await again.outcome()


@pytest.mark.parametrize(
    ("transcript", "match"),
    [
        ([{"role": "system", "content": "Be brief."}, *PLAIN], r"system message.*Agent\(instructions=\)"),
        ([SAID[2]], r"'call_81abc' of look_up.*no earlier message"),
        ([{"said": "hello"}], r"item 0 is \{'said': 'hello'\}, which is not a message in any known format"),
        ([{"role": "poet", "content": "hello"}], "can't be read"),
        ([SAID[0], {"role": "user", "content": "hello"}], "item 1 is not a Message"),
        ([Message.user(os.urandom(600_000).hex())], "the limit is"),
    ],
    ids=["system", "lone result", "no format", "no role", "a mixture", "too large"],
)
async def test_what_can_not_begin_a_conversation_is_refused_with_the_cure(transcript: Any, match: str) -> None:
    with pytest.raises(Refused, match=match):
        await nowhere().start("clerk", "Hello", transcript=transcript)
