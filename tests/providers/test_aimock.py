"""Whole tool conversations in all four protocols against somebody else's server, over HTTP: its ideas of the formats,
its errors and its cut streams. Once with `ask` and a loop of ten lines, once with a worker on Temporal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest

from everturn import Agent, Client, Model, ModelSettings, Patience, tool
from everturn.errors import ConnectionFailed, InvalidReply, ProviderError, RateLimited, Unavailable
from everturn.providers import ToolSpec, ask, connections
from everturn.providers.base import Delta, Request
from everturn.records import Message, Reply, Text, ToolResult
from tests.providers import aimock
from tests.support.agents import hosting

PROTOCOLS = {
    "openai-chat": ("gpt-5.5", "/v1", "OPENAI_API_KEY"),
    "openai": ("gpt-5.5", "/v1", "OPENAI_API_KEY"),
    "anthropic": ("claude-sonnet-4-5", "", "ANTHROPIC_API_KEY"),
    "google": ("gemini-2.5-flash", "", "GEMINI_API_KEY"),
}

CALLS = [
    {"name": "get_weather", "arguments": '{"city":"Paris"}', "id": "call_paris"},
    {"name": "get_weather", "arguments": '{"city":"Rome \\"Urbe\\" \\u2028 ü"}', "id": "call_rome"},
]
ASKING = {"userMessage": "weather", "hasToolResult": False}
RATE_LIMITED = {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}

FIXTURES: list[dict[str, Any]] = [
    {
        "match": ASKING | {"sequenceIndex": 0},
        "response": {"error": RATE_LIMITED, "status": 429, "retryAfter": 1},
    },
    {
        "match": ASKING | {"sequenceIndex": 1},
        "response": {"error": {"message": "Overloaded", "type": "overloaded_error"}, "status": 529},
    },
    {
        "match": ASKING | {"sequenceIndex": 2},
        "response": {"content": "Let me look.", "toolCalls": CALLS},
        "truncateAfterChunks": 3,
    },
    {
        "match": ASKING,
        "response": {"content": "Let me look up both.", "toolCalls": CALLS},
    },
    {
        "match": {"userMessage": "weather", "toolResultContains": "no such city"},
        "response": {"content": "Paris is fine; Rome there is none."},
    },
]

TOOL = ToolSpec(
    "get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)

every_protocol = pytest.mark.parametrize("provider", PROTOCOLS)


@pytest.fixture(autouse=True)
async def _connections() -> AsyncIterator[None]:
    yield
    await connections.aclose()


def model_at(address: str, provider: str, monkeypatch: pytest.MonkeyPatch) -> Model:
    name, path, key = PROTOCOLS[provider]
    monkeypatch.setenv(key, "sk-test")
    return Model(f"{provider}:{name}", base_url=f"{address}{path}")


@every_protocol
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_tool_conversation_comes_to_its_end_through_every_failure(
    provider: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[ProviderError] = []
    deltas: list[Delta] = []

    async def reply_to(*messages: Message) -> Reply:
        while True:
            request = Request(
                model=model,
                messages=messages,
                instructions="Be brief.",
                tools=[TOOL],
                settings=ModelSettings(stream=stream),
            )
            deltas.clear()
            try:
                return await ask(request, on_delta=deltas.append)
            except ProviderError as error:
                failed.append(error)

    fixtures = FIXTURES if stream else [one for one in FIXTURES if "truncateAfterChunks" not in one]
    with aimock.running(fixtures) as address:
        model = model_at(address, provider, monkeypatch)
        question = Message.user("What is the weather?")
        calling = await reply_to(question)
        assert calling.text == "Let me look up both."
        assert calling.stop == "tool_calls"
        assert [(call.name, call.arguments) for call in calling.tool_calls] == [
            ("get_weather", {"city": "Paris"}),
            ("get_weather", {"city": 'Rome "Urbe" \u2028 ü'}),
        ]
        if stream:
            assert "".join(delta.text for delta in deltas if delta.kind == "text") == calling.text
        paris, rome = calling.tool_calls
        results = (
            ToolResult(call_id=paris.call_id, name=paris.name, content=(Text(text="14 degrees"),)),
            ToolResult(call_id=rome.call_id, name=rome.name, content=(Text(text="no such city"),), is_error=True),
        )
        last = await reply_to(question, calling.message, Message(role="tool", parts=results))
        assert (last.text, last.stop, last.tool_calls) == ("Paris is fine; Rome there is none.", "end", ())
        sent = aimock.received(address)[-1]["messages"]
    assert [role for role, _ in groupby(sent, itemgetter("role"))] == ["system", "user", "assistant", "tool"]
    assert "14 degrees" in next(message["content"] for message in sent if message["role"] == "tool")
    assert [type(error) for error in failed[:2]] == [RateLimited, Unavailable]
    assert (failed[0].retry_after, failed[1].status) == (1.0, 529)
    assert all(error.retry for error in failed)
    assert len(failed) == (3 if stream else 2)
    assert all(isinstance(error, InvalidReply | ConnectionFailed) for error in failed[2:])


@every_protocol
async def test_a_worker_brings_a_tool_conversation_to_its_end(
    provider: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    @tool
    def get_weather(city: str) -> str:
        """The weather."""
        ran.append(city)
        if city != "Paris":
            raise ValueError("no such city")
        return "14 degrees"

    with aimock.running(FIXTURES) as address:
        model = model_at(address, provider, monkeypatch)
        patience = Patience(max_retry_delay=timedelta(seconds=1))
        agent = Agent("forecaster", model=model, instructions="Be brief.", tools=[get_weather], patience=patience)
        async with hosting(client, agent):
            outcome = await client.run(agent, "What is the weather?")
            turns = len(aimock.received(address))
    assert (outcome.status, outcome.text) == ("completed", "Paris is fine; Rome there is none.")
    assert (outcome.turns, outcome.tool_calls) == (2, 2)
    assert sorted(ran) == ["Paris", 'Rome "Urbe" \u2028 ü']
    assert turns == 5
