"""What `make peers` asks models, whoever serves them."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from everturn import Message, Model, ModelSettings, generate, tool
from everturn.errors import ProviderError

KEY = "sk-not-a-real-key-0000"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Weather(BaseModel):
    degrees: int


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"21 degrees in {city}"


def set_keys() -> None:
    """A key for each of our prefixes: the servers take any."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENRESPONSES_API_KEY"):
        os.environ[name] = KEY


async def ask_with_a_call(model: Model, settings: ModelSettings, *, output_tokens: int = 2) -> None:
    """A call, its result, an answer."""
    question = Message.user("How is the weather in Paris?")
    reply = await generate(model, [question], tools=[get_weather], settings=settings)
    calls = [(call.name, dict(call.arguments)) for call in reply.tool_calls]
    assert calls == [("get_weather", {"city": "Paris"})], f"the calls are {calls}, the text {reply.text!r}"
    answer = await generate(
        model, [question, reply, (reply.tool_calls[0], "21 degrees")], tools=[get_weather], settings=settings
    )
    assert answer.text == "Hello there.", f"the answer is {answer.text!r}"
    assert answer.usage.output_tokens == output_tokens, f"the usage is {answer.usage}"


async def error_of(
    model: Model, message: Message, kind: type[ProviderError], extra: dict[str, Any] | None = None
) -> ProviderError:
    """The error for the message, which has to be of this kind."""
    error: ProviderError | None = None
    try:
        settings = ModelSettings(stream=False, max_output_tokens=8, extra=extra or {})
        await generate(model, [message], settings=settings)
    except ProviderError as caught:
        error = caught
    assert error is not None, "it is a reply"
    assert type(error) is kind, f"it is {type(error).__name__}: {error}"
    return error
