import asyncio
import os
from datetime import timedelta

from pydantic_ai import Agent
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

provider = AnthropicProvider(base_url=os.environ["BATCH_URL"], api_key="none")
batching = BatchModelRequests(max_requests=500, poll_interval=timedelta(seconds=1))
classifier = Agent(AnthropicModel("claude-sonnet-4-5", provider=provider), capabilities=[batching])


async def main() -> None:
    async with batching:
        runs = [classifier.run(f"Classify text {number}") for number in range(500)]
        results = await asyncio.gather(*runs)
    print(sum(result.output == "fine" for result in results))


if __name__ == "__main__":
    asyncio.run(main())
