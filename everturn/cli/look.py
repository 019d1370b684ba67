"""Commands that look at one conversation: `show`, `watch`."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import tell, tell_json

if TYPE_CHECKING:
    from everturn.cli.terminal import Screen
    from everturn.client.conversation import Conversation
    from everturn.payloads import Status


def show(id: IdArgument, as_json: JsonOption = False) -> None:  # noqa: A002
    """Show a conversation: what goes on, what waits, and its transcript."""
    asyncio.run(_show(id, as_json=as_json))


def watch(
    id: IdArgument,  # noqa: A002
    since: Annotated[
        str | None, typer.Option("--since", metavar="CURSOR", help="Begin behind this event, as --json names it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a conversation to its end: from its beginning, or where it was last revived. --json: a line an event."""
    asyncio.run(_watch(id, since, as_json=as_json))


# ---------------------------------------------------------------- show


async def _show(conversation_id: str, *, as_json: bool) -> None:
    from everturn.cli.connect import remote_client
    from everturn.cli.render import transcript_lines
    from everturn.cli.terminal import Screen

    async with remote_client() as client:
        conversation = client.conversation(conversation_id)
        messages = await conversation.transcript()
        status, why = await _status(conversation)
    if as_json:
        told = [message.model_dump(mode="json") for message in messages]
        state = status.as_json() if status else None
        tell_json({"id": conversation_id, "status": state, "messages": told})
        return
    screen = Screen(to_stdout=True)
    if status:
        _print_status(conversation_id, status, screen)
    else:
        screen.line(f"! {why}", style="red")
    screen.lines(transcript_lines(messages, width=screen.width))


async def _status(conversation: Conversation) -> tuple[Status | None, str]:
    """The status; without a worker to ask, None and why. The transcript needs none."""
    from everturn.errors import Unreachable

    try:
        return await conversation.status(), ""
    except Unreachable as error:
        return None, str(error)


def _print_status(conversation_id: str, status: Status, screen: Screen) -> None:
    from everturn.cli.render import STATE_STYLES, arguments_block, folded, marked
    from everturn.records import ToolCall

    facts = [conversation_id, status.state.replace("_", " "), f"turn {status.turn}"]
    facts.append(f"{status.usage.total_tokens:,} tokens")
    screen.line(" · ".join(facts), style=STATE_STYLES.get(status.state, "bold"))
    if status.cause:
        screen.line(marked("trouble", folded(f"{status.cause} {status.cure or ''}", 1000)))
    for waiting in status.waiting:
        call = ToolCall(call_id=waiting.call_id, name=waiting.tool, arguments=waiting.arguments)
        screen.line(marked("waits", folded(f"{waiting.tool} ({waiting.call_id}) waits: {waiting.why}", 500)))
        screen.line(arguments_block(call))
        how = ("approve", "") if waiting.needs == "approval" else ("answer", " CONTENT")
        screen.line(f"    everturn {how[0]} {shlex.join([conversation_id, waiting.call_id])}{how[1]}", style="dim")


# ---------------------------------------------------------------- watch


async def _watch(conversation_id: str, since: str | None, *, as_json: bool) -> None:
    from everturn.cli.connect import remote_client
    from everturn.cli.narration import Story
    from everturn.cli.terminal import Screen

    screen, cursor = Screen(to_stdout=True), ""
    story = Story(screen, streaming=screen.live)
    try:
        async with remote_client() as client:
            async for event in client.conversation(conversation_id).events(since):
                cursor = event.cursor
                if as_json:
                    tell(event.model_dump_json())
                else:
                    story.take(event)
                    story.show(event)
    except asyncio.CancelledError:
        screen.idle()
        screen.end_line()
        if cursor:
            Screen().line(f"To go on: everturn watch {shlex.quote(conversation_id)} --since {cursor}", style="dim")
        raise
    finally:
        screen.idle()
