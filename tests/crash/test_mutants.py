"""The crash test finds what it is there to find: everturns that are wrong, each in a way of its own. In short: half of
them, one of each kind; `make crash MUTANTS=1` has all."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.drill import Drill
from tests.crash.invariants import broken
from tests.crash.mutants import MUTANTS
from tests.crash.report import report
from tests.crash.storm import server
from tests.crash.workers import ROOT

IN_SHORT = ["approval-lost", "inbox-dropped", "once-again", "once-twice", "result-dropped"]
"""A lost approval, a run that goes on as a new one, a kill, an effect that comes twice, a lost result."""

SOUND = ""


async def drilled(folder: Path) -> dict[str, Drill]:
    """One with everturn as it is, and one with each mutant; together, on one server."""

    async def drilled_with(name: str) -> Drill:
        own = folder / (name or "sound")
        own.mkdir()
        drill = Drill(own, shared, mutant=name, kills=name == SOUND or MUTANTS[name].kills)
        await drill.run()
        return drill

    async with server(folder) as shared:
        names = [SOUND, *IN_SHORT]
        return dict(zip(names, await asyncio.gather(*map(drilled_with, names)), strict=True))


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_everturn_as_it_is_breaks_no_rule_and_each_mutant_is_found_by_what_is_wrong(tmp_path: Path) -> None:
    """One test: the drills go on together, and of several tests another process would take some, and do all of the
    drills again."""
    drills = await drilled(tmp_path)
    sound = drills.pop(SOUND)
    assert broken(sound) == [], report(sound)
    assert len(sound.ended) == len(sound.stories)
    _assert_that_all_happened_that_mutants_get_wrong(sound)
    found = {name: broken(drill) for name, drill in drills.items()}
    missed = [name for name in IN_SHORT if not any(re.search(MUTANTS[name].found, what) for what in found[name])]
    assert missed == [], [(found[name], report(drills[name])) for name in missed]


def _assert_that_all_happened_that_mutants_get_wrong(sound: Drill) -> None:
    assert any(kill.hits for kill in sound.kills)
    assert any(handed > 0 for evidence in sound.evidence for handed in evidence.handed_on)
    edits = [edit for evidence in sound.evidence for given in evidence.approvals.values() for edit in given]
    assert None in edits
    assert any(edit is not None for edit in edits)
    decided = {
        result.decision.verdict
        for evidence in sound.evidence
        for message in evidence.transcript
        for result in message.tool_results
        if result.decision
    }
    assert decided == {"approve", "deny"}


def test_there_are_eleven() -> None:
    assert len(MUTANTS) == 11


APPLY_ALL = """
from tests.crash.mutants import MUTANTS, BatchSending, State, Tool, Commands, OpenCalls, continue_as_new, tool_calls
patched = (BatchSending, State, Tool, Commands, OpenCalls, continue_as_new, tool_calls)
for name, mutant in MUTANTS.items():
    before = [dict(vars(one)) for one in patched]
    mutant.apply()
    after = [dict(vars(one)) for one in patched]
    assert [sorted(one) for one in after] == [sorted(one) for one in before], f"{name} patches what is not there"
    assert after != before, f"{name} patches nothing"
"""


def test_each_mutant_patches_what_is_there() -> None:
    # In a process of its own, which nothing else has to go on in.
    applied = subprocess.run(
        [sys.executable, "-c", APPLY_ALL], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert applied.returncode == 0, applied.stderr
