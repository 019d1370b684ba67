"""`everturn cases`: recorded conversations as cases, in files for git."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.labels import labels_of
from everturn.cli.options import JsonOption
from everturn.cli.output import print_json, print_text

if TYPE_CHECKING:
    from everturn.evals import Collected

FOLDER = Path("cases")
NO_REDACTION = "none"


def cases(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the files are, or are to be.")
    ] = FOLDER,
    query: Annotated[
        str | None, typer.Option("--query", metavar="QUERY", help="Only those that Temporal's filter finds.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Only of this agent.", autocompletion=completion.offer_agents),
    ] = None,
    version: Annotated[str | None, typer.Option("--version", help="Only of this version of an agent.")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", help="done, idle, stalled ... Default: all at rest.", autocompletion=completion.offer_statuses
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="Only started with this. May be repeated."),
    ] = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only if a person denied a call.")] = False,
    edited: Annotated[bool, typer.Option("--edited", help="Only if a person edited a call's arguments.")] = False,
    answered: Annotated[bool, typer.Option("--answered", help="Only if a person answered in a tool's place.")] = False,
    stalled: Annotated[bool, typer.Option("--stalled", help="Only if it has stalled at least once.")] = False,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="Read only N, drawn at random.")
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            "--redact",
            metavar="PATTERN|FILE.py:NAME",
            help="What to take out: email, iban, card, phone, ip (default: all of these), a Pattern or a function in "
            "a file; none. May be repeated.",
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also remove files whose conversations Temporal may have deleted itself.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write recorded conversations as cases for git, without personal data. Safe to repeat.

    Several of --denied, --edited, --answered and --stalled: one of them is enough. Files of erased conversations are
    removed.
    """
    wanted = {"denied": denied, "edited": edited, "answered": answered, "stalled": stalled}
    options: dict[str, Any] = {"query": query, "agent": agent, "version": version, "status": status, "sample": sample}
    options |= labels_of(tenant, metadata)
    options |= {"labels": [label for label, is_wanted in wanted.items() if is_wanted], "prune": prune}
    if redact is not None:
        options["redact"] = _load_rules(redact)
    collected = asyncio.run(_collect(output, options))
    if as_json:
        print_json(_as_json(collected))
    else:
        print_text("\n".join(_lines(output, collected)))


def _load_rules(rules: list[str]) -> list[Any]:
    """Names of patterns stay; a function or a Pattern of a file is loaded."""
    from everturn.system.user_modules import load_object

    if NO_REDACTION in rules:
        if len(rules) > 1:
            raise typer.BadParameter("none goes with nothing else", param_hint="--redact")
        return []
    return [load_object(rule) if ":" in rule else rule for rule in rules]


async def _collect(folder: Path, options: dict[str, Any]) -> Collected:
    from everturn.cli.connect import remote_client
    from everturn.evals import collect_cases

    async with remote_client() as client:
        return await collect_cases(client, folder, **options)


def _lines(folder: Path, collected: Collected) -> list[str]:
    conversations = {case.inputs.conversation for case in collected.cases}
    lines = [f"{len(collected.cases)} cases of {len(conversations)} conversations in {folder}"]
    lines += [f"wrote {file}" for file in collected.written]
    lines += [f"removed {file}: its conversation was erased, or --prune asked for it" for file in collected.removed]
    lines += [f"kept {file}: its conversation is gone, and may be past its retention" for file in collected.gone]
    if collected.under_way:
        lines.append(f"left out, since they are under way: {collected.under_way}")
    return lines


def _as_json(collected: Collected) -> dict[str, Any]:
    files = {name: list(map(str, getattr(collected, name))) for name in ("written", "removed", "gone")}
    return {"cases": [case.name for case in collected.cases], **files, "under_way": collected.under_way}
