"""The workflow's code, as a worker runs it: by the SDK's own instance, outside of the worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC
from typing import Any
from uuid import UUID

import temporalio.converter
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import workflow
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.bridge.worker import decode_activation, encode_completion
from temporalio.common import Priority
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInboundInterceptor, WorkflowInstanceDetails

from everturn import names
from everturn.batching.collector import BatchCollectorWorkflow
from everturn.storage.data_converter import data_converter
from everturn.workflows.conversation import ConversationWorkflow
from everturn.workflows.eager_dispatch import EagerDispatch
from tests.simulation.temporal.history import attributes
from tests.simulation.temporal.sealing import converter

_RUNNER = UnsandboxedWorkflowRunner()
_DEFINITIONS = {
    name: workflow._Definition.must_from_class(cls)
    for name, cls in ((names.CONVERSATION, ConversationWorkflow), (names.BATCHES, BatchCollectorWorkflow))
}


def create(
    event: HistoryEvent,
    run_id: str,
    task_started: Timestamp,
    interceptors: Sequence[type[WorkflowInboundInterceptor]],
    *,
    definition: workflow._Definition | None = None,
) -> Any:
    """A workflow of this run, which has not begun. `event`: its first one. `interceptors`: the worker's own.
    `definition`: that of a workflow which the simulation does not know by its type."""
    given = attributes(event)
    # A run that a reset made draws as the one before it did, up to where it was reset.
    seed = UUID(given.original_execution_run_id or run_id).int & (2**63 - 1)
    parent = given.parent_workflow_execution
    info = workflow.Info(
        attempt=1,
        continued_run_id=given.continued_execution_run_id or None,
        cron_schedule=None,
        execution_timeout=None,
        first_execution_run_id=given.first_execution_run_id,
        headers={},
        namespace="default",
        original_execution_run_id=given.original_execution_run_id or run_id,
        parent=workflow.ParentInfo(namespace="default", run_id=parent.run_id, workflow_id=parent.workflow_id)
        if parent.workflow_id
        else None,
        root=None,
        raw_memo=dict(given.memo.fields),
        retry_policy=None,
        run_id=run_id,
        run_timeout=None,
        search_attributes=temporalio.converter.decode_search_attributes(given.search_attributes),
        start_time=task_started.ToDatetime().replace(tzinfo=UTC),
        workflow_start_time=event.event_time.ToDatetime().replace(tzinfo=UTC),
        task_queue=given.task_queue.name,
        task_timeout=given.workflow_task_timeout.ToTimedelta(),
        typed_search_attributes=temporalio.converter.decode_typed_search_attributes(given.search_attributes),
        workflow_id=given.workflow_id,
        workflow_type=given.workflow_type.name,
        priority=Priority.default,
    )
    details = WorkflowInstanceDetails(
        payload_converter_factory=data_converter._new_payload_converter,
        failure_converter_class=data_converter.failure_converter_class,
        interceptor_classes=[EagerDispatch, *interceptors],
        defn=definition or _DEFINITIONS[given.workflow_type.name],
        info=info,
        randomness_seed=seed,
        extern_functions={"__temporal_assert_local_activity_valid": lambda _: None},
        disable_eager_activity_execution=False,
        worker_level_failure_exception_types=[],
        patch_activation_callback=None,
        last_completion_result=given.last_completion_result,
        last_failure=None,
    )
    return outside_of(lambda: _RUNNER.create_instance(details), inside=True)


def activated(instance: Any, activation: WorkflowActivation) -> WorkflowActivationCompletion:
    completion: WorkflowActivationCompletion = outside_of(lambda: instance.activate(activation))
    return completion


def unsealed(instance: Any, activation: WorkflowActivation) -> WorkflowActivationCompletion:
    """As `activated`, of what is encrypted: by the SDK's own way through all payloads."""
    codec = converter(sealed=True)
    at_once(decode_activation(activation, codec, False, 1))
    completion = activated(instance, activation)
    at_once(encode_completion(completion, codec, False, 1))
    return completion


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("it waits for something")


def outside_of(act: Callable[[], Any], *, inside: bool = False) -> Any:
    """Workflows run in a thread of their own, beside the worker's loop. Here there is one thread: the loop steps aside
    for as long as it takes."""
    loop = asyncio._get_running_loop()
    if loop is None and inside:
        loop = asyncio.get_event_loop_policy().get_event_loop()
        asyncio._set_running_loop(loop)
        try:
            return act()
        finally:
            asyncio._set_running_loop(None)
    if inside:
        return act()
    asyncio._set_running_loop(None)
    try:
        return act()
    finally:
        asyncio._set_running_loop(loop)
