"""Which conversations share their beginning with another one: its forks, the forks of these, and so on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json
from temporalio.client import Client
from temporalio.client import WorkflowExecution as ListedWorkflow
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.temporal.filter_values import quoted
from everturn.tenants.metadata import FORK_OF, MORE_FORKS_OF, search_keyword

_CONVERSATIONS: Final = f"WorkflowType = {quoted(names.CONVERSATION)}"

_NOT_INDEXED: Final = f"{names.EVERTURN_METADATA} IS NULL AND ParentWorkflowId IS NULL"
"""Agents that are asked, and what workflows of the application have started, are no forks."""


@dataclass(frozen=True)
class Fork:
    id: str
    line: tuple[str, ...]
    """The conversations that it shares its beginning with, the nearest first."""


class ForkLines:
    """Which conversations share their beginning with another one: its forks, the forks of these, and so on.

    Each fork says in its memo which conversations it shares its beginning with, all of them. So it is found also if the
    one that it was forked from is gone. Temporal's index has the same, as far as there is room, if the namespace had
    the search attribute when the fork was started. Of the others, the memos are read. The index lags: a fork may take a
    second to be found.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._not_indexed: list[Fork] | None = None
        """The forks that only a look into the memos finds; None if nobody has looked yet."""

    async def find_forks(self, conversation_id: str) -> list[Fork]:
        """Before a fork, those that it comes from."""
        forks = {fork.id: fork for fork in await self._without_index() if conversation_id in fork.line}
        for keyword in (search_keyword(FORK_OF, conversation_id), MORE_FORKS_OF):
            try:
                async for fork in self._search_forks(f"{names.EVERTURN_METADATA} = {quoted(keyword)}"):
                    if conversation_id in fork.line:  # what is long is cut in the index
                        forks.setdefault(fork.id, fork)
            except RPCError as error:
                if error.status is not RPCStatusCode.INVALID_ARGUMENT:  # the namespace lacks the attribute
                    raise
        return sorted(forks.values(), key=lambda fork: len(fork.line))

    async def _without_index(self) -> list[Fork]:
        if self._not_indexed is None:
            try:
                self._not_indexed = [fork async for fork in self._search_forks(_NOT_INDEXED)]
            except RPCError as error:
                if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                    raise
                self._not_indexed = [fork async for fork in self._search_forks("")]
        return self._not_indexed

    async def _search_forks(self, those: str) -> AsyncIterator[Fork]:
        query = _CONVERSATIONS
        if those:
            query = f"{_CONVERSATIONS} AND {those}"
        async for execution in self._client.list_workflows(query):
            if line := _fork_line(execution):
                yield Fork(execution.id, line)


def _fork_line(execution: ListedWorkflow) -> tuple[str, ...]:
    memo = execution.raw_info.memo.fields
    if names.FORK_LINE in memo:
        return tuple(from_json(memo[names.FORK_LINE].data))
    if names.FORKED_FROM in memo:
        return (from_json(memo[names.FORKED_FROM].data),)
    return ()
