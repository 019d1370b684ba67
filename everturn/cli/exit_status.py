"""What a command ends with: its exit status, and one line that says what went wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import typer

from everturn.cli import streams
from everturn.errors import EverturnError
from everturn.text.printable import printable_line
from everturn.text.utf8 import is_utf8

# Typer brings its own copy of click, or uses the installed one: this is the base class of both copies' usage errors.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)

_OUTPUT_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def run_app(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Runs the command of these arguments and returns its exit status: 0, 1 (it failed), 2 (usage), 130 (Ctrl-C). Says
    why in one line."""
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
        return _report_usage_error(error, app, arguments)
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


def _report_usage_error(error: Exception, app: typer.Typer, arguments: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return 2  # the help is printed already
    command = context.command_path if context else _command_in(app, arguments)
    message = " ".join(getattr(error, "format_message", error.__str__)().split())
    if not message.endswith((".", "?")):
        message += "."
    return _print_error(f"{command}: {message} See {command} --help.", status=2)


def _command_in(app: typer.Typer, arguments: Sequence[str]) -> str:
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
