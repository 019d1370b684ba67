"""Recorded conversations are answered with the commands that are expected, to the letter."""

from __future__ import annotations

import pytest

from everturn.heartbeats.profiles import QUICK
from tests.replay import EXPECTED, HISTORIES
from tests.replay.commands import answers, commands
from tests.support.bounds import Bounds
from tests.support.machine_names import named_in

NAMES = sorted(file.stem for file in HISTORIES.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_history_is_answered_with_the_commands_that_are_expected(name: str, bounds: Bounds) -> None:
    """A field of a payload that gets another name replays, and is empty for who reads it."""
    bounds(heartbeat_timeout=QUICK.timeout)
    expected = (EXPECTED / f"{name}.jsonl").read_text()
    assert commands(await answers(HISTORIES / f"{name}.json")) == expected.splitlines(), (
        "It asks Temporal for something else. If that is meant: `python -m tests.replay.commands` writes down what it "
        "asks for now; read what differs."
    )
    assert named_in(expected) == [], "what is expected names no machine and no process"


def test_nothing_else_is_expected() -> None:
    assert sorted(file.stem for file in EXPECTED.glob("*.jsonl")) == NAMES
