"""Commands that look at conversations: `list`, `show`, `watch`."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from everturn.cli.options import IdArgument, JsonOption

if TYPE_CHECKING:
    from everturn.cli.terminal import Screen
    from everturn.client import Listed
    from everturn.conversation import Conversation
    from everturn.payloads import Status

_STYLES = {
    "awaiting_approval": "bold yellow",
    "awaiting_answer": "bold yellow",
    "stalled": "bold red",
    "failed": "red",
    "terminated": "red",
    "running": "cyan",
    "done": "green",
}


def list_(
    status: Annotated[
        str | None, typer.Option("--status", help="running, awaiting_approval, stalled, idle, done ...")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Of this agent only.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List conversations, newest first."""
    if status is not None:
        status = _state(status)
    listed = asyncio.run(_list(status, agent, limit))
    if as_json:
        print(json.dumps([_as_json(one) for one in listed], ensure_ascii=False))
    else:
        _print_table(listed)


def show(id: IdArgument, as_json: JsonOption = False) -> None:  # noqa: A002
    """Show a conversation: what goes on, what waits, and its transcript."""
    asyncio.run(_show(id, as_json=as_json))


def watch(id: IdArgument, as_json: JsonOption = False) -> None:  # noqa: A002
    """Follow a conversation to its end. With --json, a line for each event."""
    asyncio.run(_watch(id, as_json=as_json))


# ---------------------------------------------------------------- list


def _state(given: str) -> str:
    from everturn.payloads import State

    states: tuple[str, ...] = get_args(State)
    status = given.lower().replace("-", "_")
    if status not in states:
        raise typer.BadParameter(f"{given!r} is none of {', '.join(states)}", param_hint="--status")
    return status


async def _list(status: str | None, agent: str | None, limit: int) -> list[Listed]:
    from everturn.cli.hosts import remote_client

    listed: list[Listed] = []
    async with remote_client() as client:
        async for one in client.conversations(status=status, agent=agent):
            listed.append(one)
            if len(listed) == limit:
                break
    return listed


def _as_json(one: Listed) -> dict[str, Any]:
    return {
        **vars(one),
        "started_at": one.started_at.isoformat(),
        "ended_at": one.ended_at.isoformat() if one.ended_at else None,
    }


def _print_table(listed: list[Listed]) -> None:
    from rich.text import Text

    from everturn.cli.render import columns
    from everturn.cli.terminal import Screen

    if not listed:
        Screen().line("There are no such conversations.")
        return
    rows = [
        (
            one.id,
            Text(one.status, style=_STYLES.get(one.status, "")),
            one.agent,
            one.model,
            f"{one.tokens:,}",
            _ago(one.started_at),
        )
        for one in listed
    ]
    Screen(to_stdout=True).lines(columns(("ID", "STATUS", "AGENT", "MODEL", "TOKENS", "STARTED"), rows))


def _ago(moment: datetime) -> str:
    seconds = int((datetime.now(UTC) - moment).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{max(seconds, 0)} s ago"


# ---------------------------------------------------------------- show


async def _show(conversation_id: str, *, as_json: bool) -> None:
    from everturn.cli.hosts import remote_client
    from everturn.cli.render import transcript_lines
    from everturn.cli.terminal import Screen

    async with remote_client() as client:
        conversation = client.conversation(conversation_id)
        messages = await conversation.transcript()
        status, why = await _status(conversation)
    if as_json:
        told = [message.model_dump(mode="json") for message in messages]
        state = status.as_json() if status else None
        print(json.dumps({"id": conversation_id, "status": state, "messages": told}, ensure_ascii=False))
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
    from everturn.cli.render import arguments_block, clean, folded, marked
    from everturn.records import ToolCall

    facts = [conversation_id, status.state.replace("_", " "), f"turn {status.turn}"]
    facts.append(f"{status.usage.total_tokens:,} tokens")
    screen.line(" · ".join(map(clean, facts)), style=_STYLES.get(status.state, "bold"))
    if status.cause:
        screen.line(marked("trouble", folded(f"{status.cause} {status.cure or ''}", 1000)))
    for waiting in status.waiting:
        call = ToolCall(call_id=waiting.call_id, name=waiting.tool, arguments=waiting.arguments)
        screen.line(marked("waits", folded(f"{waiting.tool} ({waiting.call_id}) waits: {waiting.why}", 500)))
        screen.line(arguments_block(call))
        verb = "approve" if status.state == "awaiting_approval" else "answer"
        rest = "" if verb == "approve" else " CONTENT"
        screen.line(f"    everturn {verb} {conversation_id} {waiting.call_id}{rest}", style="dim")


# ---------------------------------------------------------------- watch


async def _watch(conversation_id: str, *, as_json: bool) -> None:
    from everturn.cli.hosts import remote_client
    from everturn.cli.render import EventLines
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    lines = EventLines(width=screen.width)
    async with remote_client() as client:
        async for event in client.conversation(conversation_id).events():
            if as_json:
                print(event.model_dump_json(), flush=True)
            else:
                screen.lines(lines.of(event))
