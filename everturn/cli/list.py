"""`everturn list`: the conversations of a namespace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.labels import labels_of
from everturn.cli.options import JsonOption
from everturn.cli.output import print_json

if TYPE_CHECKING:
    from everturn.client.listing import ListedConversation


def list_(
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="running, batched, awaiting_approval, stalled, stuck, idle, done ...",
            autocompletion=completion.offer_statuses,
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="NAME", help="Only conversations of this agent.", autocompletion=completion.offer_agents
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
        status = _parse_status(status)
    counts, conversations = asyncio.run(
        _list_conversations(limit, status=status, agent=agent, **labels_of(tenant, metadata))
    )
    if as_json:
        print_json({"counts": counts, "conversations": [_as_json(conversation) for conversation in conversations]})
    else:
        _print_table(
            counts,
            conversations,
            searched=_describe_search(status=status, agent=agent, tenant=tenant, metadata=metadata),
        )


def _parse_status(given: str) -> str:
    from everturn.client.listing import STATUSES

    status = given.lower().replace("-", "_")
    if status not in STATUSES:
        raise typer.BadParameter(f"{given!r} is not a status. There are {', '.join(STATUSES)}", param_hint="--status")
    return status


async def _list_conversations(
    limit: int, *, agent: str | None, **wanted: Any
) -> tuple[dict[str, int], list[ListedConversation]]:
    from everturn.cli.connect import remote_client

    conversations: list[ListedConversation] = []
    async with remote_client() as client:
        async for conversation in client.conversations(agent=agent, **wanted):
            conversations.append(conversation)
            if len(conversations) == limit:
                break
        counts = await client.count(agent)
    return counts, conversations


def _as_json(conversation: ListedConversation) -> dict[str, Any]:
    return {
        **vars(conversation),
        "started_at": conversation.started_at.isoformat(),
        "ended_at": conversation.ended_at.isoformat() if conversation.ended_at else None,
    }


def _describe_search(*, metadata: list[str] | None, **wanted: str | None) -> str:
    """What was asked for, in words: `tenant acme, metadata user=jane`; and how it is found."""
    filters = [f"{name} {value}" for name, value in wanted.items() if value is not None]
    filters += [f"metadata {label}" for label in metadata or ()]
    description = ""
    if filters:
        description = f" Searched for: {', '.join(filters)}."
    if wanted["tenant"] is not None:
        description += (
            " A tenant is in the index, unless EVERTURN_VISIBILITY is minimal; with encoded payloads or "
            'EVERTURN_INDEX_TENANTS=false, only if start(searchable=["tenant"]) named it.'
        )
    if metadata:
        description += " Metadata is in the index only if start(searchable=[...]) named it."
    return description


def _print_table(counts: dict[str, int], conversations: list[ListedConversation], *, searched: str) -> None:
    from rich.text import Text

    from everturn.cli.render import STATE_STYLES, marked_text, one_line, table_lines
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    if counts:
        screen.print_line(_in_words(counts), style="bold")
    if not conversations:
        Screen().print_line(f"No conversation matches.{searched}")
        return
    rows = [
        (
            conversation.id,
            Text(conversation.status, style=STATE_STYLES.get(conversation.status, "")),
            conversation.agent,
            conversation.model,
            f"{conversation.tokens:,}",
            _format_age(conversation.started_at),
            one_line(_labels(conversation), 60),
        )
        for conversation in conversations
    ]
    heading = ("ID", "STATUS", "AGENT", "MODEL", "TOKENS", "STARTED", "LABELS")
    width = len(heading)
    if not any(conversation.tenant or conversation.metadata for conversation in conversations):
        width -= 1
    screen.print_lines(table_lines(heading[:width], [row[:width] for row in rows]))
    for conversation in conversations:
        if conversation.trouble:
            screen.print_line(
                marked_text("trouble", one_line(f"{conversation.id} is stuck: {conversation.trouble}.", 500))
            )


def _labels(conversation: ListedConversation) -> str:
    from everturn.tenants.metadata import in_words

    labels = in_words(conversation.metadata)
    if conversation.tenant:
        labels = f"for {conversation.tenant}, {labels}"
    return labels.strip(", ")


def _in_words(counts: dict[str, int]) -> str:
    """The counts as words, those that wait for a person first: `2 awaiting approval · 1 stalled · 14 done`."""
    urgent = ("awaiting_approval", "awaiting_answer", "stalled", "stuck")
    order = sorted(counts, key=lambda status: (status not in urgent, status == "done"))
    return " · ".join(f"{counts[status]:,} {status.replace('_', ' ')}" for status in order)


def _format_age(moment: datetime) -> str:
    seconds = int((datetime.now(UTC) - moment).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{max(seconds, 0)} s ago"
