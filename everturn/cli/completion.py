"""What the shell offers when somebody presses Tab: ids, calls, agents, statuses, models.

Best effort: what can't be found within a moment is not offered, and no error is ever shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from everturn.text.printable import printable_line

if TYPE_CHECKING:
    from everturn.client.client import Client
    from everturn.client.listing import ListedConversation

PATIENCE_SECONDS = 2.0
LOOKED_AT = 200
"""How many conversations to look at, newest first."""


def offer_ids(incomplete: str) -> list[tuple[str, str]]:
    async def list_ids(client: Client) -> list[tuple[str, str]]:
        listed = [conversation async for conversation in _newest_conversations(client)]
        return [
            (conversation.id, f"{conversation.status} {conversation.agent}".strip())
            for conversation in listed
            if conversation.id.startswith(incomplete)
        ]

    return _run_lookup(list_ids)


def offer_calls(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The waiting calls of the conversation on the command line."""
    conversation_id = str(ctx.params.get("id") or "")

    from everturn.cli.render import path_prefix
    from everturn.subagents.call_addresses import shortest_name

    async def list_calls(client: Client) -> list[tuple[str, str]]:
        waiting = (await client.conversation(conversation_id).status()).waiting
        named = [(shortest_name(call, waiting), path_prefix(call.path) + call.tool) for call in waiting]
        return [(name, tool) for name, tool in named if name.startswith(incomplete)]

    return _run_lookup(list_calls)


def offer_agents(incomplete: str) -> list[tuple[str, str]]:
    async def list_agents(client: Client) -> list[tuple[str, str]]:
        names = {
            conversation.agent
            for conversation in [conversation async for conversation in _newest_conversations(client)]
        }
        return [(agent, "") for agent in sorted(names) if agent and agent.startswith(incomplete)]

    return _run_lookup(list_agents)


def offer_statuses(incomplete: str) -> list[str]:
    from everturn.client.listing import STATUSES

    return [status for status in STATUSES if status.startswith(incomplete)]


def offer_models(incomplete: str) -> list[str]:
    """Offers providers, since only they know their models."""
    from everturn.vendor_models.plugins import known_names

    return [f"{provider}:" for provider in known_names() if provider.startswith(incomplete)]


async def _newest_conversations(client: Client) -> AsyncIterator[ListedConversation]:
    count = 0
    async for conversation in client.conversations():
        yield conversation
        if (count := count + 1) == LOOKED_AT:
            return


def _run_lookup(lookup: Callable[[Client], Awaitable[list[tuple[str, str]]]]) -> list[tuple[str, str]]:
    from everturn.cli.connect import remote_client

    async def look_up() -> list[tuple[str, str]]:
        async with asyncio.timeout(PATIENCE_SECONDS), remote_client() as client:
            return await lookup(client)

    try:
        # The shell writes these words into its command line as they are.
        return [
            (word, printable_line(description))
            for word, description in asyncio.run(look_up())
            if printable_line(word) == word
        ]
    except Exception:  # noqa: BLE001 - a completion must not show errors
        return []
