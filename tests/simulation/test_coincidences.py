"""What was found by what comes in one workflow task, each by its world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.world import WILD, Draw, run


@pytest.mark.parametrize(
    ("seed", "often"),
    [
        # cancel_turn came together with the policy's word, and the tool ran all the same
        (4, 0.3),
        # cancel_turn, or close and a message, came together with a reply: its history never closed the reply's calls
        (80, 0.3),
        (60, 0.3),
        # cancel_turn came together with a failure: by its history, the conversation was stalled
        (200, 0.3),
    ],
)
def test_what_was_found_stays_mended(seed: int, often: float) -> None:
    assert run(seed, draw=replace(Draw.of(seed), coincidences=often)).broken == []


def test_wild_worlds_have_coincidences_and_others_do_not() -> None:
    assert {Draw.of(seed).coincidences for seed in range(20)} == {0.0}
    assert {Draw.of(seed).coincidences for seed in range(WILD, WILD + 20)} == {0.1, 0.3}
    assert any(run(seed).counts.get("coincidences") for seed in range(WILD, WILD + 5))
