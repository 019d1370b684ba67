import asyncio
import os

from everturn import Agent, Client, Model, Worker, generate
from everturn.evals import JudgedAnswer

ANSWERS = 200
helper = Agent("helper", model=Model("scripted:helper", base_url=os.environ["MODEL_URL"]))
judge = Model("scripted:judge", base_url=os.environ["MODEL_URL"])


async def is_polite(answer: JudgedAnswer) -> bool:
    reply = await generate(judge, f"Is this polite? {answer.text}")
    return reply.text == "yes"


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[helper], evaluators=[is_polite], sample=0.05):
        runs = [client.run(helper, f"Question {number}", id=f"question-{number}") for number in range(ANSWERS)]
        await asyncio.gather(*runs)
        print("answered", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
