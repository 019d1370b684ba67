"""Which conversations share their beginning with another one: its forks, the forks of these, and so on.

Each fork says in its memo which conversations it shares its beginning with, all of them. So it is found also if the one
that it was forked from is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_core import from_json
from temporalio.client import Client, WorkflowExecution

from everturn import names
from everturn.client.listing import quoted


@dataclass(frozen=True)
class Fork:
    id: str
    line: tuple[str, ...]
    """The conversations that it shares its beginning with, the nearest first."""


async def forks_by_ancestor(client: Client) -> dict[str, list[Fork]]:
    """All forks, by the id of each conversation that they share their beginning with; before a fork, those that it
    comes from. Reads the memo of every conversation."""
    found: dict[str, Fork] = {}
    async for one in client.list_workflows(f"WorkflowType = {quoted(names.CONVERSATION)}"):
        if line := _line(one):
            found.setdefault(one.id, Fork(one.id, line))
    by_ancestor: dict[str, list[Fork]] = {}
    for fork in sorted(found.values(), key=lambda one: len(one.line)):
        for ancestor in fork.line:
            by_ancestor.setdefault(ancestor, []).append(fork)
    return by_ancestor


def _line(execution: WorkflowExecution) -> tuple[str, ...]:
    memo = execution.raw_info.memo.fields
    if names.FORK_LINE in memo:
        return tuple(from_json(memo[names.FORK_LINE].data))
    return (from_json(memo[names.FORKED_FROM].data),) if names.FORKED_FROM in memo else ()
