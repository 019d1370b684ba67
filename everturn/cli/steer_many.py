"""`everturn pause --query` and `resume --query`: lists the conversations, asks, then pauses or resumes them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from everturn.cli.output import tell, tell_json

if TYPE_CHECKING:
    from everturn.client.client import Client
    from everturn.client.many_commands import Steered

SHOWN: Final = 20
"""How many conversations are listed before the question."""

Command = Callable[["Client"], Awaitable[list["Steered"]]]


def steer_many(query: str, command: Command, verb: str, *, yes: bool, as_json: bool) -> None:
    told = asyncio.run(_steer(query, command, verb, yes=yes, as_json=as_json))
    if told is None:
        raise typer.Exit(1)
    if as_json:
        refused = [asdict(one) for one in told if one.refused]
        tell_json({"told": [one.conversation_id for one in told if not one.refused], "refused": refused})
        return
    for one in told:
        if one.refused:
            tell(f"not told: {one.conversation_id}: {one.refused}")
    done = sum(not one.refused for one in told)
    tell(f"told to {verb}: {done:,} of {len(told):,}; each does so at its next step on a worker")


async def _steer(query: str, command: Command, verb: str, *, yes: bool, as_json: bool) -> list[Steered] | None:
    """None if the person said no, or if the query finds no conversation."""
    from everturn.cli.connect import remote_client
    from everturn.client.listing import listed
    from everturn.client.matching import matching
    from everturn.temporal.any_status import OPEN_QUERY

    async with remote_client() as client:
        if not yes:
            found = [listed(one) async for one in matching(client.temporal, query, also=OPEN_QUERY)]
            if not found:
                tell("No running conversation matches.")
                return None
            if not as_json:
                for one in found[:SHOWN]:
                    tell(f"{one.id}  {one.status}  {one.agent}")
                if len(found) > SHOWN:
                    tell(f"and {len(found) - SHOWN:,} more")
            if not _agreed(f"{verb.capitalize()} {len(found):,} of them?"):
                tell("Nothing was changed.")
                return None
        return await command(client)


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        from everturn.errors import Refused

        raise Refused("Nobody can be asked: this is not a terminal.", cure="To do it without a question, use --yes.")
    return typer.confirm(question, default=False)
