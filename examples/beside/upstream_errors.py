"""A service that fails: for now, which is tried again, or for good, which the model is told."""

import asyncio
import os

from everturn import Agent, Client, Retry, ToolFailed, Worker, tool


class UpstreamError(Exception):
    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code


def fetch(doc_id: int) -> str:
    raise UpstreamError(404, f"document {doc_id} not found")


@tool(effect="read")
def get_document(doc_id: int) -> str:
    """A document."""
    try:
        return fetch(doc_id)
    except UpstreamError as error:
        if error.status_code >= 500 or error.status_code == 429:
            raise Retry(f"Upstream returned {error.status_code}") from None
        raise ToolFailed(f"Upstream returned {error.status_code}: {error}") from None


reader = Agent("reader", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[get_document])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[reader]):
        print((await client.run(reader, "Fetch document 42")).text)


if __name__ == "__main__":
    asyncio.run(main())
