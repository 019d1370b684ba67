"""The arithmetic of docs/scale.md."""

from __future__ import annotations

import pytest

from benchmarks.capacity import Turn, a_day, most, need, shards

CPU_MS = {"database": 10.0, "server": 25.0, "workers": 15.0}
TURN = Turn(CPU_MS, events=12.0, history_bytes=6_000, database_bytes=20_000, log_bytes=30_000)


def test_a_million_conversations_of_20_turns_a_day_are_231_turns_a_second() -> None:
    assert a_day(1_000_000, 20) == pytest.approx(231.5, abs=0.1)


def test_cores_are_what_the_turns_take_by_how_busy_a_core_may_be() -> None:
    found = need(TURN, turns_a_second=200.0, busy=0.5)
    assert found.cores == {"database": 4.0, "server": 10.0, "workers": 6.0}


def test_bytes_and_events_grow_with_the_turns_alone() -> None:
    found = need(TURN, turns_a_second=100.0)
    assert found.events_a_second == 1_200
    assert found.history_gb_a_day == pytest.approx(51.84)
    assert found.database_gb_a_day == pytest.approx(172.8)
    assert found.log_mb_a_second == pytest.approx(3.0)


@pytest.mark.parametrize(("events", "wanted"), [(0, 1), (10, 1), (11, 2), (2_800, 512), (5_121, 1024)])
def test_shards_are_a_power_of_two_that_is_enough(events: float, wanted: int) -> None:
    assert shards(events) == wanted


def test_a_machine_that_runs_everything_makes_as_many_turns_as_its_cores_have_time_for() -> None:
    assert most(sum(CPU_MS.values()), cores=2) == 40.0
