"""`everturn pause --query` and `resume --query`: lists the conversations, asks, then pauses or resumes them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from everturn.cli.output import print_json, print_text

if TYPE_CHECKING:
    from everturn.client.client import Client
    from everturn.client.many_commands import Steered

SHOWN: Final = 20
"""How many conversations are listed before the question."""

Command = Callable[["Client"], Awaitable[list["Steered"]]]


def steer_many(query: str, command: Command, verb: str, *, yes: bool, as_json: bool) -> None:
    results = asyncio.run(_list_and_steer(query, command, verb, yes=yes, as_json=as_json))
    if results is None:
        raise typer.Exit(1)
    if as_json:
        refused = [asdict(result) for result in results if result.refused]
        print_json({"told": [result.conversation_id for result in results if not result.refused], "refused": refused})
        return
    for result in results:
        if result.refused:
            print_text(f"not told: {result.conversation_id}: {result.refused}")
    done = sum(not result.refused for result in results)
    print_text(f"told to {verb}: {done:,} of {len(results):,}; each does so at its next step on a worker")


async def _list_and_steer(query: str, command: Command, verb: str, *, yes: bool, as_json: bool) -> list[Steered] | None:
    """None if the person said no, or if the query finds no conversation."""
    from everturn.cli.connect import remote_client
    from everturn.client.conversations_by_query import find_matching
    from everturn.client.listing import read_listed
    from everturn.temporal.any_status import OPEN_QUERY

    async with remote_client() as client:
        if not yes:
            conversations = [
                read_listed(conversation)
                async for conversation in find_matching(client.temporal, query, also=OPEN_QUERY)
            ]
            if not conversations:
                print_text("No running conversation matches.")
                return None
            if not as_json:
                for conversation in conversations[:SHOWN]:
                    print_text(f"{conversation.id}  {conversation.status}  {conversation.agent}")
                if len(conversations) > SHOWN:
                    print_text(f"and {len(conversations) - SHOWN:,} more")
            if not _is_confirmed(f"{verb.capitalize()} {len(conversations):,} of them?"):
                print_text("Nothing was changed.")
                return None
        return await command(client)


def _is_confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        from everturn.errors import Refused

        raise Refused("Nobody can be asked: this is not a terminal.", cure="To do it without a question, use --yes.")
    return typer.confirm(question, default=False)
