"""What the agents that work for a conversation wait for: it is decided there, and asked for here."""

from __future__ import annotations

from typing import Any, Final

from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.errors import EverturnError
from everturn.payloads import AskedAgent, Status

MOST: Final = 50
"""Agents at work that are asked what they wait for, those that work for them included."""


async def status_with_children(client: Client, conversation_id: str) -> dict[str, Any]:
    """Its status, and `children`: of each agent at work its `conversation_id`, the `parent` and the `call_id` that
    asked it, its `agent`, `state` and what is `waiting`. Raises as `Conversation.status`."""
    status = await client.conversation(conversation_id).status()
    told: list[dict[str, Any]] = []
    left: list[tuple[str, AskedAgent]] = [(conversation_id, asked) for asked in status.agents]
    while left and len(told) < MOST:
        parent, asked = left.pop(0)
        try:
            child = await client.conversation(asked.conversation_id).status()
        except (EverturnError, RPCError):  # it is about to start, or has just ended
            continue
        told.append({**asked.model_dump(), "parent": parent, "state": child.state, "waiting": _waiting(child)})
        left += [(asked.conversation_id, one) for one in child.agents]
    return {**status.as_json(), "children": told}


def _waiting(status: Status) -> list[dict[str, Any]]:
    waiting: list[dict[str, Any]] = status.as_json()["waiting"]
    return waiting
