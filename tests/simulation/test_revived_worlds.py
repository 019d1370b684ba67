"""Worlds that are about bugs of before come to those moments, and hold."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from everturn.state import State
from tests.simulation.situations.rare_moments import AIMED_REVIVED
from tests.simulation.world import run, seeds_of


@pytest.mark.timeout(600)
@pytest.mark.parametrize("situation", AIMED_REVIVED)
def test_they_hold(situation: str) -> None:
    for seed in islice(seeds_of([situation]), 2):
        assert run(seed).broken == [], seed


@pytest.mark.timeout(600)
def test_a_conversation_that_a_second_close_opens_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    close: Any = State.close

    def the_last_one_counts(state: State) -> None:
        state.abandoned = False
        close(state)

    monkeypatch.setattr(State, "close", the_last_one_counts)
    found = [what for seed in islice(seeds_of(["closed twice"]), 10) for what in run(seed).broken]
    assert any("began after it was closed while it was stalled" in what for what in found), found
