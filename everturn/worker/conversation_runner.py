"""Runs conversations on a worker that also runs an application's workflows.

Some settings for those do not apply to conversations, such as the exception types that fail a workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from temporalio.converter import DataConverter
from temporalio.worker import WorkflowInboundInterceptor, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import _Definition

from everturn import names
from everturn.storage.beside import own
from everturn.workflows.call_headers import CallHeaders
from everturn.workflows.eager_dispatch import EagerDispatch
from everturn.workflows.visibility import CurrentDetails


class ConversationRunner(WorkflowRunner):
    """Wraps the worker's runner of workflows without a sandbox."""

    def __init__(
        self, theirs: WorkflowRunner, converter: DataConverter, *, more: Sequence[type[WorkflowInboundInterceptor]] = ()
    ) -> None:
        """`more`: interceptors, besides those of all conversations."""
        self._theirs = theirs
        self._converter = own(converter)
        self._interceptors: list[type[WorkflowInboundInterceptor]] = [EagerDispatch, CallHeaders, CurrentDetails, *more]

    def prepare_workflow(self, defn: _Definition) -> None:
        self._theirs.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        ours = det.defn.name in (names.CONVERSATION, names.TENANT_BUDGET)
        return self._theirs.create_instance(self._as_ours(det) if ours else det)

    def _as_ours(self, details: WorkflowInstanceDetails) -> WorkflowInstanceDetails:
        more = self._interceptors if details.defn.name == names.CONVERSATION else ()
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
