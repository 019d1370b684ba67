"""Standard streams that were closed: before the command began, or while it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


def stand_in_for_closed_ones() -> None:
    """Opens the null device in place of closed standard streams. Otherwise the next file or socket would take the
    stream's number, and get what somebody prints."""
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
    """Drops what is left in the buffers if nobody reads any more, so that it causes no second error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@contextmanager
def results_only() -> Iterator[None]:
    """Sends what is printed in the block to standard error, since it is no result. Programs started in the block print
    there too: they only know the file descriptors."""
    kept = os.dup(1)
    try:
        sys.stdout.flush()
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
