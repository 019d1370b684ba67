"""`everturn queues`: the task queues of a fleet, and their limits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everturn.cli.options import JsonOption, ReasonOption
from everturn.cli.output import print_json

if TYPE_CHECKING:
    from everturn.client.task_queues import QueueStatus
    from everturn.limits import QueueLimit


def queues(
    role: Annotated[
        Literal["models", "tools"] | None,
        typer.Argument(metavar="[models|tools]", help="Whose queue to limit. Without it, all queues are shown."),
    ] = None,
    per_second: Annotated[
        float | None,
        typer.Option("--per-second", metavar="N", min=0, help="Activities of all tenants. 0 holds it."),
    ] = None,
    per_tenant: Annotated[
        float | None, typer.Option("--per-tenant", metavar="N", min=0, help="Activities a second of each tenant.")
    ] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Take the queue's limits away.")] = False,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the task queues, their workers and what waits there; or limit the queue of model turns or tools. What is not
    given stays as it is."""
    given = {"per_second": per_second, "per_tenant_per_second": per_tenant}
    change = {name: value for name, value in given.items() if value is not None}
    if no_limit and change:
        raise typer.BadParameter("--no-limit takes all limits away: give it alone.")
    if (change or no_limit) and role is None:
        raise typer.BadParameter("say whose queue: models or tools.")
    if role and not (change or no_limit):
        raise typer.BadParameter("give a limit (--per-second, --per-tenant), or --no-limit.")
    asyncio.run(_run_queues(role, change, reason=reason or "", as_json=as_json))


async def _run_queues(
    role: Literal["models", "tools"] | None, change: dict[str, float], *, reason: str, as_json: bool
) -> None:
    from everturn.cli.connect import remote_client
    from everturn.limits import QueueLimit

    async with remote_client() as client:
        if role:
            current = next(
                (status.limit for status in await client.task_queues() if status.roles == (role,)), QueueLimit()
            )
            wanted: QueueLimit | None = None
            if change:
                wanted = QueueLimit(**{**current.model_dump(), **change})
            await client.limit_task_queue(role, wanted, reason=reason)
        statuses = await client.task_queues()
    if as_json:
        print_json([status.as_json() for status in statuses], indent=2)
    else:
        _print_queues(statuses)


def _print_queues(statuses: tuple[QueueStatus, ...]) -> None:
    from everturn.cli.render import table_lines
    from everturn.cli.terminal import Screen

    rows = [
        (
            status.name,
            ", ".join(status.roles),
            str(len(status.workers)) if status.workers else "none",
            f"{status.waiting:,}",
            _in_words(status.limit, status.reason),
        )
        for status in statuses
    ]
    Screen(to_stdout=True).print_lines(table_lines(("QUEUE", "ROLES", "WORKERS", "WAITING", "LIMIT"), rows))


def _in_words(limit: QueueLimit, reason: str) -> str:
    parts = []
    if limit.per_second is not None:
        parts.append(f"{limit.per_second:g}/s")
    if limit.per_tenant_per_second is not None:
        parts.append(f"{limit.per_tenant_per_second:g}/s for each tenant")
    if not parts:
        return "-"
    words = ", ".join(parts)
    if reason:
        words += f" ({reason})"
    return words
