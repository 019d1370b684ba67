"""`everturn fork`: another way from a turn on."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import print_json, print_text
from everturn.text.commands import command_about


def fork(
    id: IdArgument,  # noqa: A002
    at_turn: Annotated[
        int, typer.Option("--at-turn", min=1, metavar="N", help="The last turn that the fork takes over.")
    ],
    new_id: Annotated[
        str | None, typer.Option("--id", metavar="NEW", help="The fork's id. Default: a new one.")
    ] = None,
    to_namespace: Annotated[
        str | None,
        typer.Option("--to-namespace", metavar="NAME", help="Start the fork in another namespace of this server."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a new conversation from the first turns of another one, which stays as it is.

    The fork goes on at once, unless that turn had the final reply: its model is asked, and tools run.
    """
    forked = asyncio.run(_fork_conversation(id, at_turn, new_id, to_namespace))
    if as_json:
        print_json({"id": forked, "forked_from": id, "at_turn": at_turn})
    else:
        how = f"It goes on at once, unless turn {at_turn} had the final reply"
        print_text(f"forked: {forked}. {how}: {command_about('watch', forked)}")


async def _fork_conversation(conversation_id: str, at_turn: int, new_id: str | None, namespace: str | None) -> str:
    from everturn.cli.connect import remote_client, require_namespace
    from everturn.client.client import Client

    async with remote_client() as client:
        to = await Client.connect(task_queue=client.task_queue, namespace=namespace) if namespace else None
        if to:
            await require_namespace(to)
        return (await client.conversation(conversation_id).fork(at_turn, id=new_id, to=to)).id
