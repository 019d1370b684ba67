"""What has to be true of tools that say when they want to be tried again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.rules.conversations import Evidence

LATE_SECONDS = 60.0
"""How much later than it is due a try may begin, where no worker is lost: half of it is spread, so that not all tries
come at once."""


def tries_come_when_they_were_asked_for(one: Evidence) -> Iterator[str]:
    """Neither sooner nor much later: where workers are lost, the server may not have heard of it."""
    if not one.quiet:
        return
    by_call: dict[str, list[tuple[float, float | None]]] = {}
    for tried in one.tries:
        by_call.setdefault(tried.call_id, []).append((tried.at, tried.after))
    for call_id, tries in by_call.items():
        for (at, after), (again, _) in pairwise(tries):
            if after is None or not after <= again - at <= after + LATE_SECONDS:
                yield f"{call_id} wanted to be tried again after {after} s, and was after {again - at:.1f} s"


RETRY_RULES = (tries_come_when_they_were_asked_for,)
