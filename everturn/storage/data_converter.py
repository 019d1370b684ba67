"""How payloads become bytes and back: plain JSON, measured before it is sent, checked against types when read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    ExternalStorage,
    JSONPlainPayloadConverter,
    PayloadCodec,
)
from temporalio.exceptions import ApplicationError, FailureError

from everturn import names
from everturn.errors import InvalidSetting
from everturn.sizes import MAX_PAYLOAD_BYTES
from everturn.validation.explaining import explain

if TYPE_CHECKING:
    from everturn.storage.encryption import Encryption

CURE: Final = (
    "Set EVERTURN_STORAGE, EVERTURN_DATA_CONVERTER and EVERTURN_ENCRYPTION_KEYS to the "
    "same values on all workers and clients; then resume."
)

NOT_HAD = b"everturn/not-had"
"""The encoding of a payload that replaces an unreadable one: its data says why that could not be read."""


class _Json(PydanticJSONPlainPayloadConverter):
    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        try:
            return super().from_payload(payload, type_hint)
        except ValueError as error:
            # A FailureError ends the workflow with a message; anything else would retry its task in silence, for ever.
            raise ApplicationError(
                f"A payload can't be read: {explain(error)}", type=names.INVALID_PAYLOAD, non_retryable=True
            ) from None


# One for all: the SDK makes a converter for each activation and activity, and this one keeps its type adapters.
JSON = _Json()
_CONVERTERS: Final = CompositePayloadConverter(
    *(
        JSON if isinstance(converter, JSONPlainPayloadConverter) else converter
        for converter in DefaultPayloadConverter.default_encoding_payload_converters
    )
).converters


@dataclass(frozen=True)
class NoValue:
    """Takes the place of an unreadable value if no type is expected: a signal's input, or the details of a failure. In
    those, an exception would fail the workflow."""

    why: str
    elsewhere: bool = False
    """Another worker may be able to read it."""


class StoredPayloads(CompositePayloadConverter):
    """For clients and workers with external storage, which takes payloads that are too large for a history."""

    def __init__(self) -> None:
        super().__init__()
        self.converters = _CONVERTERS  # one mapping for all, not one for each activation

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        if type_hints:
            return self._read_values(payloads, type_hints)
        return [self._read_value(payload) for payload in payloads]

    def _read_value(self, payload: Payload) -> Any:
        try:
            return self._read_values([payload], None)[0]
        except ApplicationError as error:
            return NoValue(error.message, elsewhere=error.type == names.PAYLOAD_NOT_TO_BE_HAD)

    def _read_values(self, payloads: Sequence[Payload], type_hints: list[type] | None) -> list[Any]:
        if type_hints == [RawValue] and len(payloads) == 1:  # for the conversation, which reads it itself
            return [RawValue(payloads[0])]
        try:
            return super().from_payloads(payloads, type_hints)
        except FailureError:
            raise
        except Exception as error:
            for payload in payloads:
                if payload.metadata.get("encoding") == NOT_HAD:
                    raise ApplicationError(
                        payload.data.decode("utf-8", "replace"),
                        {"cure": CURE},
                        type=names.PAYLOAD_NOT_TO_BE_HAD,
                        non_retryable=True,
                    ) from None
            # Another worker may have the external storage that this one lacks. Nobody can read any other payload.
            if any(payload.external_payloads for payload in payloads):
                raise
            raise ApplicationError(
                f"A payload can't be read: {error}", type=names.INVALID_PAYLOAD, non_retryable=True
            ) from error


class Payloads(StoredPayloads):
    """Refuses payloads that are too large for Temporal: if sent, they would be retried for ever, in silence."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        for payload in payloads:
            if (size := payload.ByteSize()) > MAX_PAYLOAD_BYTES:
                raise ApplicationError(
                    f"A payload has {size:,} bytes; the limit is {MAX_PAYLOAD_BYTES:,}.",
                    {"cure": "Set EVERTURN_STORAGE on all workers and clients, or send less."},
                    type=names.PAYLOAD_TOO_LARGE,
                    non_retryable=True,
                )
        return payloads


data_converter = DataConverter(payload_converter_class=Payloads)


def with_storage(converter: DataConverter, storage: ExternalStorage | Path | str) -> DataConverter:
    """The converter with external storage for large payloads. Raises InvalidSetting."""
    if not isinstance(storage, ExternalStorage):
        from everturn.storage.external import open_storage

        storage = open_storage(storage)
    converter_class = converter.payload_converter_class
    if converter_class is Payloads:
        converter_class = StoredPayloads
    return replace(converter, payload_converter_class=converter_class, external_storage=storage)


def configured_converter(encryption: Encryption | None = None) -> DataConverter:
    """The converter that EVERTURN_DATA_CONVERTER names, or everturn's own; encrypted if `encryption` is given or
    EVERTURN_ENCRYPTION_KEYS or EVERTURN_ENCRYPTION_COMMAND is set. Raises InvalidSetting and InvalidFile."""
    from everturn.settings import Settings
    from everturn.storage.codecs import with_encryption
    from everturn.storage.encryption import Encryption as Ours

    settings = Settings.load()
    converter = data_converter
    if settings.data_converter:
        converter = named_converter(settings.data_converter)
    return with_encryption(converter, encryption or Ours.of_settings(settings))


def named_converter(spec: str) -> DataConverter:
    """The converter of this name, or everturn's with the codec of this name. Raises InvalidSetting and InvalidFile."""
    from everturn.system.user_modules import load_object

    loaded = load_object(spec)
    if isinstance(loaded, type):
        try:
            loaded = loaded()
        except Exception as error:
            raise InvalidSetting(
                f"EVERTURN_DATA_CONVERTER={spec!r} can't be created: {error!r}.",
                cure="Name an object, or a class that can be created without arguments.",
            ) from error
    if isinstance(loaded, PayloadCodec):
        return replace(
            data_converter,
            payload_codec=loaded,
            failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
        )
    if isinstance(loaded, DataConverter):
        # A default payload converter is replaced by everturn's: sizes are measured before anything is sent.
        if loaded.payload_converter_class is not DefaultPayloadConverter:
            return loaded
        return replace(loaded, payload_converter_class=Payloads)
    raise InvalidSetting(
        f"EVERTURN_DATA_CONVERTER={spec!r} is a {type(loaded).__name__}.",
        cure="Name a temporalio DataConverter, or a PayloadCodec, which goes around everturn's own.",
    )
