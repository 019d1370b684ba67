"""What `everturn doctor` found out about a part: one line of its list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from everturn.errors import EverturnError


@dataclass(frozen=True)
class Finding:
    part: str
    state: Literal["ok", "wrong", "note"]
    """`note`: the part is not needed, or could not be checked."""
    detail: str
    cure: str = ""
    conversations: tuple[str, ...] = ()
    """The ids of all conversations that a finding of --against is about."""


def wrong_finding(part: str, error: EverturnError) -> Finding:
    return Finding(part, "wrong", error.message, error.cure)
