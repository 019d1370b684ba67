"""What a conversation says that can't read what it was given, and waits for a person. Its history says only that, in a
marker of Temporal's patches; the readers of histories find the words again."""

from __future__ import annotations

from typing import Final

UNREADABLE_START: Final = "unreadable start"
"""The patch of a run that could not read what the run before handed on."""

STALLED_BY_SIGNAL: Final = "stalled by unreadable signal "
"""The patch of a run that is stalled since a signal could not be read; its number follows, from 1 on."""

DEPLOY_ITS_CODE: Final = "Deploy the code that wrote it, then resume."

SEND_AGAIN: Final = (
    "Set EVERTURN_STORAGE to the same value on all workers and clients, send it again if it matters, then resume."
)


def start_problem(why: str) -> str:
    """`why`: empty if it can be read by now."""
    return f"The carry-over of the earlier run can't be read: {why or 'it could not, when the run began'}"


def signal_problem(name: str, why: str) -> str:
    """`why`: empty if whoever asks has not seen it come."""
    return f"A {name!r} signal can't be read: {why or 'it could not, when it came'}"
