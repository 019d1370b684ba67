"""Which tests `make test` leaves to `make pages`, and in which order each runs its own, so that no process still has a
long one to do when the others have ended.

xdist cuts the list into one piece for each process; whoever is through with theirs takes from the end of another's. So
each but the last piece begins with its share of the long ones, and ends with what is done at once."""

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

WAITING = (
    *("tests/workflows/test_batches.py", "tests/crash/test_kills.py", "tests/crash/test_task_timeouts.py"),
    *("tests/workflows/test_user_code.py", "tests/workflows/test_devserver.py", "tests/workflows/test_evaluations.py"),
    *("tests/workflows/test_killed_worker.py", "tests/workflows/test_server_dies.py"),
    *("tests/workflows/test_steering.py", "tests/workflows/test_awaited_worker.py", "tests/workflows/test_roles.py"),
    *("tests/workflows/test_cli_run.py", "tests/workflows/test_live_http.py", "tests/unit/test_connections.py"),
    *("tests/providers/test_aimock.py", "tests/workflows/test_agent_store.py", "tests/workflows/test_drain.py"),
    *("tests/workflows/test_background.py", "tests/workflows/test_open_calls.py"),
)
"""The files that take long and compute little: they wait for time-outs, kills and programs. The longest first."""

FIRST = (
    *FIRST_OF_LONG,
    *("tests/workflows/test_mcp.py", "tests/workflows/test_activity_tools.py", "tests/workflows/test_webhooks.py"),
    *("tests/crash/test_bad_input.py", "tests/workflows/test_rerun.py", "tests/workflows/test_told_as_taken.py"),
    *("tests/workflows/test_nexus_tools.py", "tests/workflows/test_plugin.py", "tests/unit/test_mcp_errors.py"),
    *(
        "tests/workflows/test_tenant_budgets.py",
        "tests/workflows/test_restored.py",
        "tests/workflows/test_streaming.py",
    ),
    *("tests/workflows/test_tool_retries.py", "tests/workflows/test_erase.py", "tests/workflows/test_gate.py"),
    *("tests/workflows/test_cancelled_replies.py", "tests/workflows/test_waiting_below.py"),
    *("tests/simulation/test_simulation.py", "tests/workflows/test_storage.py", "tests/workflows/test_mcp_floods.py"),
    *(
        "tests/workflows/test_traces.py",
        "tests/simulation/test_coincidences.py",
        "tests/simulation/test_newer_worlds.py",
    ),
    *("tests/test_docs.py", "tests/ui/test_inbox_reach.py", "tests/ui/test_inbox.py", "tests/ui/test_inbox_http.py"),
)
"""The others that take longest, the longest first."""

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
    files = {name: list(those) for name, those in groupby(items, key=lambda item: item.nodeid.partition("::")[0])}
    waiting = [files.pop(name) for name in WAITING if name in files]
    first = [files.pop(name) for name in FIRST if name in files]
    cheap = [item for name, those in files.items() if name.startswith(LAST) for item in those]
    between = [those for name, those in files.items() if not name.startswith(LAST)]
    # Two fifths of the processes have what waits, so that the others find a core that is free.
    of_waiting = processes * 2 // 5 if waiting else 0
    others = [*first, *between] if of_waiting else [*waiting, *first, *between]
    shares = [waiting[number::of_waiting] for number in range(of_waiting)]
    shares += [others[number :: processes - of_waiting] for number in range(processes - of_waiting)]
    pieces = [[item for those in share for item in those] for share in shares]
    size = len(items) // processes
    for piece in pieces[:-1]:
        room = max(0, size - len(piece))
        piece.extend(cheap[:room])
        del cheap[:room]
    pieces[-1] = [*cheap, *pieces[-1]]  # what computes, beside those that still wait
    return [item for piece in pieces for item in piece]


@cache
def may_have_long_ones(file: Path) -> bool:
    return LONG.search(file.read_text()) is not None
