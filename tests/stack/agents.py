"""The agent of `make stack`, if EVERTURN_AGENTS names no other: it asks a scripted model, and needs no key."""

from __future__ import annotations

from itertools import count
from typing import Any

from everturn import Agent, tool
from everturn.testing import Reply, call, fail


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


clerk = Agent("clerk", model="scripted:demo", tools=[get_weather])


asked = count(1)


def script(messages: list[dict[str, Any]]) -> Reply | str | list[Any]:
    """The model's: asks for the weather, and says it. Now and then it is overloaded, and asked again."""
    if not next(asked) % 7:
        return fail(503, headers={"retry-after": "0"})
    if messages[-1]["role"] == "tool":
        return f"It is {messages[-1]['content']}."
    return [call("get_weather", {"city": "Paris"})]
