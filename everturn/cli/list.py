"""`everturn list`: the conversations of a namespace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.labels import labels_of
from everturn.cli.options import JsonOption
from everturn.cli.output import tell_json

if TYPE_CHECKING:
    from everturn.client.listing import ListedConversation


def list_(
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="running, awaiting_approval, stalled, stuck, idle, done ...",
            autocompletion=completion.statuses,
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="NAME", help="Only conversations of this agent.", autocompletion=completion.agents
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="Only conversations of this tenant."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata",
            metavar="KEY=VALUE",
            help="Only conversations with this metadata, if they were started searchable by it. May be repeated.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The largest number to list.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List conversations, newest first, under a line with their counts. A change may take a second to show."""
    if status is not None:
        status = _status(status)
    counts, listed = asyncio.run(_list(limit, status=status, agent=agent, **labels_of(tenant, metadata)))
    if as_json:
        tell_json({"counts": counts, "conversations": [_as_json(one) for one in listed]})
    else:
        _print_table(counts, listed, searched=_searched(status=status, agent=agent, tenant=tenant, metadata=metadata))


def _status(given: str) -> str:
    from everturn.client.listing import STATUSES

    status = given.lower().replace("-", "_")
    if status not in STATUSES:
        raise typer.BadParameter(f"{given!r} is not a status. There are {', '.join(STATUSES)}", param_hint="--status")
    return status


async def _list(limit: int, *, agent: str | None, **wanted: Any) -> tuple[dict[str, int], list[ListedConversation]]:
    from everturn.cli.connect import remote_client

    listed: list[ListedConversation] = []
    async with remote_client() as client:
        async for one in client.conversations(agent=agent, **wanted):
            listed.append(one)
            if len(listed) == limit:
                break
        counts = await client.count(agent)
    return counts, listed


def _as_json(one: ListedConversation) -> dict[str, Any]:
    return {
        **vars(one),
        "started_at": one.started_at.isoformat(),
        "ended_at": one.ended_at.isoformat() if one.ended_at else None,
    }


def _searched(*, metadata: list[str] | None, **wanted: str | None) -> str:
    """What was asked for, in words: `tenant acme, metadata user=jane`; and how it is found."""
    asked = [f"{name} {value}" for name, value in wanted.items() if value is not None]
    asked += [f"metadata {one}" for one in metadata or ()]
    said = f" Searched for: {', '.join(asked)}." if asked else ""
    if wanted["tenant"] is not None:
        said += (
            " A tenant is in the index, unless EVERTURN_VISIBILITY is minimal; with encoded payloads or "
            'EVERTURN_INDEX_TENANTS=false, only if start(searchable=["tenant"]) named it.'
        )
    if metadata:
        said += " Metadata is in the index only if start(searchable=[...]) named it."
    return said


def _print_table(counts: dict[str, int], listed: list[ListedConversation], *, searched: str) -> None:
    from rich.text import Text

    from everturn.cli.render import STATE_STYLES, columns, folded, marked
    from everturn.cli.terminal import Screen
    from everturn.tenants.metadata import in_words

    screen = Screen(to_stdout=True)
    if counts:
        screen.line(_in_words(counts), style="bold")
    if not listed:
        Screen().line(f"No conversation matches.{searched}")
        return
    rows = [
        (
            one.id,
            Text(one.status, style=STATE_STYLES.get(one.status, "")),
            one.agent,
            one.model,
            f"{one.tokens:,}",
            _ago(one.started_at),
            folded(", ".join([*([f"for {one.tenant}"] if one.tenant else []), in_words(one.metadata)]).strip(", "), 60),
        )
        for one in listed
    ]
    heading = ("ID", "STATUS", "AGENT", "MODEL", "TOKENS", "STARTED", "LABELS")
    width = len(heading) if any(one.tenant or one.metadata for one in listed) else len(heading) - 1
    screen.lines(columns(heading[:width], [row[:width] for row in rows]))
    for one in listed:
        if one.trouble:
            screen.line(marked("trouble", folded(f"{one.id} is stuck: {one.trouble}.", 500)))


def _in_words(counts: dict[str, int]) -> str:
    """The counts as words, those that wait for a person first: `2 awaiting approval · 1 stalled · 14 done`."""
    urgent = ("awaiting_approval", "awaiting_answer", "stalled", "stuck")
    order = sorted(counts, key=lambda status: (status not in urgent, status == "done"))
    return " · ".join(f"{counts[status]:,} {status.replace('_', ' ')}" for status in order)


def _ago(moment: datetime) -> str:
    seconds = int((datetime.now(UTC) - moment).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{max(seconds, 0)} s ago"
