"""An application whose test gives the worker other things than its own."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from everturn import Agent, Client, TurnContext, Worker


@dataclass
class Deps:
    api_key: str

    async def prompt(self) -> str:
        raise NotImplementedError("asks a server that tests do not have")


class TestDeps(Deps):
    async def prompt(self) -> str:
        return "test prompt"


@asynccontextmanager
async def open_test_deps() -> AsyncIterator[Deps]:
    yield TestDeps("test_key")


async def instructions(context: TurnContext[Deps]) -> str:
    return await context.deps.prompt()


joker = Agent("joker", model=os.environ.get("MODEL", "openai:gpt-5.5"), instructions=instructions)


def make_worker(client: Client, deps: Callable[[], AbstractAsyncContextManager[Deps]]) -> Worker:
    return Worker(client, agents=[joker], deps=deps)


async def main() -> None:
    client = await Client.connect()
    async with make_worker(client, deps=open_test_deps):
        conversation = await client.start(joker, "Tell me a joke.")
        print(await conversation.reply())
        print((await conversation.prompt(turn=1)).instructions)


if __name__ == "__main__":
    asyncio.run(main())
