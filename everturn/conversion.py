"""How payloads become bytes and back: plain JSON, checked against the records' types."""

from __future__ import annotations

from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)
from temporalio.exceptions import ApplicationError

from everturn.payloads import explain


class _Json(PydanticJSONPlainPayloadConverter):
    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        try:
            return super().from_payload(payload, type_hint)
        except ValueError as error:
            # A FailureError ends the workflow with a message; anything else would retry its task in silence, for ever.
            raise ApplicationError(
                f"A payload can't be read: {explain(error)}", type="InvalidPayload", non_retryable=True
            ) from None


# One for all: the SDK makes a converter for each activation and activity, and this one keeps its type adapters.
_JSON = _Json()
_CONVERTERS = tuple(
    _JSON if isinstance(converter, JSONPlainPayloadConverter) else converter
    for converter in DefaultPayloadConverter.default_encoding_payload_converters
)


class _Payloads(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)


data_converter = DataConverter(payload_converter_class=_Payloads)
