"""`everturn watch`: a conversation's events, as they come."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import print_text
from everturn.text.commands import command_about


def watch(
    id: IdArgument,  # noqa: A002
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="CURSOR", help="Begin after the event with this cursor, which --json prints."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a conversation from its beginning (or last revival) to its end. With --json, each event is a line."""
    asyncio.run(_watch_events(id, since, as_json=as_json))


async def _watch_events(conversation_id: str, since: str | None, *, as_json: bool) -> None:
    from everturn.cli.connect import remote_client
    from everturn.cli.narration import Narration
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    cursor = ""
    narration = Narration(screen, streaming=screen.live)
    try:
        async with remote_client() as client:
            async for event in client.conversation(conversation_id).events(since):
                cursor = event.cursor
                if as_json:
                    print_text(event.model_dump_json())
                else:
                    narration.track_event(event)
                    narration.show_event(event)
    except asyncio.CancelledError:
        screen.stop_spinner()
        screen.end_line()
        if cursor:
            Screen().print_line(f"To continue: {command_about('watch', conversation_id)} --since {cursor}", style="dim")
        raise
    finally:
        screen.stop_spinner()
