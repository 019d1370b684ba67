"""What an application has on Temporal before it has everturn: data converters, codecs, interceptors of its own."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
)
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)


class Hiding(PayloadCodec):
    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"binary/hidden"}, data=base64.b85encode(payload.SerializeToString()))
            for payload in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload.FromString(base64.b85decode(payload.data))
            if payload.metadata.get("encoding") == b"binary/hidden"
            else payload
            for payload in payloads
        ]


class _Reversed(EncodingPayloadConverter):
    """Hides what it writes, where a codec should: many an application has it so."""

    _json = JSONPlainPayloadConverter()

    @property
    def encoding(self) -> str:
        return "json/reversed"

    def to_payload(self, value: Any) -> Payload | None:
        written = self._json.to_payload(value)
        return written and Payload(metadata={"encoding": b"json/reversed"}, data=written.data[::-1])

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return self._json.from_payload(Payload(data=payload.data[::-1]), type_hint)


class ReversingConverter(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(_Reversed(), *DefaultPayloadConverter.default_encoding_payload_converters)


CONVERTERS = {
    "temporalio's own": DataConverter.default,
    "a codec": DataConverter(payload_codec=Hiding()),
    "a payload converter": DataConverter(payload_converter_class=ReversingConverter),
}


class Seen(Interceptor):
    """Notes the activities and workflows that go through it."""

    def __init__(self) -> None:
        self.activities: list[str] = []
        self.workflows: list[str] = []
        self.beats = 0

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _SeenActivity(next, self)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        seen = self.workflows
        input.unsafe_extern_functions["seen_workflow"] = seen.append
        return _SeenWorkflow


class _SeenActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, seen: Seen) -> None:  # noqa: A002
        super().__init__(next)
        self._seen = seen

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        self._seen.activities.append(activity.info().activity_type)
        return await self.next.execute_activity(input)


class _SeenWorkflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        from temporalio import workflow

        workflow.extern_functions()["seen_workflow"](workflow.info().workflow_type)
        return await super().execute_workflow(input)
