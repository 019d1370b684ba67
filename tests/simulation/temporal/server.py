"""The server: runs and how they begin and end, children, updates, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Memo, Payloads, SearchAttributes, WorkflowExecution, WorkflowType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from tests.simulation.chance import Chances
from tests.simulation.temporal.dispatch import QUEUE, TASK_SECONDS, Dispatch, fail
from tests.simulation.temporal.runs import Run, Update


class Server(Dispatch):
    def __init__(self, loop: asyncio.AbstractEventLoop, chances: Chances, *, retention: float = 0.0) -> None:
        super().__init__(loop, chances)
        self.retention = retention
        """Seconds for which it keeps what is over; 0: for ever."""
        self.runs: dict[str, Run] = {}
        self.latest: dict[str, str] = {}
        self.seen: dict[str, list[list[str]]] = {}
        """By conversation: the words of each model turn that was cancelled, as far as its heartbeats had them."""

    # ------------------------------------------------------------ runs

    def find(self, workflow_id: str, run_id: str = "") -> Run:
        run = self.runs.get(run_id or self.latest.get(workflow_id, ""))
        if run is None or run.deleted or run.workflow_id != workflow_id:
            raise RPCError(f"workflow not found for ID: {workflow_id}", RPCStatusCode.NOT_FOUND, b"")
        return run

    def was_seen(self, run: Run, activity: str, words: list[str]) -> None:
        """A worker ran this activity when it was cancelled, and had said so much."""
        if activity == names.CALL_MODEL and words and not run.closed:
            self.count("turns cut short")
            self.seen.setdefault(run.workflow_id, []).append(words)

    def moment(self, workflow_id: str) -> tuple[str, int]:
        """As long as this is the same, nothing has happened in it."""
        run_id = self.latest.get(workflow_id, "")
        return (run_id, len(self.runs[run_id].history)) if run_id else ("", 0)

    def open(self, workflow_id: str, run_id: str = "") -> Run:
        run = self.find(workflow_id, run_id)
        if run.closed:
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
        return run

    def begin(
        self,
        workflow_id: str,
        payloads: Payloads,
        *,
        continues: Run | None = None,
        parent: tuple[Run, int] | None = None,
        attributes: SearchAttributes | None = None,
        memo: Memo | None = None,
        beside: dict[str, Any] | None = None,
        workflow_type: str = names.CONVERSATION,
    ) -> Run:
        first_run_id = continues.first_run_id if continues else ""
        run = self.new_run(workflow_id, first_run_id=first_run_id, type=workflow_type)
        run_id = run.id
        run.attributes.MergeFrom(attributes or SearchAttributes())
        run.memo.MergeFrom(memo or Memo())
        values: dict[str, Any] = {}
        if continues:
            values["continued_execution_run_id"] = continues.id
            run.parent = continues.parent
        if parent:
            run.parent = (parent[0].id, parent[1])
            values["parent_workflow_execution"] = WorkflowExecution(
                workflow_id=parent[0].workflow_id, run_id=parent[0].id
            )
            values["parent_workflow_namespace"] = "default"
            values["parent_initiated_event_id"] = parent[1]
        self.runs[run_id] = run
        self.latest[workflow_id] = run_id
        run.write(
            "workflow_execution_started",
            beside=beside,
            workflow_type=WorkflowType(name=run.type),
            task_queue=TaskQueue(name=QUEUE),
            input=payloads,
            workflow_task_timeout=Duration(seconds=int(TASK_SECONDS)),
            original_execution_run_id=run_id,
            first_execution_run_id=run.first_run_id,
            attempt=1,
            workflow_id=workflow_id,
            search_attributes=run.attributes,
            memo=run.memo,
            identity="somebody",
            **values,
        )
        self.count("runs")
        self.need_task(run)
        return run

    def new_run(self, workflow_id: str, *, first_run_id: str = "", **known: Any) -> Run:
        """One that nobody knows of yet. Its id is drawn by its name, too: a workflow draws by it."""
        number = sum(run.workflow_id == workflow_id for run in self.runs.values())
        name = f"{workflow_id} {number}"
        run_id = str(UUID(int=self.chances.of(name, "id").getrandbits(128), version=4))
        return Run(run_id, workflow_id, first_run_id or run_id, chance=self.chances.of(name), name=name, **known)

    def arrive(self, run: Run, name: str, **values: Any) -> None:
        """Something comes from outside."""
        self.arrive_with(run, name, lambda: run.write(name, **values))

    def arrive_with(self, run: Run, name: str, write: Callable[[], HistoryEvent]) -> None:
        if run.closed:
            return
        if run.task and run.task.speculative:
            self.make_normal(run, run.task)
        if run.task and run.task.started:
            run.buffered.append((name, write))
            return
        write()
        self.need_task(run)

    def ended(self, run: Run) -> None:
        """The run is over: so is all that belongs to it."""
        for _, timer in run.timers.values():
            timer.cancel()
        for activity in list(run.activities.values()):
            activity.forget()
        run.activities.clear()
        run.timers.clear()
        run.buffered.clear()
        if run.task:
            run.task.stop_clock()
            run.task = None
        for update in run.updates.values():
            if not update.done.done():
                why = "workflow update was aborted by closing workflow"
                fail(update.done, RPCError(why, RPCStatusCode.NOT_FOUND, b""))
        if not run.next_run_id:
            for child in run.children.values():
                self.soon(run.chance, self.request_cancel, self._last_of(child))
        if self.retention and run.closed:
            self.later(self._delete, run, seconds=self.retention * run.chance.uniform(1.0, 1.1))

    def _delete(self, run: Run) -> None:
        run.deleted = True
        self.count("deleted runs")

    def _last_of(self, run_id: str) -> Run:
        run = self.runs[run_id]
        while run.next_run_id:
            run = self.runs[run.next_run_id]
        return run

    def request_cancel(self, run: Run) -> None:
        if run.closed or run.cancel_requested:
            return
        run.cancel_requested = True
        self.arrive(run, "workflow_execution_cancel_requested", identity="somebody")

    def terminate(self, run: Run, reason: str) -> None:
        if run.task and run.task.speculative:
            run.task = None
        run.flush()
        run.write("workflow_execution_terminated", reason=reason, identity="somebody")
        self.ended(run)
        self.tell_parent(run, "terminated")

    def tell_parent(self, run: Run, how: str, **values: Any) -> None:
        """A child is over."""
        if run.parent is None or how == "continued_as_new":
            return
        parent_id, initiated = run.parent
        parent = self.runs[parent_id]

        def tell() -> None:
            started = parent.children.pop(initiated, None)
            if started is None or parent.closed:
                return
            self.arrive(
                parent,
                f"child_workflow_execution_{how}",
                initiated_event_id=initiated,
                workflow_execution=WorkflowExecution(workflow_id=run.workflow_id, run_id=run.first_run_id),
                workflow_type=WorkflowType(name="Conversation"),
                namespace="default",
                **values,
            )

        self.soon(run.chance, tell)

    # ------------------------------------------------------------ updates

    def admit(self, run: Run, update: Update) -> Update:
        if known := run.updates.get(update.id):
            return known
        under_way = sum(not update.done.done() for update in run.updates.values())
        if under_way >= 10:
            raise RPCError("limit on number of concurrent in-flight updates", RPCStatusCode.RESOURCE_EXHAUSTED, b"")
        if len(run.updates) >= 2_000:
            why = "limit on the total number of distinct updates has been reached"
            raise RPCError(why, RPCStatusCode.FAILED_PRECONDITION, b"")
        run.updates[update.id] = update
        if run.task is None:
            self.need_task(run, speculative=True)
        return update
