"""What a conversation's sub-agents wait for: people see it in this conversation, and decide in the sub-agent's."""

from __future__ import annotations

from typing import Any, Final

from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.errors import EverturnError
from everturn.payloads import AskedAgent, Status

MOST_CHILDREN: Final = 50
"""How many running sub-agents are asked what they wait for, sub-agents of sub-agents included."""


async def status_with_children(client: Client, conversation_id: str) -> dict[str, Any]:
    """The conversation's status with `children`, one for each running sub-agent: its `conversation_id`, `agent` and
    `state`, its `waiting` calls, and the `parent` and `call_id` that asked it. Raises as `Conversation.status`."""
    status = await client.conversation(conversation_id).status()
    told: list[dict[str, Any]] = []
    left: list[tuple[str, AskedAgent]] = [(conversation_id, asked) for asked in status.agents]
    while left and len(told) < MOST_CHILDREN:
        parent, asked = left.pop(0)
        try:
            child = await client.conversation(asked.conversation_id).status()
        except (EverturnError, RPCError):  # the sub-agent is about to start, or has just ended
            continue
        told.append({**asked.model_dump(), "parent": parent, "state": child.state, "waiting": _waiting(child)})
        left += [(asked.conversation_id, one) for one in child.agents]
    return {**status.as_json(), "children": told}


def _waiting(status: Status) -> list[dict[str, Any]]:
    waiting: list[dict[str, Any]] = status.as_json()["waiting"]
    return waiting
