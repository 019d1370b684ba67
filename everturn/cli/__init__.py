"""The `everturn` command. Each command is in the module of its name; what is heavy is imported when one runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

import typer

from everturn.cli import exit_status, streams
from everturn.cli.approve import answer, approve, deny
from everturn.cli.budget import budget
from everturn.cli.cases import cases
from everturn.cli.chat import chat
from everturn.cli.codec import codec
from everturn.cli.cost import cost
from everturn.cli.demo import demo
from everturn.cli.doctor import doctor
from everturn.cli.erase import erase
from everturn.cli.evaluations import evaluations
from everturn.cli.export import export
from everturn.cli.fork import fork
from everturn.cli.help import Command
from everturn.cli.list import list_
from everturn.cli.mcp import mcp
from everturn.cli.models import models
from everturn.cli.queues import queues
from everturn.cli.replay import replay
from everturn.cli.rerun import rerun
from everturn.cli.run import run
from everturn.cli.send import send
from everturn.cli.show import show
from everturn.cli.steer import cancel_turn, close, pause, resume
from everturn.cli.tools import tools
from everturn.cli.up import up
from everturn.cli.watch import watch
from everturn.cli.web import web
from everturn.cli.worker import worker
from everturn.worker.drain_deadline import end_process

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Talk": (run, chat, send),
    "Host": (demo, up, worker, codec, mcp),
    "Decide and steer": (web, approve, deny, answer, pause, resume, cancel_turn, close, fork, erase),
    "Look": (
        *(list_, show, watch, cost, budget, queues, export, tools, models),
        *(replay, rerun, cases, evaluations, doctor),
    ),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        name = _command.__name__.rstrip("_").replace("_", "-")
        app.command(name, cls=Command, rich_help_panel=_panel)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"everturn {version('everturn')}")
        raise typer.Exit


@app.callback()
def _everturn(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable agent loops on Temporal: conversations that survive crashes, deploys and waits.

    Begin with `everturn demo`. TEMPORAL_ADDRESS names a Temporal server. Without it, run, chat, up and demo
    start one, and the other commands look for one at localhost:7233.
    """


def main() -> NoReturn:
    """Runs the command of this process's arguments, and ends the process."""
    streams.stand_in_for_closed_ones()
    end_process(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit status."""
    return exit_status.run_app(app, arguments)
