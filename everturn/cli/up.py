"""`everturn up`: Temporal with its Web UI, and a worker if agents are named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli.options import AgentsOption, settings_with
from everturn.errors import Unreachable

if TYPE_CHECKING:
    from everturn.agent import Agent
    from everturn.settings import Settings


def up(
    port: Annotated[int, typer.Option(help="The Temporal server's port.")] = 7233,
    ui_port: Annotated[int, typer.Option(help="The Web UI's port.")] = 8233,
    db: Annotated[
        Path, typer.Option(metavar="FILE", help="The SQLite file in which the server keeps its data.")
    ] = Path(".everturn/temporal.db"),
    agents: AgentsOption = None,
) -> None:
    """Start Temporal with its Web UI, and a worker if you name agents, until Ctrl-C."""
    asyncio.run(_run_up(settings_with(agents, None), port=port, ui_port=ui_port, db=db))


async def _run_up(settings: Settings, *, port: int, ui_port: int, db: Path) -> None:
    from everturn.cli.server_watch import while_it_runs
    from everturn.cli.terminal import Screen
    from everturn.devserver import connect_or_start
    from everturn.worker.process import prepare_process

    prepare_process(settings)
    screen = Screen()
    agents = _load_agents(settings.agents)
    screen.show_busy("starting Temporal")
    reported: list[Unreachable] = []

    def report_lost(error: Unreachable) -> None:
        reported.append(error)
        screen.print_line(f"Error: {error}", style="red")

    try:
        async with (
            connect_or_start(db_filename=db, port=port, ui_port=ui_port) as endpoint,
            while_it_runs(endpoint.server, at_once=report_lost),
        ):
            screen.stop_spinner()
            to_use = f"elsewhere: export TEMPORAL_ADDRESS={endpoint.address}"
            screen.print_line(
                f"Temporal   {endpoint.address}   ({to_use if endpoint.server else 'yours, as configured'})"
            )
            screen.print_line(f"Web UI     {endpoint.ui_url or 'where your Temporal has it'}")
            screen.print_line(
                f"Agents     {', '.join(agent.name for agent in agents) or 'none: name some with --agents'}"
            )
            screen.print_line("Ctrl-C ends it.", style="dim")
            await _run_worker(agents, settings, endpoint.options)
    except Unreachable as error:
        if error in reported:
            raise typer.Exit(1) from None
        raise


async def _run_worker(agents: list[Agent], settings: Settings, options: dict[str, Any]) -> None:
    from everturn.cli.connect import require_namespace
    from everturn.client.client import Client
    from everturn.worker.worker import Worker

    if agents:
        client = await Client.connect(task_queue=settings.task_queue, **options)
        await require_namespace(client)
        await Worker(client, agents=agents).run()
    else:
        await _until_signal()


async def _until_signal() -> None:
    import signal

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


def _load_agents(specs: tuple[str, ...]) -> list[Agent]:
    from everturn.loading import load_agents

    if not specs:
        return []
    return load_agents(",".join(specs))
