"""The bounds of the crash test: its workers and the replay of what they did agree on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.bounds import AS_THEY_ARE, set_for_good

RUN_EVENTS = "CRASH_TEST_RUN_EVENTS"
"""The environment variable that tells a worker after how many events a run is continued as a new one."""

TURN_CHARS = 4_000
"""Of messages, in one turn."""

BATCH_SETTLE_SECONDS = 3.0
"""So long a request may be on its way to the batch server, whose sender was killed. It takes milliseconds."""
BATCH_LOOK_SECONDS = 0.3


_SHORT = {
    "inbox_bytes": TURN_CHARS,
    "batch_settle_seconds": BATCH_SETTLE_SECONDS,
    "batch_look_seconds": BATCH_LOOK_SECONDS,
    "batch_poll_seconds": BATCH_LOOK_SECONDS,
}
_LONG = {name: AS_THEY_ARE[name] for name in ("events", *_SHORT)}
_inside = 0


def set_bounds(run_events: int) -> None:
    """Short runs, so that kills hit the change from one to the next, too. And small turns: one long message fills one,
    and others wait in the inbox when a run goes on as the next."""
    set_for_good(events=run_events, **_SHORT)


@contextmanager
def short_runs(run_events: int) -> Iterator[None]:
    """In a process that does other things, too. Several may be inside at a time: the last one out puts all back."""
    global _inside  # noqa: PLW0603 - as the bounds are
    _inside += 1
    set_bounds(run_events)
    try:
        yield
    finally:
        _inside -= 1
        if not _inside:
            set_for_good(**_LONG)
