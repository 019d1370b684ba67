"""What a conversation costs on Temporal Cloud, in actions, counted from its event histories."""

from __future__ import annotations

from collections import Counter

from temporalio.client import Client

from benchmarks.histories import runs_of
from everturn.history.billed_actions import actions_of


async def actions(client: Client, conversation_id: str) -> Counter[str]:
    """Over all runs, without sub-agents' own. Raises RPCError."""
    return actions_of(event for run in await runs_of(client, conversation_id) for event in run.history.events)
