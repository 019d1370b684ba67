"""Who may find out that a copy's everturn is wrong: the simulation, or tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.mutants.copies import Ran, run
from tests.simulation.world import WILD

SIMULATION_SECONDS = 3_600.0
TEST_SECONDS = 900.0

REPLAYS = ("tests/replay/test_histories.py", "tests/unit/test_web_ui.py", "tests/unit/test_recent_messages.py")
"""Seconds, and no server."""

_WORKFLOW_TESTS = """
    conversation approvals steering limits continue_as_new waiting_across_runs one_state odd_moments too_late
    told_results decisions_in_time wait_reasons following sub_agents unreadable awaited_worker compaction
    what_is_said large full_inbox history_budget worst_payloads idempotency_keys tool_retries reset revivals wire
"""
WORKFLOW_TESTS = tuple(f"tests/workflows/test_{name}.py" for name in _WORKFLOW_TESTS.split())
"""Those of the loop and of what its readers make of it, with a real server."""


_SEED = re.compile(r"seed (\d+)")


@dataclass(frozen=True)
class Found:
    where: str
    """The seed, or the test."""
    what: str
    """What is wrong, as the finder says it."""


@dataclass(frozen=True)
class Simulation:
    """Up to `count` conversations, until one breaks an invariant."""

    count: int
    sound: Path
    """A copy of everturn as it is: a seed that breaks an invariant there, too, is passed over."""
    known: int | None = None
    """The seed that found it the last time: tried first."""

    def find(self, folder: Path) -> Found | None:
        seed, end = WILD, WILD + self.count
        found = self._broken(folder, self.known, 1) if self.known in range(seed, end) else None
        if found and not self._broken(self.sound, self.known, 1):
            return found
        while found := self._broken(folder, seed, end - seed):
            if not (broken := _SEED.fullmatch(found.where)):
                return found
            if not self._broken(self.sound, int(broken[1]), 1):
                return found
            seed = int(broken[1]) + 1  # none of the mutant's doing
        return None

    def _broken(self, folder: Path, seed: int | None, count: int) -> Found | None:
        if seed is None or count < 1:
            return None
        options = ["--seed", str(seed), "--count", str(count), "--fail-fast", "--jobs", "1"]
        ran = run(folder, ["-m", "tests.simulation", *options], seconds=SIMULATION_SECONDS)
        if ran.status == 0:
            return None
        broken = re.search(rf"^({_SEED.pattern}): (.*)$", ran.output, re.M)
        return Found(broken[1], broken[3]) if broken else Found("no seed", _last_line(ran))


@dataclass(frozen=True)
class Tests:
    tests: Sequence[str]
    seconds: float = TEST_SECONDS

    def find(self, folder: Path) -> Found | None:
        options = [
            "-x",
            "-n0",
            "-rfE",
            "--tb=line",
            "--timeout=90",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
        ]
        ran = run(folder, ["-m", "pytest", *options, *self.tests], seconds=self.seconds)
        if ran.status == 0:
            return None
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?$", ran.output, re.M)
        return Found(failed[1], failed[2] or "") if failed else Found("its tests", _last_line(ran))


Finder = Simulation | Tests


def _last_line(ran: Ran) -> str:
    lines = [line for line in ran.output.splitlines() if line.strip()]
    return (lines[-1] if lines else "no word") if ran.status is not None else f"no end within {ran.seconds:.0f} s"
