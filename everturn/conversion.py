"""How payloads become bytes and back: plain JSON, measured before it is sent, checked against types when it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    ExternalStorage,
    JSONPlainPayloadConverter,
)
from temporalio.exceptions import ApplicationError, FailureError

from everturn.bounds import MAX_PAYLOAD_BYTES
from everturn.records import explain

TOO_LARGE = "PayloadTooLarge"
"""Error type of what can't be sent for its size."""


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


class StoredPayloads(CompositePayloadConverter):
    """For clients and workers with external storage, which takes what is too large."""

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        try:
            return super().from_payloads(payloads, type_hints)
        except FailureError:
            raise
        except Exception as error:
            # In external storage that this worker lacks, it is for another worker; else nobody can read it.
            if any(payload.external_payloads for payload in payloads):
                raise
            raise ApplicationError(
                f"A payload can't be read: {error}", type="InvalidPayload", non_retryable=True
            ) from error


class Payloads(StoredPayloads):
    """Refuses what Temporal would not take: sent all the same, it would be tried again for ever, in silence."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        for payload in payloads:
            if (size := payload.ByteSize()) > MAX_PAYLOAD_BYTES:
                raise ApplicationError(
                    f"A payload has {size:,} bytes; the limit is {MAX_PAYLOAD_BYTES:,}.",
                    {"cure": "Set EVERTURN_STORAGE on all workers and clients, or say it in less."},
                    type=TOO_LARGE,
                    non_retryable=True,
                )
        return payloads


data_converter = DataConverter(payload_converter_class=Payloads)


def stored(converter: DataConverter, storage: ExternalStorage | Path | str) -> DataConverter:
    """The converter with external storage for what is large. Raises InvalidSetting."""
    if not isinstance(storage, ExternalStorage):
        from everturn.storage import open_storage

        storage = open_storage(storage)
    known = converter.payload_converter_class
    return replace(
        converter,
        payload_converter_class=StoredPayloads if known is Payloads else known,
        external_storage=storage,
    )
