"""Which conversations are stuck, and why: a workflow task fails again and again, or no worker runs their version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import temporalio.client
from temporalio.client import WorkflowExecution
from temporalio.common import SearchAttributeKey

from everturn.client.pollers import find_pollers
from everturn.temporal.filter_values import quoted

STUCK: Final = "stuck"
"""The status of a conversation that can't go on, whatever state the index has for it."""

_PROBLEMS: Final = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
"""Temporal's own: set once a workflow task has failed five times in a row."""

_VERSION: Final = SearchAttributeKey.for_keyword("TemporalWorkerDeploymentVersion")
_BEHAVIOR: Final = SearchAttributeKey.for_keyword("TemporalWorkflowVersioningBehavior")

MOST_VERSIONS: Final = 50
"""The most worker versions that a count looks at."""


def may_be_stuck_query(*, problems: bool) -> str:
    """The filter for those that may be: of those that are pinned to a version, whoever lists them asks whether it runs.
    `problems`: whether the server has _PROBLEMS."""
    pinned = f"{_BEHAVIOR.name} = 'Pinned'"
    if not problems:
        return pinned
    return f"({_PROBLEMS.name} IS NOT NULL OR {pinned})"


def stuck_query(dead_versions: Sequence[QueueVersion]) -> str:
    """The filter for those that are, if no worker runs these versions."""
    pinned = (version.pinned_query for version in dead_versions)
    return f"({' OR '.join([f'{_PROBLEMS.name} IS NOT NULL', *pinned])})"


def not_stuck_query(dead_versions: Sequence[QueueVersion]) -> str:
    """The filter for all others."""
    return " AND ".join([f"{_PROBLEMS.name} IS NULL", *(version.others_query for version in dead_versions)])


def failing_task_trouble(execution: WorkflowExecution) -> str:
    """Why a workflow that runs is stuck, if its workflow task fails again and again; empty if it does not."""
    problems = execution.typed_search_attributes.get(_PROBLEMS)
    if not problems:
        return ""
    causes = [problem.removeprefix("cause=") for problem in problems if problem.startswith("cause=")]
    return (
        f"its workflow task fails again and again ({', '.join(causes) or 'no cause is known'}): "
        "the worker's log says why. It goes on once the code is fixed or the missing key is there"
    )


@dataclass(frozen=True)
class QueueVersion:
    """A worker version of a task queue, and list filters for it."""

    version: str
    task_queue: str

    @property
    def pinned_query(self) -> str:
        """The filter for conversations that are pinned to it."""
        return (
            f"({_BEHAVIOR.name} = 'Pinned' AND {_VERSION.name} = {quoted(self.version)} "
            f"AND TaskQueue = {quoted(self.task_queue)})"
        )

    @property
    def others_query(self) -> str:
        """The filter for all others; Temporal's filter language has no NOT."""
        return (
            f"({_BEHAVIOR.name} IS NULL OR {_BEHAVIOR.name} != 'Pinned' OR {_VERSION.name} IS NULL "
            f"OR {_VERSION.name} != {quoted(self.version)} OR TaskQueue != {quoted(self.task_queue)})"
        )


class QueueVersions:
    """Which worker versions are running; each task queue is asked once."""

    def __init__(self, temporal: temporalio.client.Client) -> None:
        self._temporal = temporal
        self._polled: dict[str, set[str]] = {}
        """The running versions of each task queue."""

    async def find_trouble(self, execution: WorkflowExecution) -> str:
        """Why the workflow is stuck if it is pinned to a version that no worker runs; empty if it is not."""
        version = execution.typed_search_attributes.get(_VERSION)
        if execution.typed_search_attributes.get(_BEHAVIOR) != "Pinned" or not version:
            return ""
        if await self._is_running(version, execution.task_queue):
            return ""
        return f"it is pinned to worker version {version}, which no worker of {execution.task_queue!r} runs: start one"

    async def find_dead(self, everything: str) -> list[QueueVersion]:
        """The versions that no worker runs, of those that conversations of the filter `everything` are pinned to.

        Temporal can't group by version. So each request finds one conversation of a version that is not known yet:
        one request for each version, and one more.
        """
        query = f"{everything} AND ExecutionStatus = 'Running' AND {_BEHAVIOR.name} = 'Pinned'"
        dead_versions: list[QueueVersion] = []
        for _ in range(MOST_VERSIONS):
            execution = await anext(self._temporal.list_workflows(query, limit=1, page_size=1), None)
            if execution is None:
                break
            version = execution.typed_search_attributes.get(_VERSION)
            if not version:
                break
            of_version = QueueVersion(version, execution.task_queue)
            query += f" AND {of_version.others_query}"
            if not await self._is_running(version, execution.task_queue):
                dead_versions.append(of_version)
        return dead_versions

    async def _is_running(self, version: str, task_queue: str) -> bool:
        """Whether a worker of the queue runs this version."""
        if task_queue not in self._polled:
            options = [poller.deployment_options for poller in await find_pollers(self._temporal, task_queue)]
            self._polled[task_queue] = {f"{option.deployment_name}:{option.build_id}" for option in options}
        return version in self._polled[task_queue]
