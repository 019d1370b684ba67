"""Every call that waits for an approval, with its arguments: a person sees them before deciding on many."""

from __future__ import annotations

from itertools import islice
from typing import Any

from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.client.many_decisions import AT_ONCE, is_decidable
from everturn.errors import EverturnError
from everturn.system.bounded_concurrency import in_order
from everturn.web.listing import MOST_LISTED, ListFilter
from everturn.web.requests import MOST_CALLS_AT_ONCE


async def waiting_calls(client: Client, wanted: ListFilter) -> dict[str, Any]:
    """The waiting `calls` of the conversations that fit the filter, oldest first; the ids of conversations without an
    answering worker, as `silent`; and whether there are `more` calls."""
    silent_ids: list[str] = []

    async def calls_of(listed: tuple[str, str]) -> list[dict[str, Any]]:
        conversation_id, agent = listed
        try:
            status = await client.conversation(conversation_id).status(children=False)
        except (EverturnError, RPCError):
            silent_ids.append(conversation_id)
            return []
        return [
            {
                "conversation": conversation_id,
                "agent": agent,
                **call.model_dump(mode="json"),
                "arguments": call.arguments,
            }
            for call in status.waiting
            if is_decidable(call)
        ]

    filters = wanted.by_index()
    if await client.indexed():
        filters["status"] = "awaiting_approval"
    if wanted.q:
        filters["search"] = wanted.q
    conversations = client.conversations(**filters)
    ids: dict[str, str] = {}
    async for conversation in conversations:
        if conversation.ended_at is None:
            ids[conversation.id] = conversation.agent
        if len(ids) == MOST_LISTED:
            break
    of_each = await in_order(ids.items(), calls_of, max_running=AT_ONCE)
    calls = sorted((call for calls in reversed(of_each) for call in calls), key=lambda call: str(call.get("since", "")))
    return {
        "calls": [*islice(calls, MOST_CALLS_AT_ONCE)],
        "silent": silent_ids,
        "more": len(calls) > MOST_CALLS_AT_ONCE,
    }
