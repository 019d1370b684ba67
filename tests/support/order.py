"""Which tests `make test` leaves to `make pages`, and in which order each runs its own, so that no process still has a
long one to do when the others have ended.

xdist cuts the list into one piece for each process; whoever is through with theirs takes from the end of another's. So
each piece has its share of the long ones long before its end, and ends with what is done at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

FIRST_OF_LONG = (
    *("tests/crash/test_mutants.py", "tests/workflows/test_image.py", "tests/crash/test_storm.py"),
    *("tests/crash/test_keys.py", "tests/test_docs_types.py", "tests/unit/test_types.py"),
    *("tests/ui/test_temporal_web_ui.py", "tests/workflows/test_mcp_npm.py", "tests/simulation/test_mutants_found.py"),
    *("tests/workflows/test_fleet_limits.py", "tests/workflows/test_closed_streams.py"),
    *("tests/workflows/test_one_law.py", "tests/workflows/test_real_starts.py"),
)
"""What takes longest in `make long`, the longest first. In `make test`, little is left of these files."""

FIRST = (
    *FIRST_OF_LONG,
    *("tests/workflows/test_batches.py", "tests/workflows/test_user_code.py", "tests/crash/test_task_timeouts.py"),
    *("tests/crash/test_kills.py", "tests/workflows/test_mcp.py", "tests/workflows/test_gate.py"),
    *("tests/workflows/test_devserver.py", "tests/workflows/test_evaluations.py", "tests/workflows/test_mcp_floods.py"),
    *("tests/crash/test_bad_input.py", "tests/workflows/test_awaited_worker.py", "tests/unit/test_mcp_errors.py"),
    *("tests/workflows/test_tenant_budgets.py", "tests/workflows/test_continue_as_new.py"),
    *("tests/workflows/test_following.py", "tests/workflows/test_roles.py", "tests/workflows/test_steering.py"),
    *("tests/workflows/test_waiting_across_runs.py", "tests/workflows/test_killed_worker.py"),
    *("tests/workflows/test_activity_tools.py", "tests/workflows/test_server_dies.py"),
    *("tests/workflows/test_tool_retries.py", "tests/workflows/test_ui_ai_sdk.py"),
    *("tests/simulation/test_newer_worlds.py", "tests/workflows/test_decisions_in_time.py"),
    *("tests/providers/test_aimock.py", "tests/workflows/test_told_results.py", "tests/workflows/test_restored.py"),
    *("tests/unit/test_connections.py", "tests/simulation/test_simulation.py"),
    *("tests/test_docs.py", "tests/ui/test_inbox_reach.py", "tests/ui/test_inbox.py", "tests/ui/test_inbox_http.py"),
)
"""The files that take longest, the longest first."""

PAGES = (
    *("tests/ui/", "tests/test_docs", "tests/test_site.py", "tests/test_cookbook.py", "tests/test_beside.py"),
    *("tests/workflows/test_ui_", "tests/workflows/test_live_front_ends.py", "tests/workflows/test_doors.py"),
)
"""The tests of what people read and click: browsers, the chats of other front ends, and each program of the docs."""

LONG = re.compile(r"mark\.long")
"""What makes a test `long`."""

LAST = ("tests/providers/", "tests/unit/", "tests/replay/", "tests/test_docs_commands.py")
"""Where most tests are, and nearly each takes some milliseconds."""


def in_pieces(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    files = [(name, list(those)) for name, those in groupby(items, key=lambda item: item.nodeid.partition("::")[0])]
    first = sorted((file for file in files if file[0] in FIRST), key=lambda file: FIRST.index(file[0]))
    last = [file for file in files if file[0].startswith(LAST) and file not in first]
    between = [file for file in files if file not in first and file not in last]
    left = [item for _, those in last for item in those]
    pieces: list[list[pytest.Item]] = []
    for number in range(processes):
        # What takes longest mostly waits: one process after the other has it, beside those that compute meanwhile.
        others = between[number::processes]
        before = len(others) * number // processes
        ordered = [*others[:before], *first[number::processes], *others[before:]]
        pieces.append([item for _, those in ordered for item in those])
    size = len(items) // processes
    for piece in pieces[:-1]:
        room = max(0, size - len(piece))
        piece.extend(left[:room])
        del left[:room]
    return [item for piece in [*pieces[:-1], [*pieces[-1], *left]] for item in piece]


@cache
def may_have_long_ones(file: Path) -> bool:
    return LONG.search(file.read_text()) is not None
