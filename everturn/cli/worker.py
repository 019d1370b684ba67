"""`everturn worker`: a process that hosts agents."""

from __future__ import annotations

from typing import Annotated

import typer

from everturn.cli.options import AgentsOption, settings_with


def worker(
    agents: AgentsOption = None,
    task_queue: Annotated[
        str | None, typer.Option("--task-queue", metavar="NAME", help="Instead of EVERTURN_TASK_QUEUE.")
    ] = None,
    roles: Annotated[
        str | None,
        typer.Option(
            "--roles",
            metavar="ROLE,...",
            help="What it does: workflows, models, tools. The rest is on task queues of its own. "
            "Instead of EVERTURN_ROLES; without it, everything.",
        ),
    ] = None,
    restored_at: Annotated[
        str | None,
        typer.Option(
            "--restored-at",
            metavar="TIME",
            help="The server's database was restored at this time: once calls that may have run in what was lost wait.",
        ),
    ] = None,
) -> None:
    """Host agents until Ctrl-C or SIGTERM, then finish the running calls."""
    from everturn.worker.process import run, serve

    run(serve(settings_with(agents, task_queue, restored_at=restored_at, roles=roles)))
