"""How long this worker's tools take, and which are quick enough to run within a workflow task.

It counts what this worker has seen since it began. Nothing is stored: the next worker learns anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from math import ceil, inf

from everturn.agent import Agent
from everturn.logs import get_logger
from everturn.records import ToolResult
from everturn.size_estimates import is_larger
from everturn.sizes import LOCAL_BYTES
from everturn.tools.tool import Local, Tool

LAST_RUNS = 20
"""How many runs of a tool are remembered."""

FEWEST_RUNS = 5
"""A tool that ran less often does not count as quick."""

QUICK_SECONDS = 0.2
"""While such a tool runs, its conversation takes in nothing: no message, no decision, no other result."""

MOST_TOOLS = 1_000

_log = get_logger("everturn.tool")


class ToolTimes:
    """One for each worker. `local`: what holds for `read` tools if neither the tool nor its agent says."""

    def __init__(self, *, local: Local = False) -> None:
        self._local = local
        self._seconds: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        """By agent and tool; infinite if the result was large."""

    def note_run(self, agent: Agent, tool: str, seconds: float, result: ToolResult | None) -> None:
        """Notes how long a run took. `result`: None if it brought none."""
        if result and is_larger(result, LOCAL_BYTES):
            seconds = inf
        runs = self._seconds.setdefault((agent.name, tool), deque(maxlen=LAST_RUNS))
        self._seconds.move_to_end((agent.name, tool))
        was_quick = _is_quick(runs)
        runs.append(seconds)
        if was_quick and not _is_quick(runs):
            _log.info("tool.slowed_down", agent=agent.name, tool=tool, seconds=round(seconds, 3))
        if len(self._seconds) > MOST_TOOLS:
            self._seconds.popitem(last=False)

    def runs_hurried(self, agent: Agent, tool: Tool) -> bool:
        """Whether a call of the tool is to be tried within the workflow task, since its last runs were quick."""
        if tool.local != "auto" and tool.effect != "read":
            return False
        local = next((setting for setting in (tool.local, agent.local) if setting is not None), self._local)
        return local == "auto" and _is_quick(self._seconds.get((agent.name, tool.name), ()))


def _is_quick(runs: Collection[float]) -> bool:
    """By their 95th percentile."""
    return len(runs) >= FEWEST_RUNS and sorted(runs)[ceil(0.95 * len(runs)) - 1] <= QUICK_SECONDS
