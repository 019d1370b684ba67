"""Which turn of which conversation an activity works on: its own; but a collector's activity, which sends a batch,
works on the turns of many conversations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from temporalio import activity


@dataclass(frozen=True, slots=True)
class TurnPlace:
    conversation_id: str
    run_id: str
    activity_id: str
    """Of the `call_model` that has the turn's request as its input."""


_standing_in: ContextVar[TurnPlace | None] = ContextVar("standing_in", default=None)


def turn_place() -> TurnPlace:
    if place := _standing_in.get():
        return place
    info = activity.info()
    return TurnPlace(info.workflow_id or "", info.workflow_run_id or "", info.activity_id)


@contextmanager
def standing_in_for(place: TurnPlace) -> Iterator[None]:
    """In the block, this activity works on that turn."""
    token = _standing_in.set(place)
    try:
        yield
    finally:
        _standing_in.reset(token)
