"""`replay`: do the conversations of yesterday run on the code of today?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.options import JsonOption
from everturn.cli.output import tell, tell_json


def replay(
    histories: Annotated[
        list[Path] | None, typer.Argument(metavar="HISTORY", help="Files of `temporal workflow show -o json`.")
    ] = None,
    id: Annotated[  # noqa: A002
        str | None,
        typer.Option("--id", metavar="ID", help="A conversation on the server.", autocompletion=completion.ids),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded histories with this version's code: an OK line for each, or where it diverged."""
    if not histories and not id:
        raise typer.BadParameter("what? Name files with histories, or a conversation with --id", param_hint="HISTORY")
    # The SDK logs a divergence too, with a traceback; ours is one line.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    rows = asyncio.run(_replay(histories or [], id))
    if as_json:
        tell_json(rows)
    else:
        for row in rows:
            tell(f"OK {row['history']} ({row['events']} events)" if row["ok"] else f"FAILED {row['problem']}")
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


async def _replay(files: list[Path], conversation_id: str | None) -> list[dict[str, Any]]:
    from everturn import logs
    from everturn.testing.replay import read_histories, replay_history

    logs.forward_core_logs()
    rows = [await _row(str(file), replay_history(file)) for file in files]
    if conversation_id:
        from everturn.cli.connect import remote_client

        async with remote_client() as client:
            for number, history in enumerate(await read_histories(client, conversation_id), 1):
                replayed = replay_history(history, data_converter=client.temporal.data_converter)
                rows.append(await _row(f"{conversation_id} run {number}", replayed))
    return rows


async def _row(name: str, replayed: Awaitable[int]) -> dict[str, Any]:
    from everturn.errors import EverturnError

    row: dict[str, Any] = {"history": name, "ok": False, "events": None, "problem": None}
    try:
        return {**row, "ok": True, "events": await replayed}
    except EverturnError as error:
        return {**row, "problem": str(error)}
