"""What a conversation's sub-agents wait for: people see it in this conversation, and decide in the sub-agent's."""

from __future__ import annotations

from typing import Any

from everturn.client.client import Client
from everturn.subagents.at_work import agents_at_work, with_agents


async def status_with_children(client: Client, conversation_id: str) -> dict[str, Any]:
    """The conversation's status with `children`, one for each running sub-agent, at any depth: its `conversation_id`,
    `agent` and `state`, its `waiting` calls, and the `parent` and `call_id` that asked it. Raises as
    `Conversation.status`."""
    status = await client.conversation(conversation_id).status(children=False)
    agents = await agents_at_work(client.conversation, status.agents)
    children: list[dict[str, Any]] = []
    for agent in agents:
        if agent.status is None:
            continue  # it can't be asked: the cause says so
        parents = [conversation_id, *(asked_agent.conversation_id for asked_agent in agent.path)]
        details = {"parent": parents[-2], "state": agent.status.state, "waiting": agent.status.as_json()["waiting"]}
        children.append({**agent.asked_agent.model_dump(), **details})
    held_up = with_agents(status, agents)
    return {**status.as_json(), "cause": held_up.cause, "cure": held_up.cure, "children": children}
