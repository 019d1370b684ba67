"""The index by which conversations are listed: it knows of things a while after they have happened."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import SearchAttributes
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from tests.simulation.temporal.runs import Run

if TYPE_CHECKING:
    from tests.simulation.temporal.server import Server

LONGEST_LAG = 3.0

_TERM = re.compile(r"(\w+) (!=|=|STARTS_WITH|NOT STARTS_WITH) '((?:[^']|'')*)'")


@dataclass(frozen=True)
class Entry:
    """A run, as it was when the index heard of it."""

    info: WorkflowExecutionInfo
    number: int

    def field(self, name: str) -> str:
        match name:
            case "WorkflowType":
                return self.info.type.name
            case "WorkflowId":
                return self.info.execution.workflow_id
            case "ExecutionStatus":
                status = WorkflowExecutionStatus.Name(self.info.status)
                words = status.removeprefix("WORKFLOW_EXECUTION_STATUS_").split("_")
                return "".join(word.capitalize() for word in words)
            case _:
                found = self.info.search_attributes.indexed_fields.get(name)
                return str(json.loads(found.data)) if found else ""

    def fits(self, query: str) -> bool:
        terms = [_TERM.fullmatch(term) for term in query.split(" AND ")]
        assert all(terms), f"this index does not understand {query!r}"
        return all(self._meets(term[1], term[2], term[3].replace("''", "'")) for term in terms if term)

    def _meets(self, name: str, operator: str, value: str) -> bool:
        held = self.field(name)
        is_met = held.startswith(value) if operator.endswith("STARTS_WITH") else held == value
        return is_met == (operator in ("=", "STARTS_WITH"))


class Index:
    """Of all runs of the server, from now on."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self._server, self._chance = server, chance
        self._entries: dict[str, Entry] = {}
        self._changes = 0
        begin, ended, on_task = server.begin, server.ended, server.on_task

        def begun(*args: Any, **values: Any) -> Run:
            run = begin(*args, **values)
            self._changed(run)
            return run

        def over(run: Run) -> None:
            ended(run)
            self._changed(run)

        def looked_after(run: Run) -> None:
            on_task(run)
            self._changed(run)

        server.begin, server.ended, server.on_task = begun, over, looked_after  # type: ignore[method-assign]
        server.index = self

    def find(self, query: str) -> list[WorkflowExecutionInfo]:
        """Newest first."""
        return [entry.info for entry in reversed(self._entries.values()) if entry.fits(query)]

    def _changed(self, run: Run) -> None:
        self._changes += 1
        attributes = SearchAttributes()
        attributes.CopyFrom(run.attributes)
        info = WorkflowExecutionInfo(
            execution={"workflow_id": run.workflow_id, "run_id": run.id},  # type: ignore[arg-type]
            type={"name": run.type},  # type: ignore[arg-type]
            status=run.status,  # type: ignore[arg-type]
            start_time=run.history.events[0].event_time,
            close_time=run.history.events[-1].event_time if run.closed else None,
            search_attributes=attributes,
            task_queue="simulated",
        )
        lag = self._chance.choice((0.0, 0.3, LONGEST_LAG))
        self._server.later(self._hears, run.id, Entry(info, self._changes), seconds=lag)

    def _hears(self, run_id: str, entry: Entry) -> None:
        known = self._entries.get(run_id)
        if known is None or known.number < entry.number:  # what comes late is passed over
            self._entries[run_id] = entry
