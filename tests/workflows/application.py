"""An application on Temporal as it is without everturn, in a file that Temporal's sandbox loads: a workflow, its
activities, values of its own. Its second workflow asks agents."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.exceptions import ActivityError, ApplicationError

import everturn
from everturn import Agent


@dataclass
class Order:
    order_id: str
    cents: int


@dataclass
class Invoice:
    order_id: str
    cents: int


judge = Agent("judge", model="scripted:demo", output=Invoice)
"""As the workflow knows it: what it is to say, in the end."""


@activity.defn
async def charge(order: Order) -> Order:
    for _ in range(50):
        activity.heartbeat("charging", order.cents)
    return Order(order.order_id, order.cents + 1)


@workflow.defn
class Checkout:
    @workflow.run
    async def run(self, order: Order) -> Order:
        charged = await workflow.execute_activity(
            charge, order, start_to_close_timeout=timedelta(seconds=30), heartbeat_timeout=timedelta(seconds=20)
        )
        await workflow.sleep(timedelta(milliseconds=20))
        return charged


@workflow.defn
class Returns:
    """Asks the clerk, which may have to wait for a person, and decides itself where it is told to."""

    def __init__(self) -> None:
        self.notices: list[everturn.workflow.WaitNotice] = []

    @workflow.signal
    def agent_waits(self, notice: everturn.workflow.WaitNotice) -> None:
        self.notices.append(notice)

    @workflow.query
    def told(self) -> list[str]:
        return [f"{notice.conversation_id} {call.call_id}" for notice in self.notices for call in notice.waiting]

    @workflow.run
    async def run(self, order_id: str, decides: bool) -> str:
        if not decides:
            return (await everturn.workflow.ask("clerk", f"Return {order_id}", notify="agent_waits")).text
        conversation = await everturn.workflow.start("clerk", f"Return {order_id}", notify="agent_waits")
        await workflow.wait_condition(lambda: bool(self.notices))
        await conversation.approve(self.notices[0].waiting[0].call_id, note="as always")
        return (await conversation.outcome()).text


@workflow.defn
class Judged:
    @workflow.run
    async def run(self, order_id: str) -> str:
        outcome = await everturn.workflow.ask(judge, f"What does {order_id} cost?")
        invoice: Invoice = outcome.output
        return f"{outcome.status} {type(invoice) is Invoice} {invoice.cents}"


@workflow.defn
class Says:
    """Holds a conversation of several messages."""

    @workflow.run
    async def run(self, first: str, then: str) -> str:
        conversation = await everturn.workflow.start(
            "clerk", first, id=f"{workflow.info().workflow_id}-talk", keep_open=timedelta(minutes=5), tenant="acme"
        )
        await conversation.send(then)
        await conversation.close()
        outcome = await conversation.outcome()
        return f"{outcome.status} {outcome.text}"


@workflow.defn
class Wrong:
    """Says nothing, or approves what is no number, both of which is refused."""

    @workflow.run
    async def run(self, message: str) -> None:
        conversation = await everturn.workflow.start("clerk", message)
        await conversation.approve("c", {"cents": float("nan")})


@workflow.defn
class GivesUp:
    """Stops waiting after a while."""

    @workflow.run
    async def run(self, seconds: float) -> str:
        try:
            async with asyncio.timeout(seconds):
                return (await everturn.workflow.ask("clerk", "Hi", id=f"{workflow.info().workflow_id}-talk")).text
        except TimeoutError:
            return "given up"


@workflow.defn
class Repeats:
    """Asks under an id, decides where it is told to, and tells what it got: the text and the id, or the error."""

    def __init__(self) -> None:
        self.call_id = ""

    @workflow.signal
    def decide(self, call_id: str) -> None:
        self.call_id = call_id

    @workflow.run
    async def run(self, id: str, message: str, again: bool) -> list[str]:  # noqa: A002
        try:
            conversation = await everturn.workflow.start("clerk", message, id=id, again=again)
        except ActivityError as error:
            cause = error.cause
            assert isinstance(cause, ApplicationError)
            return [cause.type or "", cause.message.partition("begun as ")[2].partition(",")[0]]
        if message == "Charge slowly.":
            await workflow.wait_condition(lambda: bool(self.call_id))
            await conversation.approve(self.call_id)
        outcome = await conversation.outcome()
        return [outcome.text, outcome.id]
