"""A shop on Temporal: its workflow and its activity, in Temporal's sandbox. It knows nothing of everturn."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow


@dataclass
class Order:
    order_id: str
    cents: int


@activity.defn
async def charge(order: Order) -> str:
    return f"charged {order.cents / 100:.2f} EUR for order {order.order_id}"


@workflow.defn
class Checkout:
    @workflow.run
    async def run(self, order: Order) -> str:
        charged = await workflow.execute_activity(charge, order, start_to_close_timeout=timedelta(minutes=1))
        await workflow.sleep(timedelta(days=14))  # the order may be returned so long
        return charged
