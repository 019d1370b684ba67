"""What a conversation says that can't read what it was given, and waits for a person. Its history says only that, in a
marker of Temporal's patches; the readers of histories find the words again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

UNREADABLE_START: Final = "unreadable start"
"""The patch of a run that could not read what the run before handed on."""

STALLED_BY_SIGNALS: Final = "stalled by unreadable signals "
"""The patch of a run that is stalled since signals could not be read; their numbers follow, from 1 on: `2,5`."""

MOST_NAMED: Final = 20
"""Of such signals in one stall; the others have the next one."""

DEPLOY_ITS_CODE: Final = "Deploy the code that wrote it, then resume."

SEND_AGAIN: Final = (
    "Set EVERTURN_STORAGE to the same value on all workers and clients, send it again if it matters, then resume."
)


def start_problem(reason: str) -> str:
    """`why`: empty if it can be read by now."""
    return f"The carry-over of the earlier run can't be read: {reason or 'it could not, when the run began'}"


def signals_problem(signals: Sequence[str], reason: str) -> str:
    """`signals`: their names. `why`: empty if whoever asks has not seen them come."""
    if len(signals) == 1:
        return f"A {signals[0]!r} signal can't be read: {reason or 'it could not, when it came'}"
    all_of_them = ", ".join(map(repr, signals))
    return f"{len(signals)} signals can't be read ({all_of_them}): {reason or 'they could not, when they came'}"
