"""`generate` and `generate_sync`: one reply without Temporal, over real connections on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everturn import Message, Model, Reply, Text, ToolResult, generate, generate_sync, tool
from everturn.errors import InvalidSetting
from everturn.providers import Delta, connections
from everturn.testing import ScriptedModel, call, say

Scripted = Callable[..., ScriptedModel]
EIGHT = ("openai", "anthropic", "google", "groq", "mistral", "deepseek", "moonshot", "xai")


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"21 degrees in {city}"


def on(model: ScriptedModel) -> Model:
    return Model("scripted:demo", base_url=model.base_url)


def test_the_sync_one_asks_without_an_event_loop_as_often_as_one_likes(scripted: Scripted) -> None:
    model = scripted(["One.", "One."])
    pieces: list[Delta] = []
    assert generate_sync(on(model), "Hello", on_delta=pieces.append).text == "One."
    assert "".join(piece.text for piece in pieces) == "One."
    assert generate_sync(on(model), ["Hello"]).text == "One."


async def test_the_sync_one_says_what_to_write_in_a_running_loop() -> None:
    with pytest.raises(InvalidSetting, match="await generate"):
        generate_sync("scripted:demo", "Hello")


async def test_pieces_come_while_the_model_speaks(scripted: Scripted) -> None:
    pieces: list[Delta] = []
    text = "A reply of more than one piece, which is long enough for two of them. " * 2
    reply = await generate(on(scripted([say(text, thinking="Hm.")])), "Hello", on_delta=pieces.append)
    await connections.aclose()
    assert reply.text == text
    assert "".join(piece.text for piece in pieces if piece.kind == "text") == text
    assert "".join(piece.text for piece in pieces if piece.kind == "thinking") == "Hm."
    assert len(pieces) > 2


async def test_results_go_back_as_pairs_with_their_calls(scripted: Scripted) -> None:
    def script(messages: list[dict[str, Any]]) -> Any:
        return (
            [call("get_weather", {"city": "Paris"}), call("get_weather", {"city": 7})] if len(messages) == 1 else "Ok."
        )

    model = scripted(script)
    reply: Reply = await generate(on(model), "Weather?", tools=[get_weather])
    paris, seven = reply.tool_calls
    pairs = [(paris, get_weather("Paris")), (seven, ValueError("no such city"))]
    final = await generate(on(model), ["Weather?", reply, *pairs], tools=[get_weather])
    await connections.aclose()
    assert final.text == "Ok."
    results = [message for message in model.requests[1]["messages"] if message["role"] == "tool"]
    assert [result["content"] for result in results] == ["21 degrees in Paris", "Error: ValueError: no such city"]


@pytest.mark.parametrize("provider", EIGHT)
async def test_a_result_without_its_call_is_refused_before_anything_is_sent(provider: str) -> None:
    """On every provider it would be dropped, and the model would answer without it."""
    lone = Message(role="tool", parts=(ToolResult(call_id="c1", name="get_weather", content=(Text(text="21"),)),))
    with pytest.raises(
        InvalidSetting, match=r"'c1' of get_weather.*no earlier message has that call.*\(call, result\)"
    ):
        await generate(f"{provider}:m", [Message.user("Weather?"), lone], tools=[get_weather])


async def test_what_is_no_message_is_refused_with_the_formats_that_are_read() -> None:
    chat: Any = {"role": "user", "content": "Hello"}
    with pytest.raises(InvalidSetting, match=r"messages\[0\] is .*from_openai_chat"):
        await generate("scripted:demo", [chat])
    with pytest.raises(InvalidSetting, match="messages=7"):
        await generate("scripted:demo", 7)  # type: ignore[arg-type]


def test_many_threads_may_ask_at_once(scripted: Scripted) -> None:
    model = scripted(lambda _: "One.")

    async def both() -> list[Reply]:
        return await asyncio.gather(*(asyncio.to_thread(generate_sync, on(model), "Hello") for _ in range(4)))

    assert [reply.text for reply in asyncio.run(both())] == ["One."] * 4
