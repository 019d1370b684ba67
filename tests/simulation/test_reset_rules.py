"""The rule that a call which is made again after a reset has another key: by which runs began it, and not by what took
effect first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

import pytest

from everturn.history.steps import Step, ToolScheduled
from everturn.payloads import ToolRequest
from tests.simulation.agents.ledger import Effect
from tests.simulation.people.people import Acknowledged
from tests.simulation.rules.chains import keys_are_new_after_a_reset
from tests.simulation.rules.conversations import Evidence
from tests.simulation.temporal.runs import Run

BASES = {"first": None, "second": ("first", 5), "third": ("second", 25)}
"""Each run was reset from the one before it, and shares so many events with it."""


def evidence(begun_at: dict[str, int], took_effect: Sequence[str]) -> Evidence:
    """Of one call, which each of these runs has begun at this event, and which took effect in these runs, in turn."""
    return Evidence(
        id="talk",
        agent="clerk",
        transcript=(),
        runs=[(_run(name), [_scheduled(begun_at[name])] if name in begun_at else []) for name in BASES],
        asked=(),
        effects=[Effect("talk", "pay", "c1", "key", 1, {}, "worker", 0.0, name) for name in took_effect],
        told=Acknowledged(),
        deploys=False,
    )


def _run(name: str) -> Run:
    return Run(name, "talk", "first", Random(name), name, base=BASES[name])


def _scheduled(event: int) -> Step:
    request = ToolRequest(agent="clerk", turn=1, call_id="c1", arguments={})
    return ToolScheduled(id=event, at=datetime.now(UTC), tool="pay", request=request)


@pytest.mark.parametrize("took_effect", [("second", "third"), ("third", "second")])
def test_what_was_begun_before_a_reset_and_taken_over_keeps_its_key_whichever_ends_first(
    took_effect: Sequence[str],
) -> None:
    one = evidence({"second": 20, "third": 20}, took_effect)
    assert [*keys_are_new_after_a_reset(one)] == []


@pytest.mark.parametrize("took_effect", [("first", "second"), ("second", "first")])
def test_what_is_begun_anew_after_a_reset_needs_another_key_whichever_ends_first(took_effect: Sequence[str]) -> None:
    one = evidence({"first": 10, "second": 10}, took_effect)
    assert [*keys_are_new_after_a_reset(one)] == ["pay c1 ran before and after a reset, both times as key"]
