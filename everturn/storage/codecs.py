"""Payload codecs put together: everturn's encryption around whatever codec a converter has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)

from everturn.storage.encryption import Encryption


class Codecs(PayloadCodec, WithSerializationContext):
    """Several codecs as one: they encode in the order given, and decode in reverse."""

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
            codec.with_context(context) if isinstance(codec, WithSerializationContext) else codec
            for codec in self.codecs
        ]
        if all(changed is known for changed, known in zip(codecs, self.codecs, strict=True)):
            return self
        return Codecs(*codecs)


def encryption_of(converter: DataConverter) -> Encryption | None:
    """The Encryption that the converter uses; None if it uses none."""
    codec = converter.payload_codec
    codecs = codec.codecs if isinstance(codec, Codecs) else (codec,)
    return next((codec for codec in codecs if isinstance(codec, Encryption)), None)


def with_encryption(converter: DataConverter, encryption: Encryption | None) -> DataConverter:
    """The converter with encryption after its own codec, if it has one. Returned unchanged if `encryption` is None or
    the converter encrypts already. Failures' messages and stack traces are encrypted, too, unless the converter has a
    failure converter of its own."""
    if encryption is None or encryption_of(converter):
        return converter
    codec: PayloadCodec = encryption
    if converter.payload_codec:
        codec = Codecs(converter.payload_codec, encryption)
    failure_converter = converter.failure_converter_class
    if failure_converter is DefaultFailureConverter:
        failure_converter = DefaultFailureConverterWithEncodedAttributes
    return replace(converter, payload_codec=codec, failure_converter_class=failure_converter)
