"""The status of a workflow execution, also one that is newer than the SDK: it is shown as what it is, hides no other
execution, and never counts as over.

Server 1.32 has Paused, set by `temporal workflow pause`, which temporalio 1.35's WorkflowExecutionStatus lacks: it
raises ValueError for a whole page of a list.
"""

from __future__ import annotations

import shlex
from typing import Final, TypeVar

from temporalio.api.common.v1 import WorkflowExecution as ExecutionId
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import (
    Client,
    DescribeWorkflowInput,
    Interceptor,
    ListWorkflowsInput,
    OutboundInterceptor,
    WorkflowExecution,
    WorkflowExecutionAsyncIterator,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.converter import WorkflowSerializationContext

E = TypeVar("E", bound=WorkflowExecution)

RUNNING: Final = int(WorkflowExecutionStatus.RUNNING)
PAUSED: Final = 8

_KNOWN: Final = frozenset(int(status) for status in WorkflowExecutionStatus)

OVER: Final = _KNOWN - {RUNNING, PAUSED}
"""The statuses of which we know that nothing more comes. Any other counts as open."""

_NAMES: Final = {**{int(status): status.name.lower() for status in WorkflowExecutionStatus}, PAUSED: "paused"}


_OVER_NAMES: Final = ", ".join(f"'{name}'" for name in ("Completed", "Failed", "Canceled", "Terminated", "TimedOut"))
OPEN_QUERY: Final = f"ExecutionStatus NOT IN ({_OVER_NAMES}, 'ContinuedAsNew')"
"""The filter for executions that are not over. It names no status that an older server doesn't know."""
OVER_QUERY: Final = f"ExecutionStatus IN ({_OVER_NAMES}, 'ContinuedAsNew')"
NOT_RUNNING_QUERY: Final = f"{OPEN_QUERY} AND ExecutionStatus != 'Running'"
"""For those that are open and do not run: paused, or in a state that we don't know."""


def is_over(execution: WorkflowExecution) -> bool:
    return execution.raw_info.status in OVER


def is_paused(execution: WorkflowExecution) -> bool:
    """By an operator: Temporal gives its tasks to no worker until it is unpaused."""
    return execution.raw_info.status == PAUSED


def held_up(execution: WorkflowExecution) -> tuple[str, str] | None:
    """Cause and cure, if the execution is open and does not run; None if it runs or is over."""
    status = execution.raw_info.status
    if status == RUNNING or status in OVER:
        return None
    if status == PAUSED:
        return words_of_pause(execution.id)
    return f"Temporal says that its workflow has the {status_name(status)}.", "See Temporal's Web UI."


def words_of_pause(workflow_id: str) -> tuple[str, str]:
    """Cause and cure, of a workflow that an operator has paused."""
    return (
        "An operator has paused its workflow in Temporal.",
        f"`temporal workflow unpause --workflow-id {shlex.quote(workflow_id)}` sets it going again.",
    )


def status_name(status: int) -> str:
    """In lower case, such as 'timed_out'."""
    return _NAMES.get(status) or f"unknown status {status}"


async def describe(client: Client, workflow_id: str, run_id: str | None = None) -> WorkflowExecutionDescription:
    """As the SDK's `describe`, with any status. Raises RPCError."""
    return await _read_description(client, DescribeWorkflowInput(workflow_id, run_id, {}, None))


class AnyStatus(Interceptor):
    """A client's descriptions and lists of workflows have executions of any status; its `status` is None if the SDK
    does not know it."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - temporalio's name
        return _AnyStatusRequests(next)


class _AnyStatusRequests(OutboundInterceptor):
    async def describe_workflow(
        self,
        input: DescribeWorkflowInput,  # noqa: A002 - temporalio's name
    ) -> WorkflowExecutionDescription:
        try:
            return await super().describe_workflow(input)
        except ValueError:
            return await _read_description(_client_of(self), input)

    def list_workflows(
        self,
        input: ListWorkflowsInput,  # noqa: A002 - temporalio's name
    ) -> WorkflowExecutionAsyncIterator:
        return _Executions(_client_of(self), input)


class _Executions(WorkflowExecutionAsyncIterator):
    async def fetch_next_page(self, *, page_size: int | None = None) -> None:
        try:
            await super().fetch_next_page(page_size=page_size)
        except ValueError:
            await self._fetch_any(page_size or self._input.page_size)

    async def _fetch_any(self, page_size: int) -> None:
        if self._limit is not None:
            page_size = min(page_size, self._limit - self._yielded)
        request = ListWorkflowExecutionsRequest(
            namespace=self._client.namespace,
            page_size=page_size,
            next_page_token=self._next_page_token or b"",
            query=self._input.query or "",
        )
        page = await self._client.workflow_service.list_workflow_executions(
            request, retry=True, metadata=self._input.rpc_metadata, timeout=self._input.rpc_timeout
        )
        converter = self._client.data_converter
        self._current_page = [
            _with_status(
                WorkflowExecution._from_raw_info(_without_odd_status(info), self._client.namespace, converter), info
            )
            for info in page.executions
        ]
        self._current_page_index = 0
        self._next_page_token = page.next_page_token or None


def _client_of(interceptor: OutboundInterceptor) -> Client:
    """The one that the innermost interceptor, the SDK's own, sends requests with."""
    while isinstance(inner := getattr(interceptor, "next", None), OutboundInterceptor):
        interceptor = inner
    client: Client = interceptor._client  # type: ignore[attr-defined]
    return client


async def _read_description(client: Client, request_input: DescribeWorkflowInput) -> WorkflowExecutionDescription:
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace,
        execution=ExecutionId(workflow_id=request_input.id, run_id=request_input.run_id or ""),
    )
    description = await client.workflow_service.describe_workflow_execution(
        request, retry=True, metadata=request_input.rpc_metadata, timeout=request_input.rpc_timeout
    )
    context = WorkflowSerializationContext(namespace=client.namespace, workflow_id=request_input.id)
    info = description.workflow_execution_info
    execution = WorkflowExecutionDescription._from_raw_info(
        _without_odd_status(info),
        client.namespace,
        client.data_converter.with_context(context),
        raw_description=description,
    )
    return _with_status(execution, info)


def _without_odd_status(info: WorkflowExecutionInfo) -> WorkflowExecutionInfo:
    """With a status that the SDK knows, or with none."""
    if info.status in _KNOWN:
        return info
    copy = WorkflowExecutionInfo()
    copy.CopyFrom(info)
    copy.ClearField("status")
    return copy


def _with_status(execution: E, info: WorkflowExecutionInfo) -> E:
    execution.raw_info = info
    return execution
