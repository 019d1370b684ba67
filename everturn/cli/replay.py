"""`replay`: do the conversations of yesterday run on the code of today?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.options import JsonOption
from everturn.cli.output import print_json, print_text

EXAMPLES = 3
"""How many conversations a line names."""


def replay(
    histories: Annotated[
        list[Path] | None, typer.Argument(metavar="HISTORY", help="Files that `temporal workflow show -o json` wrote.")
    ] = None,
    id: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Replay this conversation's history from the server.",
            autocompletion=completion.offer_ids,
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="QUERY",
            help="Replay all conversations that this filter finds, as for `temporal workflow list`.",
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="With --query: only N of them, drawn at random.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded histories with this version's code. Prints OK for each, or the place where it diverged."""
    if not histories and not id and query is None:
        what = "nothing to replay: name files with histories, a conversation with --id, or many with --query"
        raise typer.BadParameter(what, param_hint="HISTORY")
    if query is not None and (histories or id):
        raise typer.BadParameter("it can't be used together with files or --id", param_hint="--query")
    if sample and query is None:
        raise typer.BadParameter("it goes with --query", param_hint="--sample")
    # The SDK logs a divergence too, with a traceback; ours is one line.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    if query is not None:
        summary = asyncio.run(_replay_found(query, sample))
        if as_json:
            print_json(summary)
        else:
            print_text("\n".join(_in_words(summary)))
        if summary["findings"]:
            raise typer.Exit(1)
        return
    rows = asyncio.run(_replay_histories(histories or [], id))
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            print_text(f"OK {row['history']} ({row['events']} events)" if row["ok"] else f"FAILED {row['problem']}")
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


async def _replay_histories(files: list[Path], conversation_id: str | None) -> list[dict[str, Any]]:
    from everturn import logs
    from everturn.testing.replay import read_histories, replay_history

    logs.forward_core_logs()
    rows = [await _replay_row(str(file), replay_history(file)) for file in files]
    if conversation_id:
        from everturn.cli.connect import remote_client

        async with remote_client() as client:
            for number, history in enumerate(await read_histories(client, conversation_id), 1):
                replayed = replay_history(history, data_converter=client.temporal.data_converter)
                rows.append(await _replay_row(f"{conversation_id} run {number}", replayed))
    return rows


async def _replay_row(name: str, replayed: Awaitable[int]) -> dict[str, Any]:
    from everturn.errors import EverturnError

    row: dict[str, Any] = {"history": name, "ok": False, "events": None, "problem": None}
    try:
        return {**row, "ok": True, "events": await replayed}
    except EverturnError as error:
        return {**row, "problem": str(error)}


async def _replay_found(query: str, sample: int | None) -> dict[str, Any]:
    from everturn import logs
    from everturn.cli.connect import remote_client
    from everturn.client.conversations_by_query import draw_sample, find_matching
    from everturn.testing.replay import Diverged, replay_all

    logs.forward_core_logs()
    replayed = events = 0
    findings: dict[str, dict[str, Any]] = {}
    async with remote_client() as client:
        executions = draw_sample(find_matching(client.temporal, query), sample)
        async with aclosing(replay_all(client, executions)) as done:
            async for result in done:
                replayed += 1
                events += len(result.history.events)
                if result.problem is None:
                    continue
                diverged = isinstance(result.problem, Diverged)
                if isinstance(result.problem, Diverged):
                    problem = f"diverges: {result.problem.where}"
                    kind = result.problem.kind
                else:
                    problem = kind = result.problem.message
                finding = findings.setdefault(kind, {"problem": problem, "diverged": diverged, "histories": []})
                finding["histories"].append({"id": result.history.workflow_id, "run_id": result.history.run_id})
    listed = sorted(findings.values(), key=lambda finding: -len(finding["histories"]))
    wrong = sum(len(finding["histories"]) for finding in listed)
    return {"replayed": replayed, "ok": replayed - wrong, "events": events, "findings": listed}


def _in_words(summary: dict[str, Any]) -> list[str]:
    from everturn.cli.render import format_count

    lines = [f"OK {summary['ok']:,} of {format_count(summary['replayed'], 'run')} ({summary['events']:,} events)"]
    for finding in summary["findings"]:
        ids = list(dict.fromkeys(history["id"] for history in finding["histories"]))
        more = f" and {len(ids) - EXAMPLES:,} more" if len(ids) > EXAMPLES else ""
        lines.append(f"FAILED {len(finding['histories']):,}: {', '.join(ids[:EXAMPLES])}{more}: {finding['problem']}")
    return lines
