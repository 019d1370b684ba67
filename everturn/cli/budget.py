"""`everturn budget`: what a tenant may use, and what is spent of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli.options import JsonOption
from everturn.cli.output import print_json
from everturn.errors import NotFound
from everturn.text.commands import command_about

if TYPE_CHECKING:
    from everturn import Client
    from everturn.budgets.records import BudgetStatus
    from everturn.limits import Budget


def budget(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="As in client.start(..., tenant=).")],
    tokens: Annotated[
        int | None, typer.Option("--tokens-per-day", metavar="N", min=0, help="Of all turns. 0: no limit.")
    ] = None,
    usd: Annotated[
        float | None, typer.Option("--usd-per-day", metavar="USD", min=0, help="For the models. 0: no limit.")
    ] = None,
    tokens_month: Annotated[
        int | None, typer.Option("--tokens-per-month", metavar="N", min=0, help="The same, a month.")
    ] = None,
    usd_month: Annotated[
        float | None, typer.Option("--usd-per-month", metavar="USD", min=0, help="The same, a month.")
    ] = None,
    tokens_total: Annotated[
        int | None, typer.Option("--tokens-total", metavar="N", min=0, help="In all. It never opens by itself.")
    ] = None,
    usd_total: Annotated[
        float | None, typer.Option("--usd-total", metavar="USD", min=0, help="In all. It never opens by itself.")
    ] = None,
    conversations: Annotated[
        int | None, typer.Option("--conversations", metavar="N", min=0, help="At work at once. 0: no limit.")
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option("--lease-minutes", metavar="MIN", min=0.02, help="Without a turn, until one is not at work."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the budget away.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a tenant may use and has used; or set it, or take it away. What is not given stays as it is."""
    changes: dict[str, Any] = {
        "tokens_per_day": tokens,
        "usd_per_day": usd,
        "tokens_per_month": tokens_month,
        "usd_per_month": usd_month,
        "tokens_total": tokens_total,
        "usd_total": usd_total,
        "conversations": conversations,
        "lease": None if lease is None else timedelta(minutes=lease),
    }
    changes = {name: value or None for name, value in changes.items() if value is not None}
    if remove and changes:
        raise typer.BadParameter("--remove takes the whole budget away: give it alone.")
    asyncio.run(_run_budget(tenant, changes, remove=remove, as_json=as_json))


async def _run_budget(tenant: str, changes: dict[str, Any], *, remove: bool, as_json: bool) -> None:
    from everturn.cli.connect import remote_client

    async with remote_client() as client:
        if remove:
            await client.set_budget(tenant, None)
            if not as_json:
                print(f"{tenant!r} has no budget any more.")
            return
        if changes:
            await client.set_budget(tenant, await _changed_budget(client, tenant, changes))
        status = await client.budget(tenant)
    if status is None:
        raise NotFound(
            f"Tenant {tenant!r} has no budget.",
            cure=f"`{command_about('budget', tenant)} --usd-per-day 50` sets one.",
        )
    if as_json:
        print_json(status.as_json())
    else:
        _print_status(status)


async def _changed_budget(client: Client, tenant: str, changes: dict[str, Any]) -> Budget:
    """The tenant's budget, changed to the given values."""
    from everturn.limits import Budget

    current = await client.budget(tenant)
    budget = current.budget.as_budget() if current else Budget()
    return Budget(**{**dict(budget), **changes})


def _print_status(status: BudgetStatus) -> None:
    from everturn.cli.render import table_lines
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    screen.print_lines(table_lines((f"{status.tenant} on {status.day}", "USED", "OF"), _rows(status)))
    if status.unpriced_turns:
        screen.print_line(
            f"{status.unpriced_turns:,} of {status.turns:,} turns have no known price, and count no dollars."
        )
    if status.conversations:
        line = f"At work: {', '.join(status.conversations)}"
        if status.at_work > len(status.conversations):
            line += " …"
        screen.print_line(line)
    if status.waiting:
        screen.print_line(f"{status.waiting:,} conversations are stalled for it, and go on by themselves.")
    line = ""
    if status.declared:
        line = "Set by the workers' settings."
    elif status.by:
        line = f"Set by {status.by}."
    screen.print_line(line, style="dim")


def _rows(status: BudgetStatus) -> list[tuple[str, str, str]]:
    terms = status.budget
    rows = [
        _row_of_tokens("tokens", status.tokens, terms.tokens_per_day),
        _row_of_dollars("dollars", status.cost_usd, terms.usd_per_day),
    ]
    if terms.tokens_per_month is not None:
        rows.append(_row_of_tokens(f"tokens in {status.month}", status.tokens_this_month, terms.tokens_per_month))
    if terms.usd_per_month is not None:
        rows.append(_row_of_dollars(f"dollars in {status.month}", status.cost_usd_this_month, terms.usd_per_month))
    if terms.tokens_total is not None:
        rows.append(_row_of_tokens("tokens in all", status.tokens_total, terms.tokens_total))
    if terms.usd_total is not None:
        rows.append(_row_of_dollars("dollars in all", status.cost_usd_total, terms.usd_total))
    if terms.conversations:
        rows.append(("conversations at work", f"{status.at_work:,}", f"{terms.conversations:,}"))
    return rows


def _row_of_tokens(label: str, used: int, most: int | None) -> tuple[str, str, str]:
    return label, f"{used:,}", "-" if most is None else f"{most:,}"


def _row_of_dollars(label: str, used: float, most: float | None) -> tuple[str, str, str]:
    return label, f"{used:,.4f}", "-" if most is None else f"{most:,.2f}"
