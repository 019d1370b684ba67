"""The `everturn` command. Each command is in the module of its name; what is heavy is imported when one runs."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, NoReturn, cast

import typer

from everturn.cli import streams
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
from everturn.errors import EverturnError
from everturn.text.printable import printable_line
from everturn.text.utf8 import is_utf8
from everturn.worker.drain_deadline import end_process

# Typer brings its own copy of click, or uses the installed one: this is the base class of both copies' usage errors.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)

_OUTPUT_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)

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
    """Runs a command and returns its exit status: 0, 1 (it failed), 2 (usage), 130 (Ctrl-C). Says why in one line."""
    for stream in (sys.stdout, sys.stderr):
        # If the terminal can't show a character, another is shown: the command must not fail for that.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")
    if wrong := [argument for argument in arguments if not is_utf8(argument)]:
        return _print_error(f"everturn: {wrong[0]!r} is not UTF-8.", status=2)
    try:
        return app([*arguments], prog_name="everturn", standalone_mode=False) or 0
    except SystemExit as ended:  # shell completion ends with SystemExit
        return ended.code if isinstance(ended.code, int) else 0
    except _UsageError as error:
        return _report_usage_error(error, arguments)
    except EverturnError as error:
        return _report_failure(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return 128 + signal.SIGINT
    except asyncio.CancelledError:  # only Temporal's worker cancels a command, if it can't go on
        return _report_failure("Temporal refused the worker. `everturn doctor` checks the connection.")
    except BrokenPipeError:  # whoever read our output has stopped reading
        streams.let_go_of_broken_ones()
        return 1
    except Exception as error:  # noqa: BLE001 - a person sees one line for any error, and no traceback
        return _report_unexpected(error)


def _report_usage_error(error: Exception, arguments: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return 2  # the help is printed already
    command = context.command_path if context else _command_in(arguments)
    message = " ".join(getattr(error, "format_message", error.__str__)().split())
    if not message.endswith((".", "?")):
        message += "."
    return _print_error(f"{command}: {message} See {command} --help.", status=2)


def _command_in(arguments: Sequence[str]) -> str:
    """The name of the command, for usage errors that the parser raises before it knows it: a missing value, say."""
    first = next((argument for argument in arguments if not argument.startswith("-")), "")
    if any(first == command.name for command in app.registered_commands):
        return f"everturn {first}"
    return "everturn"


def _report_failure(message: str) -> int:
    return _print_error(f"everturn: {message}", status=1)


def _report_unexpected(error: Exception) -> int:
    from temporalio.service import RPCError

    if os.environ.get("EVERTURN_LOG_LEVEL") == "debug":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, RPCError):
        return _report_failure(f"Temporal said no: {error.message}. `everturn doctor` checks the connection.")
    if isinstance(error, OSError) and error.errno in _OUTPUT_TROUBLE:
        streams.let_go_of_broken_ones()
        return _report_failure(f"The output can't be written: {error.strerror}.")
    kind = type(error).__name__
    what = str(error) or "no message"
    return _report_failure(
        f"{kind}: {what}. EVERTURN_LOG_LEVEL=debug shows where; if it is not your own, please report it."
    )


def _print_error(message: str, *, status: int) -> int:
    with suppress(OSError):  # nobody reads the output any more
        print(printable_line(message), file=sys.stderr)
    return status
