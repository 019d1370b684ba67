"""Instructions that are fetched with what the worker has opened."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from everturn import Agent, Client, TurnContext, Worker


@dataclass
class Deps:
    api_key: str
    http: httpx.AsyncClient


@asynccontextmanager
async def open_deps() -> AsyncIterator[Deps]:
    async with httpx.AsyncClient(base_url=os.environ.get("JOKES_URL", "https://example.com")) as http:
        yield Deps("foobar", http)


async def instructions(context: TurnContext[Deps]) -> str:
    response = await context.deps.http.get("/", headers={"Authorization": f"Bearer {context.deps.api_key}"})
    response.raise_for_status()
    return f"Prompt: {response.text}"


joker = Agent("joker", model=os.environ.get("MODEL", "openai:gpt-5.5"), instructions=instructions)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[joker], deps=open_deps):
        print((await client.run(joker, "Tell me a joke.")).text)


if __name__ == "__main__":
    asyncio.run(main())
