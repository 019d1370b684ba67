"""What a user's message may be made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from everturn.records import Part

USERS_KINDS: Final = ("text", "image", "document")
"""The parts that a user's message may have."""


def kinds_problem(parts: str | Sequence[Part]) -> str | None:
    """Why these can't be a user's message; None if they can. Providers refuse calls, results and thoughts that nobody
    made, and would refuse each later turn, too. It is no check of the type: recorded conversations have taken some."""
    wrong = next((part.kind for part in parts if not isinstance(part, str) and part.kind not in USERS_KINDS), None)
    if wrong is None:
        return None
    return f"A user's message has no parts of the kind {wrong!r}. It has {', '.join(USERS_KINDS)}."
