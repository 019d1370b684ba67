"""What was found by what comes in one workflow task, each by its world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.world import WILD, Draw, run


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(34, id="cancel_turn-and-a-reply"),  # its history never closed the reply's calls
        pytest.param(72, id="cancel_turn-and-a-reply-whose-calls-wait"),
        pytest.param(11, id="close-a-message-and-a-reply"),
    ],
)
def test_what_was_found_stays_mended(seed: int) -> None:
    assert run(seed, draw=replace(Draw.of(seed), coincidences=0.3)).broken == []


def test_wild_worlds_have_coincidences_and_others_do_not() -> None:
    assert {Draw.of(seed).coincidences for seed in range(20)} == {0.0}
    assert {Draw.of(seed).coincidences for seed in range(WILD, WILD + 20)} == {0.2, 0.6}
    assert any(run(seed).counts.get("coincidences") for seed in range(WILD, WILD + 5))
