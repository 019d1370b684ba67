"""How payloads become bytes and back: plain JSON, measured before it is sent, checked against types when it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    ExternalStorage,
    JSONPlainPayloadConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)
from temporalio.exceptions import ApplicationError, FailureError

from everturn import names
from everturn.errors import InvalidSetting
from everturn.records import explain
from everturn.sizes import MAX_PAYLOAD_BYTES
from everturn.storage.encryption import Encryption

CURE: Final = (
    "Set EVERTURN_STORAGE, EVERTURN_DATA_CONVERTER and EVERTURN_ENCRYPTION_KEYS alike on all workers and clients; then "
    "resume."
)

NOT_HAD = b"everturn/not-had"
"""The encoding of a payload that takes the place of one that can't be read: its data says why."""


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
_CONVERTERS = tuple(
    JSON if isinstance(converter, JSONPlainPayloadConverter) else converter
    for converter in DefaultPayloadConverter.default_encoding_payload_converters
)


@dataclass(frozen=True)
class NoValue:
    """Takes the place of an unreadable value if no type is expected: a signal's input, or the details of a failure. In
    those, an exception would fail the workflow."""

    why: str
    elsewhere: bool = False
    """Another worker may be able to read it."""


class StoredPayloads(CompositePayloadConverter):
    """For clients and workers with external storage, which takes what is too large."""

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        if type_hints:
            return self._values(payloads, type_hints)
        return [self._value(payload) for payload in payloads]

    def _value(self, payload: Payload) -> Any:
        try:
            return self._values([payload], None)[0]
        except ApplicationError as error:
            return NoValue(error.message, elsewhere=error.type == names.PAYLOAD_NOT_TO_BE_HAD)

    def _values(self, payloads: Sequence[Payload], type_hints: list[type] | None) -> list[Any]:
        for payload in payloads:
            if payload.metadata.get("encoding") == NOT_HAD and not _is_raw(type_hints):
                raise ApplicationError(
                    payload.data.decode("utf-8", "replace"),
                    {"cure": CURE},
                    type=names.PAYLOAD_NOT_TO_BE_HAD,
                    non_retryable=True,
                )
        try:
            return super().from_payloads(payloads, type_hints)
        except FailureError:
            raise
        except Exception as error:
            # In external storage that this worker lacks, it is for another worker; else nobody can read it.
            if any(payload.external_payloads for payload in payloads):
                raise
            raise ApplicationError(
                f"A payload can't be read: {error}", type=names.INVALID_PAYLOAD, non_retryable=True
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
                    type=names.PAYLOAD_TOO_LARGE,
                    non_retryable=True,
                )
        return payloads


def _is_raw(type_hints: list[type] | None) -> bool:
    return type_hints is not None and type_hints[0] is RawValue


data_converter = DataConverter(payload_converter_class=Payloads)


def stored(converter: DataConverter, storage: ExternalStorage | Path | str) -> DataConverter:
    """The converter with external storage for what is large. Raises InvalidSetting."""
    if not isinstance(storage, ExternalStorage):
        from everturn.storage.external import open_storage

        storage = open_storage(storage)
    known = converter.payload_converter_class
    return replace(
        converter,
        payload_converter_class=StoredPayloads if known is Payloads else known,
        external_storage=storage,
    )


class Codecs(PayloadCodec, WithSerializationContext):
    """Several codecs as one: the first is the first to encode, and the last to decode."""

    def __init__(self, *codecs: PayloadCodec) -> None:
        self.codecs = codecs

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        for codec in self.codecs:
            payloads = await codec.encode(payloads)
        return [*payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        for codec in reversed(self.codecs):
            payloads = await codec.decode(payloads)
        return [*payloads]

    def with_context(self, context: SerializationContext) -> Codecs:
        codecs = [
            one.with_context(context) if isinstance(one, WithSerializationContext) else one for one in self.codecs
        ]
        unchanged = all(made is known for made, known in zip(codecs, self.codecs, strict=True))
        return self if unchanged else Codecs(*codecs)


def encryption_of(converter: DataConverter) -> Encryption | None:
    """What encrypts the converter's payloads; None if nothing of ours does."""
    codec = converter.payload_codec
    return next(
        (one for one in (codec.codecs if isinstance(codec, Codecs) else (codec,)) if isinstance(one, Encryption)), None
    )


def encrypted(converter: DataConverter, encryption: Encryption | None) -> DataConverter:
    """The converter with the encryption around its own codec, if it has one; the same for None, and for one that is
    encrypted already. What failures say (messages and stack traces) is encrypted, too, unless the converter has a
    failure converter of its own."""
    if encryption is None or encryption_of(converter):
        return converter
    known, failures = converter.payload_codec, converter.failure_converter_class
    return replace(
        converter,
        payload_codec=Codecs(known, encryption) if known else encryption,
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes
        if failures is DefaultFailureConverter
        else failures,
    )


def configured(encryption: Encryption | None = None) -> DataConverter:
    """The one that EVERTURN_DATA_CONVERTER names, or else everturn's own; encrypted, if that is given or if
    EVERTURN_ENCRYPTION_KEYS or _COMMAND says so. Raises InvalidSetting and InvalidFile."""
    from everturn.settings import Settings

    settings = Settings.load()
    return encrypted(_named(settings.data_converter), encryption or Encryption.of_settings(settings))


def _named(spec: str | None) -> DataConverter:
    if not spec:
        return data_converter
    from everturn.user_modules import load_object

    found = load_object(spec)
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise InvalidSetting(
                f"EVERTURN_DATA_CONVERTER={spec!r} can't be made: {error!r}.",
                cure="Name an object, or a class that can be made without arguments.",
            ) from error
    if isinstance(found, PayloadCodec):
        return replace(
            data_converter,
            payload_codec=found,
            failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
        )
    if isinstance(found, DataConverter):
        # What is not said otherwise is everturn's own: sizes are measured before anything is sent.
        default = found.payload_converter_class is DefaultPayloadConverter
        return replace(found, payload_converter_class=Payloads) if default else found
    raise InvalidSetting(
        f"EVERTURN_DATA_CONVERTER={spec!r} is a {type(found).__name__}.",
        cure="Name a temporalio DataConverter, or a PayloadCodec, which goes around everturn's own.",
    )
