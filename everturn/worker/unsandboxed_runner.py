"""Runs conversations on a worker that also runs an application's workflows.

Some settings for those do not apply to conversations, such as the exception types that fail a workflow.

And what a query brought is not kept (decision 0053). A query may reach a worker together with events that no workflow
task has brought yet, if it waited for a worker meanwhile. The SDK's core applies them all the same, and would go on
from there with the events after them when the workflow task comes: in two steps what every replay does in one, so that
the history may fit no replay. Such a conversation is released once it has answered, and the workflow task replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter
from temporalio.worker import WorkflowInboundInterceptor, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import _Definition

from everturn import names
from everturn.storage.composed_converter import own_converter
from everturn.workflows.call_headers import CallHeaders
from everturn.workflows.eager_dispatch import EagerDispatch
from everturn.workflows.visibility import CurrentDetails


class ConversationRunner(WorkflowRunner):
    """Wraps the worker's runner of workflows without a sandbox."""

    def __init__(
        self,
        theirs: WorkflowRunner,
        converter: DataConverter,
        *,
        interceptors: Sequence[type[WorkflowInboundInterceptor]] = (),
    ) -> None:
        """`interceptors`: besides those of all conversations. Those that set where and how activities run are for
        collectors of batches and for webhooks, too."""
        self._theirs = theirs
        self._converter = own_converter(converter)
        self._interceptors_of: dict[str, Sequence[type[WorkflowInboundInterceptor]]] = {
            names.CONVERSATION: [EagerDispatch, CallHeaders, CurrentDetails, *interceptors],
            **dict.fromkeys(names.BESIDE_CONVERSATIONS, interceptors),
        }
        self.release: Callable[[str], None] | None = None
        """Has the worker forget what it holds of a run, by its id, once that has answered. None: it is a replay."""

    def prepare_workflow(self, defn: _Definition) -> None:
        self._theirs.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        if det.defn.name not in names.ON_WORKERS:
            return self._theirs.create_instance(det)
        instance = self._theirs.create_instance(self._our_details(det))
        if self.release is None:
            return instance
        return cast("WorkflowInstance", _ByWorkflowTasks(instance, self.release))

    def _our_details(self, details: WorkflowInstanceDetails) -> WorkflowInstanceDetails:
        more = self._interceptors_of.get(details.defn.name or "", ())
        return replace(
            details,
            payload_converter_factory=lambda: replace(self._converter).payload_converter,
            interceptor_classes=[*details.interceptor_classes, *more],
            # A bug in the workflow's code waits for a deploy, whatever the application's workflows do about theirs.
            worker_level_failure_exception_types=(),
            patch_activation_callback=None,
        )

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        self._theirs.set_worker_level_failure_exception_types(types)


class _ByWorkflowTasks:
    """A workflow that is released if it was given events outside of a workflow task. Whatever else temporalio asks of
    a workflow, it asks of the instance."""

    def __init__(self, instance: WorkflowInstance, release: Callable[[str], None]) -> None:
        self._instance = instance
        self._release = release
        self._events = 0
        self._clock = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        events = act.history_length
        clock = act.timestamp.ToNanoseconds()
        steps = any(not job.HasField("query_workflow") for job in act.jobs)  # else, they are what it has done itself
        if steps and events > self._events > 0 and clock == self._clock:  # each workflow task sets the clock on
            self._release(act.run_id)
        self._events = events
        self._clock = clock
        return self._instance.activate(act)
