"""Conversations that an application's workflow starts, if its payloads are encoded: no tenant's name goes uncoded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from temporalio.worker import (
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

from everturn import names
from everturn.tenants.priorities import without_name


class HideTenants(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_HidingOutbound(outbound))


class _HidingOutbound(WorkflowOutboundInterceptor):
    async def start_child_workflow(self, input: StartChildWorkflowInput) -> Any:  # noqa: A002
        start = next(iter(input.args), None)
        if input.workflow == names.CONVERSATION and isinstance(start, dict):
            input = replace(input, priority=without_name(input.priority, start.get("tenant")))  # noqa: A001
        return await self.next.start_child_workflow(input)
