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


def ids(incomplete: str) -> list[tuple[str, str]]:
    async def look(client: Client) -> list[tuple[str, str]]:
        listed = [one async for one in _newest(client)]
        return [(one.id, f"{one.status} {one.agent}".strip()) for one in listed if one.id.startswith(incomplete)]

    return _asked(look)


def calls(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The waiting calls of the conversation on the command line."""
    conversation_id = str(ctx.params.get("id") or "")

    from everturn.cli.render import by_agents
    from everturn.client.agents_at_work import shortest_name

    async def look(client: Client) -> list[tuple[str, str]]:
        waiting = (await client.conversation(conversation_id).status()).waiting
        named = [(shortest_name(call, waiting), by_agents(call.path) + call.tool) for call in waiting]
        return [(name, tool) for name, tool in named if name.startswith(incomplete)]

    return _asked(look)


def agents(incomplete: str) -> list[tuple[str, str]]:
    async def look(client: Client) -> list[tuple[str, str]]:
        found = {one.agent for one in [one async for one in _newest(client)]}
        return [(agent, "") for agent in sorted(found) if agent and agent.startswith(incomplete)]

    return _asked(look)


def statuses(incomplete: str) -> list[str]:
    from everturn.client.listing import STATUSES

    return [status for status in STATUSES if status.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Offers providers, since only they know their models."""
    from everturn.vendor_models.plugins import known_names

    return [f"{provider}:" for provider in known_names() if provider.startswith(incomplete)]


async def _newest(client: Client) -> AsyncIterator[ListedConversation]:
    looked_at = 0
    async for one in client.conversations():
        yield one
        if (looked_at := looked_at + 1) == LOOKED_AT:
            return


def _asked(look: Callable[[Client], Awaitable[list[tuple[str, str]]]]) -> list[tuple[str, str]]:
    from everturn.cli.connect import remote_client

    async def ask() -> list[tuple[str, str]]:
        async with asyncio.timeout(PATIENCE_SECONDS), remote_client() as client:
            return await look(client)

    try:
        # The shell writes these words into its command line as they are.
        return [(one, printable_line(about)) for one, about in asyncio.run(ask()) if printable_line(one) == one]
    except Exception:  # noqa: BLE001 - a completion must not show errors
        return []
