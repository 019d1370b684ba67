"""The shop's worker: one line of it is everturn's."""

import asyncio
import os
import signal

from company import Audit, converter, tracing
from shop import Checkout, charge
from shop_agents import clerk
from temporalio.client import Client
from temporalio.worker import Worker

from everturn import EverturnPlugin


def make_worker(client: Client) -> Worker:
    return Worker(
        client,
        task_queue=os.environ.get("SHOP_QUEUE", "shop"),
        workflows=[Checkout],
        activities=[charge],
        interceptors=[Audit()],
        plugins=[EverturnPlugin(agents=[clerk])],  # the one line
    )


async def main() -> None:
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    client = await Client.connect(address, data_converter=converter(), plugins=[tracing()])
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with make_worker(client):
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main())
