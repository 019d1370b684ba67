"""`everturn cost`: what a conversation has cost so far, on Temporal Cloud and with the models' providers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import print_json
from everturn.records import in_dollars
from everturn.temporal.temporal_prices import TemporalPrices

if TYPE_CHECKING:
    from everturn.client.costs import ConversationCost

_LIST = TemporalPrices()


def cost(
    id: IdArgument,  # noqa: A002
    per_million: Annotated[
        float, typer.Option("--actions-per-million", metavar="USD", min=0, help="Dollars for a million actions.")
    ] = _LIST.per_million_actions,
    active: Annotated[
        float,
        typer.Option(
            "--active-gb-hour", metavar="USD", min=0, help="Dollars for a gigabyte of open histories for an hour."
        ),
    ] = _LIST.active_gb_hour,
    retained: Annotated[
        float,
        typer.Option(
            "--retained-gb-hour", metavar="USD", min=0, help="Dollars for a gigabyte of closed histories for an hour."
        ),
    ] = _LIST.retained_gb_hour,
    retention: Annotated[
        float, typer.Option("--retention-days", metavar="DAYS", min=0, help="How many days closed histories are kept.")
    ] = _LIST.retention_days,
    as_json: JsonOption = False,
) -> None:
    """Show what a conversation and the agents that it asked have cost: actions, events, bytes, tokens, dollars."""
    prices = TemporalPrices(
        per_million_actions=per_million, active_gb_hour=active, retained_gb_hour=retained, retention_days=retention
    )
    costs = asyncio.run(_read_costs(id))
    total = _add_up(costs)
    if as_json:
        more = [_as_json(entry, prices) for entry in costs]
        print_json(
            {**_as_json(total, prices), "conversations": more, "prices": {**vars(prices), "source": prices.source}}
        )
    else:
        _print_costs(total, costs, prices)


async def _read_costs(conversation_id: str) -> list[ConversationCost]:
    from everturn.cli.connect import remote_client
    from everturn.client.costs import costs_of

    async with remote_client() as client:
        return await costs_of(client.temporal, conversation_id)


def _add_up(costs: list[ConversationCost]) -> ConversationCost:
    from everturn.client.costs import ConversationCost

    total = ConversationCost(costs[0].id, beginnings=costs[0].beginnings)
    for entry in costs:
        total.add(entry)
    return total


def _as_json(entry: ConversationCost, prices: TemporalPrices) -> dict[str, Any]:
    return {
        "id": entry.id,
        "beginnings": entry.beginnings,
        "runs": entry.runs,
        "turns": entry.turns,
        "actions": entry.actions.total(),
        "actions_by_kind": dict(entry.actions),
        "events": entry.events,
        "bytes": entry.bytes,
        "usage": entry.usage.model_dump(),
        "model_usd": entry.model_usd,
        "temporal_usd": entry.temporal_usd(prices),
    }


def _print_costs(total: ConversationCost, costs: list[ConversationCost], prices: TemporalPrices) -> None:
    from everturn.cli.render import table_lines
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    heading = ("CONVERSATION", "TURNS", "ACTIONS", "EVENTS", "KB", "TOKENS IN", "OUT", "MODELS", "TEMPORAL")
    rows = [_table_row(entry.id, entry, prices) for entry in costs]
    if len(costs) > 1:
        rows.append(_table_row("all", total, prices))
    screen.print_lines(table_lines(heading, rows))
    for entry in costs:
        if entry.beginnings > 1:
            screen.print_line(
                f"{entry.id}: {entry.beginnings} conversations have had this id, one after the other. "
                "They are added up.",
                style="bold",
            )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in total.actions.most_common())
    screen.print_line(
        f"Actions: {kinds}. Heartbeats are estimated from how long activities ran; turns with streamed text had more."
    )
    if total.model_usd is None:
        screen.print_line("-: no price is known for a model.")
    screen.print_line(
        f"Temporal: {prices.per_million_actions:g} dollars for a million actions, {prices.active_gb_hour:g} and "
        f"{prices.retained_gb_hour:g} for a GB-hour of open and closed histories, kept {prices.retention_days:g} days "
        f"({prices.source}). Queries, plans and the budgets of tenants are not in it; on a server of your own, "
        "none of it is billed.",
        style="dim",
    )


def _table_row(name: str, entry: ConversationCost, prices: TemporalPrices) -> tuple[str, ...]:
    return (
        name,
        f"{entry.turns:,}",
        f"{entry.actions.total():,}",
        f"{entry.events:,}",
        f"{entry.bytes / 1000:,.1f}",
        f"{entry.usage.input_tokens:,}",
        f"{entry.usage.output_tokens:,}",
        "-" if entry.model_usd is None else in_dollars(entry.model_usd),
        f"{entry.temporal_usd(prices):.6f}",
    )
