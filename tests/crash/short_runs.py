"""The bounds of the crash test: its workers and the replay of what they did agree on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from everturn.workflows import continue_as_new, sent_messages

RUN_EVENTS = "CRASH_TEST_RUN_EVENTS"
"""The environment variable that tells a worker after how many events a run is continued as a new one."""

TURN_CHARS = 4_000
"""Of messages, in one turn."""


def set_bounds(run_events: int) -> None:
    """Short runs, so that kills hit the change from one to the next, too. And small turns: one long message fills one,
    and others wait in the inbox when a run goes on as the next."""
    continue_as_new.MAX_EVENTS, sent_messages.MAX_INBOX_BYTES = run_events, TURN_CHARS


@contextmanager
def short_runs(run_events: int) -> Iterator[None]:
    """In a process that does other things, too."""
    before = continue_as_new.MAX_EVENTS, sent_messages.MAX_INBOX_BYTES
    set_bounds(run_events)
    try:
        yield
    finally:
        continue_as_new.MAX_EVENTS, sent_messages.MAX_INBOX_BYTES = before
