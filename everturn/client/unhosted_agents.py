"""Refuses a start with the name of an agent that no worker hosts, and says which ones they host."""

from __future__ import annotations

import time

from temporalio.client import Client
from temporalio.service import RPCError

from everturn.client import listing, pollers
from everturn.errors import InvalidAgent
from everturn.temporal.filter_values import quoted
from everturn.temporal.ids import keyword
from everturn.temporal.namespace import Namespace
from everturn.validation.spelling import nearest_name

LOOK_AGAIN_SECONDS = 30.0
"""The pause before asking again which agents workers host, if that was not known."""


class CheckedAgents:
    """The names of agents that may be started on a task queue, as far as they were checked."""

    def __init__(self, temporal: Client, task_queue: str, namespace: Namespace) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._namespace = namespace
        self._checked: set[str] = set()
        self._unknown_until = 0.0

    async def refuse_unhosted(self, agent: str) -> None:
        """Raises InvalidAgent for a name that no worker hosts and no conversation ever had. An agent that had a worker
        before may wait for one; and if it is not known which agents are hosted, any name passes."""
        if agent in self._checked or time.monotonic() < self._unknown_until:
            return
        hosted = await pollers.hosted_beside(agent, self._temporal, self._task_queue)
        if hosted is None:
            self._unknown_until = time.monotonic() + LOOK_AGAIN_SECONDS
            return
        if hosted and not await self._ever_had(agent):
            a_worker = "a worker that has it: everturn worker --agents FILE.py."
            cure = f"Start {a_worker}"
            if near := nearest_name(agent, hosted):
                cure = f"Did you mean {near!r}? If not, start {a_worker}"
            raise InvalidAgent(
                f"No worker on task queue {self._task_queue!r} hosts the agent {agent!r:.200}; "
                f"they host {', '.join(sorted(hosted)):.500}.",
                cure=cure,
            )
        self._checked.add(agent)

    async def _ever_had(self, agent: str) -> bool:
        """Whether this queue ever had a conversation with the agent; True if the server does not say."""
        if not await self._namespace.indexed():
            return True
        query = f"{listing.build_query(agent=keyword(agent))} AND TaskQueue = {quoted(self._task_queue)}"
        try:
            return bool((await self._temporal.count_workflows(query)).count)
        except RPCError:
            return True
