import asyncio
import os
from pathlib import Path

from everturn import Agent, Client, Model, tool
from everturn.evals import Thresholds, rerun


@tool(effect="read")
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} is paid"


@tool(effect="once")
def refund(order: str) -> str:
    """Refund an order."""
    with Path(os.environ["REFUNDS"]).open("a") as file:
        file.write(f"{order}\n")
    return f"order {order} is refunded"


model = Model("scripted:clerk", base_url=os.environ["MODEL_URL"])
clerk = Agent("clerk", model=model, instructions="Look the order up before you refund it.", tools=[look_up, refund])


async def main() -> None:
    client = await Client.connect()
    ids = [row.id async for row in client.conversations(agent="clerk")]
    reruns = await rerun(client, ids, agent=clerk, instructions="Refund what they ask for.")
    print(*reruns.failures(Thresholds(same_calls=1.0)))


if __name__ == "__main__":
    asyncio.run(main())
