"""`everturn send`: a message to a conversation."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import print_json, print_text


def send(
    id: IdArgument,  # noqa: A002
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.")],
    message_id: Annotated[
        str | None, typer.Option("--message-id", help="An id for the message. With it, the command is safe to repeat.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="NAME", help="A tool for the answer, no others. May be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a message to a conversation, and revive it if it is over. Returns as soon as Temporal has the message."""
    revived = asyncio.run(_send_message(id, text, message_id, tool or None))
    if as_json:
        print_json({"id": id, "did": "sent", "revived": revived})
    else:
        print_text(f"sent: {id}, which was over and goes on" if revived else f"sent: {id}")


async def _send_message(conversation_id: str, text: str, message_id: str | None, tools: list[str] | None) -> bool:
    from everturn.cli.connect import remote_client

    async with remote_client() as client:
        return await client.conversation(conversation_id).send(text, message_id=message_id, revive=True, tools=tools)
