"""`everturn budget`: what a tenant may use, and what is spent of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli.options import JsonOption
from everturn.cli.output import tell_json
from everturn.errors import NotFound

if TYPE_CHECKING:
    from everturn import Client
    from everturn.limits import Budget
    from everturn.tenants.budgets import BudgetStatus


def budget(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="As in client.start(..., tenant=).")],
    tokens: Annotated[
        int | None, typer.Option("--tokens-per-day", metavar="N", min=0, help="Of all turns. 0: no limit.")
    ] = None,
    usd: Annotated[
        float | None, typer.Option("--usd-per-day", metavar="USD", min=0, help="For the models. 0: no limit.")
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
    """Show what a tenant may use and has used today; or set it, or take it away. What is not given stays as it is."""
    given: dict[str, Any] = {
        "tokens_per_day": tokens,
        "usd_per_day": usd,
        "conversations": conversations,
        "lease": None if lease is None else timedelta(minutes=lease),
    }
    given = {name: value or None for name, value in given.items() if value is not None}
    if remove and given:
        raise typer.BadParameter("--remove takes the whole budget away: give it alone.")
    asyncio.run(_budget(tenant, given, remove=remove, as_json=as_json))


async def _budget(tenant: str, given: dict[str, Any], *, remove: bool, as_json: bool) -> None:
    from everturn.cli.connect import remote_client

    async with remote_client() as client:
        if remove:
            await client.set_budget(tenant, None)
            if not as_json:
                print(f"{tenant!r} has no budget any more.")
            return
        if given:
            await client.set_budget(tenant, await _changed(client, tenant, given))
        found = await client.budget(tenant)
    if found is None:
        raise NotFound(
            f"Tenant {tenant!r} has no budget.", cure=f"`everturn budget {tenant} --usd-per-day 50` sets one."
        )
    if as_json:
        tell_json(found.as_json())
    else:
        _print(found)


async def _changed(client: Client, tenant: str, given: dict[str, Any]) -> Budget:
    """The tenant's budget, changed to the given values."""
    from everturn.limits import Budget

    now = await client.budget(tenant)
    terms: dict[str, Any] = {}
    if now:
        known = now.budget
        terms = {name: getattr(known, name) for name in ("tokens_per_day", "usd_per_day", "conversations")}
        terms["lease"] = timedelta(seconds=known.lease)
    return Budget(**{**terms, **given})


def _print(found: BudgetStatus) -> None:
    from everturn.cli.render import columns
    from everturn.cli.terminal import Screen

    screen, terms = Screen(to_stdout=True), found.budget
    rows = [
        ("tokens", f"{found.tokens:,}", "-" if terms.tokens_per_day is None else f"{terms.tokens_per_day:,}"),
        ("dollars", f"{found.cost_usd:,.4f}", "-" if terms.usd_per_day is None else f"{terms.usd_per_day:,.2f}"),
    ]
    if terms.conversations:
        rows.append(("conversations at work", f"{found.at_work:,}", f"{terms.conversations:,}"))
    screen.lines(columns((f"{found.tenant} on {found.day}", "USED", "OF"), rows))
    if found.unpriced_turns:
        screen.line(f"{found.unpriced_turns:,} of {found.turns:,} turns have no known price, and count no dollars.")
    if found.conversations:
        screen.line(
            f"At work: {', '.join(found.conversations)}{' …' if found.at_work > len(found.conversations) else ''}"
        )
    if found.waiting:
        screen.line(f"{found.waiting:,} conversations are stalled for it, and go on by themselves.")
    by = "the workers' settings" if found.declared else found.by
    screen.line(f"Set by {by}." if by else "", style="dim")
