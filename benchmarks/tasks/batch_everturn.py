import asyncio
import os

from everturn import Agent, Client, Model, ModelSettings, Worker

model = Model("anthropic:claude-sonnet-4-5", base_url=os.environ["BATCH_URL"])
classifier = Agent("classifier", model=model, settings=ModelSettings(batch=True))


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[classifier]):
        runs = [client.run(classifier, f"Classify text {number}", id=f"text-{number}") for number in range(500)]
        outcomes = await asyncio.gather(*runs)
    print(sum(outcome.text == "fine" for outcome in outcomes))


if __name__ == "__main__":
    asyncio.run(main())
