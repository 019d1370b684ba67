"""A recorded conversation in which a person edited one call and denied another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from everturn import Agent, Client, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.scripts import by_turn
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

ran: list[str] = []


@tool(effect="read")
def find_order(order_id: str, email: str) -> str:
    """Finds an order."""
    ran.append("find")
    return f"of {email}, paid by 4111 1111 1111 1111"


@tool(effect="once", needs_approval=True)
def refund(cents: int) -> str:
    """Refunds."""
    ran.append(f"refund {cents}")
    return f"refunded {cents}"


FIND = call("find_order", {"order_id": "81", "email": "jane@example.com"}, id="f")
REFUNDS = [call("refund", {"cents": 500}, id="a"), call("refund", {"cents": 700}, id="b")]


async def decided(client: Client, scripted: Scripted, conversation_id: str, agent_name: str) -> Agent:
    """A conversation in which a person edited a call and denied another; and one without either."""
    replies = by_turn(FIND, REFUNDS, "Half of it.", "Bye.")
    script = scripted(lambda messages: "Hi." if "Hello" in str(messages) else replies(messages))
    agent = agent_on(script, tools=[find_order, refund], name=agent_name)
    async with hosting(client, agent):
        conversation = await client.start(
            agent,
            "I am jane@example.com.\nRefund order 81.",
            id=conversation_id,
            tenant="acme",
            metadata={"user": "jane@example.com", "vip": True},
            keep_open=timedelta(minutes=5),
        )
        a, b = await waiting(conversation, calls=2)
        await conversation.approve(a, {"cents": 400})
        await conversation.deny(b, "jane@example.com has no right to it")
        await conversation.reply()
        await conversation.send("Thanks")
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
        await client.run(agent, "Hello", id=f"plain-{conversation_id}")
    ran.clear()
    return agent
