"""The server's calls, for Temporal's own client: each request as the protobuf that it is on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import GrpcStatus, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import (
    IndexedValueType,
    PendingActivityState,
    PendingWorkflowTaskState,
    UpdateWorkflowExecutionLifecycleStage,
    WorkflowIdConflictPolicy,
)
from temporalio.api.errordetails.v1 import WorkflowExecutionAlreadyStartedFailure
from temporalio.api.operatorservice.v1 import ListSearchAttributesResponse
from temporalio.api.workflowservice import v1 as api
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from everturn import names
from tests.simulation.temporal import limits
from tests.simulation.temporal.activities import Activity
from tests.simulation.temporal.clock import EPOCH
from tests.simulation.temporal.runs import Run, Update
from tests.simulation.temporal.server import Server

if TYPE_CHECKING:
    from tests.simulation.machines.workers import SimulatedWorker

_TYPES = {
    "Keyword": "INDEXED_VALUE_TYPE_KEYWORD",
    "Int": "INDEXED_VALUE_TYPE_INT",
    "Double": "INDEXED_VALUE_TYPE_DOUBLE",
}
COMPLETED = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
ACCEPTED = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED
USE_EXISTING = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING

CORE_TRIES_SECONDS = 10.0


class SimulatedService(ServiceClient):
    """A connection to the server. `worker`: whose it is, if it is a worker's: one that was killed says nothing more."""

    def __init__(self, server: Server, *, worker: SimulatedWorker | None = None) -> None:
        super().__init__(ConnectConfig(target_host="simulated:7233", identity="somebody"))
        self._server = server
        self._worker = worker
        self._name = worker.name if worker else "client"

    async def _rpc_call(
        self,
        rpc: str,
        req: Message,
        resp_type: type[Any],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        limits.check_request(self._server, rpc, req)
        work = self._tried(rpc, req, again=retry) if self._server.may_leave else self._answered(rpc, req)
        if timeout is None:
            answer = await work
        else:
            try:
                async with asyncio.timeout(timeout.total_seconds()):
                    answer = await work
            except TimeoutError:
                raise RPCError("Timeout expired", RPCStatusCode.DEADLINE_EXCEEDED, b"") from None
        return answer if answer is not None else resp_type()

    async def _answered(self, rpc: str, req: Message) -> Any:
        await self._on_its_way(rpc)
        answer = await getattr(self, f"_{rpc}")(req)
        await self._on_its_way(rpc)
        return answer

    async def _tried(self, rpc: str, req: Message, *, again: bool) -> Any:
        """As the SDK's core does, which tries for a while what an unreachable server did not answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CORE_TRIES_SECONDS
        while True:
            try:
                return await self._while_it_is_there(rpc, req)
            except RPCError as error:
                if error.status is not RPCStatusCode.UNAVAILABLE or not again or loop.time() >= until:
                    raise
            await asyncio.sleep(0.5)

    async def _while_it_is_there(self, rpc: str, req: Message) -> Any:
        if self._worker:
            return await self._answered(rpc, req)
        await self._on_its_way(rpc)
        asked = asyncio.ensure_future(getattr(self, f"_{rpc}")(req))
        if not self._server.away.done():
            await asyncio.wait({asked, self._server.away}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        asked.cancel()
        raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")

    async def _on_its_way(self, rpc: str) -> None:
        if self._worker and not self._worker.alive:
            await asyncio.get_running_loop().create_future()
        if self._worker:
            await self._worker.connected()
        if delay := self._server.latency(self._server.chances.of(self._name, rpc)):
            await asyncio.sleep(delay)

    @property
    def worker_service_client(self) -> Any:
        raise NotImplementedError

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        raise NotImplementedError

    def update_api_key(self, api_key: str | None) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ runs

    async def _start_workflow_execution(self, req: Any) -> Any:
        latest = self._server.latest.get(req.workflow_id)
        run = self._server.runs[latest] if latest else None
        reject = req.workflow_id_reuse_policy == 3
        if run and not run.closed and req.workflow_id_conflict_policy == USE_EXISTING:
            return api.StartWorkflowExecutionResponse(run_id=run.id, started=False)
        if run and (not run.closed or (reject and not run.deleted)):
            status = GrpcStatus(code=6, message="Workflow execution is already running.")
            status.details.add().Pack(WorkflowExecutionAlreadyStartedFailure(run_id=run.id))
            raise RPCError(status.message, RPCStatusCode.ALREADY_EXISTS, status.SerializeToString())
        beside = {"user_metadata": req.user_metadata} if req.HasField("user_metadata") else {}
        begun = self._server.begin(
            req.workflow_id,
            req.input,
            attributes=req.search_attributes,
            memo=req.memo,
            beside=beside,
            workflow_type=req.workflow_type.name,
        )
        return api.StartWorkflowExecutionResponse(run_id=begun.id, started=True)

    async def _signal_workflow_execution(self, req: Any) -> Any:
        run = self._server.open(req.workflow_execution.workflow_id, req.workflow_execution.run_id)
        self._server.count("signals")
        self._server.arrive(
            run,
            "workflow_execution_signaled",
            signal_name=req.signal_name,
            input=req.input,
            identity="somebody",
            request_id=req.request_id,
        )

    async def _request_cancel_workflow_execution(self, req: Any) -> Any:
        self._server.request_cancel(
            self._server.open(req.workflow_execution.workflow_id, req.workflow_execution.run_id)
        )

    async def _terminate_workflow_execution(self, req: Any) -> Any:
        run = self._server.open(req.workflow_execution.workflow_id, req.workflow_execution.run_id)
        self._server.terminate(run, req.reason)

    async def _describe_workflow_execution(self, req: Any) -> Any:
        run = self._server.find(req.execution.workflow_id, req.execution.run_id)
        answer = api.DescribeWorkflowExecutionResponse()
        info = answer.workflow_execution_info
        info.execution.workflow_id, info.execution.run_id = run.workflow_id, run.id
        info.type.name, info.task_queue = run.type, "simulated"
        info.status, info.history_length = run.status, len(run.history)  # type: ignore[assignment]
        info.first_run_id, info.history_size_bytes = run.first_run_id, run.history.bytes
        info.start_time.CopyFrom(run.history.events[0].event_time)
        info.execution_time.CopyFrom(run.history.events[0].event_time)
        if run.closed:
            info.close_time.CopyFrom(run.history.events[-1].event_time)
        info.search_attributes.CopyFrom(run.attributes)
        info.memo.CopyFrom(run.memo)
        answer.execution_config.task_queue.name = "simulated"
        if run.task:
            task = answer.pending_workflow_task
            task.attempt = run.task.attempt
            task.state = (
                PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
                if run.task.started
                else PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
            )
        for activity in run.activities.values():
            self._pending(activity, answer.pending_activities.add())
        for child in run.children.values():
            answer.pending_children.add(run_id=child, workflow_type_name=names.CONVERSATION)
        return answer

    async def _describe_task_queue(self, req: Any) -> Any:
        """Somebody polls at all times: clients that wait longer look no further."""
        answer = api.DescribeTaskQueueResponse()
        answer.pollers.add(identity="a worker").last_access_time.GetCurrentTime()
        return answer

    async def _list_workers(self, req: Any) -> Any:
        return api.ListWorkersResponse()

    def _pending(self, activity: Activity, info: Any) -> None:
        info.activity_id, info.activity_type.name = activity.asked.activity_id, activity.name
        info.attempt = activity.attempt
        info.state = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        if activity.worker:
            info.state = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        if activity.cancel_requested:
            info.state = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
        if activity.details.payloads:
            info.heartbeat_details.CopyFrom(activity.details)
            info.last_heartbeat_time.CopyFrom(_stamp(activity.beaten_at))
        info.last_started_time.CopyFrom(_stamp(activity.started_at))
        if activity.last_failure:
            info.last_failure.CopyFrom(activity.last_failure)

    async def _get_workflow_execution_history(self, req: Any) -> Any:
        run_id, seen = req.execution.run_id, 0
        if req.next_page_token:
            run_id, _, position = req.next_page_token.decode().partition("/")
            seen = int(position)
        run = self._server.find(req.execution.workflow_id, run_id)
        if req.wait_new_event:
            await run.changed(seen)
        if run.deleted:
            raise RPCError("workflow execution history not found", RPCStatusCode.NOT_FOUND, b"")
        size = req.maximum_page_size or self._server.chances.of(self._name, "page").choice((3, 50, 1_000))
        page = run.history.events[seen : seen + size]
        seen += len(page)
        more = seen < len(run.history) or (req.wait_new_event and not run.closed)
        token = f"{run.id}/{seen}".encode() if more else b""
        # As GetWorkflowExecutionHistoryResponse has it, without a copy of each event.
        return SimpleNamespace(history=SimpleNamespace(events=page), next_page_token=token, raw_history=())

    async def _get_workflow_execution_history_reverse(self, req: Any) -> Any:
        run = self._server.find(req.execution.workflow_id, req.execution.run_id)
        end = int(req.next_page_token or len(run.history))
        page = run.history.events[max(0, end - req.maximum_page_size) : end][::-1]
        token = str(end - len(page)).encode() if end > len(page) else b""
        return SimpleNamespace(history=SimpleNamespace(events=page), next_page_token=token)

    async def _reset_workflow_execution(self, req: Any) -> Any:
        from tests.simulation.temporal.resets import reset

        run = self._server.find(req.workflow_execution.workflow_id, req.workflow_execution.run_id)
        return api.ResetWorkflowExecutionResponse(
            run_id=reset(self._server, run, req.workflow_task_finish_event_id, req.reason).id
        )

    async def _reset_sticky_task_queue(self, req: Any) -> Any:
        self._server.release(self._server.open(req.execution.workflow_id, req.execution.run_id))

    # ------------------------------------------------------------ updates and queries

    async def _update_workflow_execution(self, req: Any) -> Any:
        self._server.count("updates")
        return await self._outcome(*await self._admitted(req))

    async def _admitted(self, req: Any) -> tuple[Run, Update]:
        """As the SDK's core does, which asks again for a while if there are too many at once."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CORE_TRIES_SECONDS
        while True:
            run = self._server.open(req.workflow_execution.workflow_id, req.workflow_execution.run_id)
            try:
                return run, self._server.admit(run, Update(req.request, loop.create_future()))
            except RPCError as error:
                if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED or loop.time() >= until:
                    raise
            self._server.count("updates that were too many at once")
            await asyncio.sleep(0.5)

    async def _poll_workflow_execution_update(self, req: Any) -> Any:
        execution = req.update_ref.workflow_execution
        run = self._server.find(execution.workflow_id, execution.run_id)
        update = run.updates.get(req.update_ref.update_id)
        if update is None:
            raise RPCError("update not found", RPCStatusCode.NOT_FOUND, b"")
        done = await self._outcome(run, update)
        return api.PollWorkflowExecutionUpdateResponse(
            outcome=done.outcome, stage=done.stage, update_ref=done.update_ref
        )

    async def _outcome(self, run: Run, update: Update) -> Any:
        outcome = await asyncio.shield(update.done)
        answer = api.UpdateWorkflowExecutionResponse(outcome=outcome, stage=COMPLETED)
        answer.update_ref.update_id = update.id
        answer.update_ref.workflow_execution.CopyFrom(WorkflowExecution(workflow_id=run.workflow_id, run_id=run.id))
        return answer

    async def _query_workflow(self, req: Any) -> Any:
        run = self._server.find(req.execution.workflow_id, req.execution.run_id)
        while run.task or not any(worker.polls for worker in self._server.workers):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # it waits for the workflow task at hand
        result = self._server.ask(run, req.query.query_type, req.query.query_args.payloads)
        if result.HasField("failed"):
            raise RPCError(result.failed.message, RPCStatusCode.INVALID_ARGUMENT, b"")
        return api.QueryWorkflowResponse(query_result=Payloads(payloads=[result.succeeded.response]))

    # ------------------------------------------------------------ activities

    def _running(self, token: bytes) -> Activity:
        return find_activity(self._server, token)

    async def _record_activity_task_heartbeat(self, req: Any) -> Any:
        activity = self._running(req.task_token)
        activity.heartbeat(req.details)
        return api.RecordActivityTaskHeartbeatResponse(cancel_requested=activity.cancel_requested)

    async def _respond_activity_task_failed(self, req: Any) -> Any:
        self._running(req.task_token).failed(req.failure)

    # ------------------------------------------------------------ the namespace

    async def _get_system_info(self, _: Any) -> Any:
        answer = api.GetSystemInfoResponse()
        answer.capabilities.activity_failure_include_heartbeat = True
        return answer

    async def _describe_namespace(self, _: Any) -> Any:
        answer = api.DescribeNamespaceResponse()
        answer.config.workflow_execution_retention_ttl.FromTimedelta(timedelta(seconds=self._server.retention))
        return answer

    async def _get_system_info(self, _: Any) -> Any:
        """It answers long polls: see everturn/history/long_poll.py."""
        answer = api.GetSystemInfoResponse()
        answer.capabilities.activity_failure_include_heartbeat = True
        return answer

    async def _list_workflow_executions(self, req: Any) -> Any:
        found = self._server.index.find(req.query) if self._server.index else []
        return api.ListWorkflowExecutionsResponse(executions=found)

    async def _list_search_attributes(self, _: Any) -> Any:
        listed = {name: IndexedValueType.Value(_TYPES[kind]) for name, kind in names.SEARCH_ATTRIBUTES.items()}
        return ListSearchAttributesResponse(custom_attributes=listed if self._server.indexed else {})


def find_activity(server: Server, token: bytes) -> Activity:
    """The try with this token, while it runs."""
    run_id, scheduled, attempt = token.decode().split("/")
    activity = server.runs[run_id].activities.get(int(scheduled))
    if activity is None or activity.attempt != int(attempt) or activity.worker is None:
        raise RPCError("activity not found", RPCStatusCode.NOT_FOUND, b"")
    return activity


def _stamp(at: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(round((EPOCH + at) * 1e6))
    return stamp
