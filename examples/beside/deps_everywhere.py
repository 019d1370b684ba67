"""What the worker has opened, in the instructions, in a tool and in the check of the answer."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import BaseModel, ValidationInfo, field_validator

from everturn import Agent, Client, ToolContext, TurnContext, Worker, tool


@dataclass
class Deps:
    api_key: str
    http: httpx.Client


@asynccontextmanager
async def open_deps() -> AsyncIterator[Deps]:
    with httpx.Client(base_url=os.environ.get("JOKES_URL", "https://example.com")) as http:
        yield Deps("foobar", http)


def instructions(context: TurnContext[Deps]) -> str:
    return f"Prompt: {context.deps.http.get('/').raise_for_status().text}"


@tool(effect="read")
def get_joke_material(subject: str, context: ToolContext[Deps]) -> str:
    """Something to laugh about."""
    key = {"Authorization": f"Bearer {context.deps.api_key}"}
    return context.deps.http.get("/jokes", params={"subject": subject}, headers=key).raise_for_status().text


class Joke(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def is_a_joke(cls, text: str, info: ValidationInfo[Any]) -> str:
        response = info.context.deps.http.post("/validate", params={"query": text})
        if response.status_code == 400:
            raise ValueError(f"invalid response: {response.text}")
        return text


joker = Agent(
    "joker",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions=instructions,
    tools=[get_joke_material],
    output=Joke,
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[joker], deps=open_deps):
        print((await client.run(joker, "Tell me a joke.")).value)


if __name__ == "__main__":
    asyncio.run(main())
