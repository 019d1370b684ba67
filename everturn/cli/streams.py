"""Standard streams that somebody has closed: before the command began, or while it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


def stand_in_for_closed_ones() -> None:
    """Without one, Python has None in its place, and the next file or socket takes its number: what somebody prints
    would go in there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            if os.open(os.devnull, os.O_RDWR) != number:  # the lowest number that is free
                raise
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def let_go_of_broken_ones() -> None:
    """Nobody reads any more: what is left in the buffers goes nowhere, and is no second error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@contextmanager
def results_only() -> Iterator[None]:
    """What is printed in the block is no result: it goes to standard error. So does what programs print that are
    started in it, for those know only the file descriptor."""
    kept = os.dup(1)
    try:
        sys.stdout.flush()
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
