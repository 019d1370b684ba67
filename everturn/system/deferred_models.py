"""When pydantic builds what validates and writes a record."""

from __future__ import annotations

from typing import Final

from pydantic import VERSION

LOCKS_SINCE: Final = (2, 14)
"""Before this version, a record that two threads used first at once was without its validator for one of them
(pydantic#13438)."""


def minor_version(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


DEFER_BUILD: Final = minor_version(VERSION) >= LOCKS_SINCE
"""Records are built when they are first used: a short run uses a third of the 150 that a worker imports."""
