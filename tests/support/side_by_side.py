"""The cases of a test that share its worker, and run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

Case = TypeVar("Case")
Result = TypeVar("Result")


async def side_by_side(run: Callable[[Case], Awaitable[Result]], cases: Mapping[str, Case]) -> dict[str, Result]:
    """What each case came to, by its name. All of them run to their end, and each that fails is named: a test of its
    own for each would start a worker and look through the server's list once more."""
    results = await asyncio.gather(*map(run, cases.values()), return_exceptions=True)
    came_to: dict[str, Result] = {}
    failures: list[BaseException] = []
    for name, result in zip(cases, results, strict=True):
        if isinstance(result, BaseException):
            result.add_note(f"This was the case {name!r}.")
            failures.append(result)
        else:
            came_to[name] = result
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)
    return came_to
