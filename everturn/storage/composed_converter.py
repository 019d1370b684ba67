"""everturn's payloads in an application that has a data converter of its own.

The application's codec, failure converter and external storage stay, and handle everturn's payloads, too. Its payload
converter still writes and reads the application's values; everturn's records go through everturn's converter.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Self

import temporalio.client
from pydantic_core import to_json, to_jsonable_python
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)

from everturn.records import Record
from everturn.storage.data_converter import JSON, Payloads, StoredPayloads
from everturn.temporal.any_status import AnyStatus

_SAME_JSON = (DefaultPayloadConverter, PydanticPayloadConverter)
"""They write plain JSON as everturn does, so everturn's converter can replace them without loss."""


def own_converter(converter: DataConverter) -> DataConverter:
    """The converter for everturn's own client, its workflow, and readers of their histories."""
    known = converter.payload_converter_class
    converter_class = _own_class(known, stores=converter.external_storage is not None)
    if converter_class is known:
        return converter
    return replace(converter, payload_converter_class=converter_class)


def shared_converter(converter: DataConverter) -> DataConverter:
    """The converter for workers and clients that an application shares with everturn."""
    known = converter.payload_converter_class
    if isinstance(known, _ConverterMeta) or issubclass(known, StoredPayloads):
        return converter
    converter_class: Any = _make_class(_BesideOwnConverter, known, stores=converter.external_storage is not None)
    return replace(converter, payload_converter_class=converter_class)


def own_client(client: temporalio.client.Client) -> temporalio.client.Client:
    """The client with the `own_converter`; the same client if it already has that one."""
    converter = own_converter(client.data_converter)
    if converter is client.data_converter and _reads_any_status(client.config(active_config=True)):
        return client
    return with_converter(client, converter)


def with_converter(client: temporalio.client.Client, converter: DataConverter) -> temporalio.client.Client:
    """The client on the same connection, with another data converter."""
    # Without the plugins: they have changed this config already, and would change it again.
    config = client.config(active_config=True)
    config["data_converter"] = converter
    config["plugins"] = []
    if not _reads_any_status(config):
        config["interceptors"] = [*config["interceptors"], AnyStatus()]  # the last one is next to the server
    changed = temporalio.client.Client(**config)
    changed._initial_config["plugins"] = client.config()["plugins"]  # a worker made with this client uses them
    return changed


def _reads_any_status(config: temporalio.client.ClientConfig) -> bool:
    return any(isinstance(interceptor, AnyStatus) for interceptor in config["interceptors"])


def _own_class(converter_class: type[PayloadConverter], *, stores: bool) -> type[PayloadConverter]:
    converter_class = getattr(converter_class, "beside", converter_class)
    if issubclass(converter_class, StoredPayloads):
        return converter_class
    ours = StoredPayloads if stores else Payloads
    if converter_class in _SAME_JSON:
        return ours
    return _through_class(converter_class, ours)


@cache
def _through_class(theirs: type[PayloadConverter], ours: type[StoredPayloads]) -> type[StoredPayloads]:
    converter_class: type[StoredPayloads] = type(
        f"{ours.__name__}Through{theirs.__name__}",
        (ours, _ThroughOwnConverter),
        {"theirs": theirs, "__module__": __name__},
    )
    return converter_class


class _ThroughOwnConverter(CompositePayloadConverter):
    """Sends plain JSON values through the application's own payload converter, which may encrypt them."""

    theirs: ClassVar[type[PayloadConverter]]

    def __init__(self, *converters: Any) -> None:
        super().__init__(*converters)
        self._theirs = self.theirs()

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        return [
            value.payload if isinstance(value, RawValue) else self._theirs.to_payload(to_jsonable_python(value))
            for value in values
        ]

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        hints: Sequence[Any] = type_hints or [None] * len(payloads)
        return [self._read_payload(payload, hint) for payload, hint in zip(payloads, hints, strict=True)]

    def _read_payload(self, payload: Payload, type_hint: type | None) -> Any:
        if type_hint is RawValue:
            return RawValue(payload)
        try:
            value = self._theirs.from_payload(payload)
        except Exception:
            if payload.metadata.get("encoding", b"") not in self.converters:
                raise
            # Another program, such as the Temporal CLI, wrote plain JSON that the application's converter can't read.
            return super().from_payloads([payload], [type_hint] if type_hint else None)[0]
        if type_hint is None:
            return value
        return JSON.from_payload(Payload(data=to_json(value)), type_hint)

    def with_context(self, context: SerializationContext) -> Self:
        changed = super().with_context(context)
        if isinstance(self._theirs, WithSerializationContext):
            if changed is self:
                changed = type(self)()
            changed._theirs = self._theirs.with_context(context)
        return changed


class _ConverterMeta(ABCMeta):
    """The metaclass of payload converters that are built around an application's own."""

    beside: type[PayloadConverter]
    """The application's own payload converter."""
    stores: bool
    """Whether the converter has external storage."""


@cache
def _make_class(base: _ConverterMeta, theirs: type[PayloadConverter], *, stores: bool) -> _ConverterMeta:
    return _ConverterMeta(
        f"{base.__name__}{theirs.__name__}", (base,), {"beside": theirs, "stores": stores, "__module__": __name__}
    )


def _make_again(theirs: type[PayloadConverter], stores: bool) -> _ConverterMeta:
    return _make_class(_BesideOwnConverter, theirs, stores=stores)


# Activities in other processes get the converter's class by pickle, which can't find a generated class by its name.
copyreg.pickle(_ConverterMeta, lambda generated: (_make_again, (generated.beside, generated.stores)))


class _BesideOwnConverter(PayloadConverter, WithSerializationContext, metaclass=_ConverterMeta):
    """everturn's records go through everturn's converter; all other values through the application's."""

    def __init__(self) -> None:
        converter_class = type(self)
        self._theirs = converter_class.beside()
        self._ours = _own_class(converter_class.beside, stores=converter_class.stores)()

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        if not any(isinstance(value, Record) for value in values):
            return self._theirs.to_payloads(values)
        return [self._converter_for(isinstance(value, Record)).to_payload(value) for value in values]

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        if not any(map(_is_ours, type_hints or ())):
            return self._theirs.from_payloads(payloads, type_hints)
        return [
            self._converter_for(_is_ours(type_hint)).from_payload(payload, type_hint)
            for payload, type_hint in zip(payloads, type_hints or (), strict=True)
        ]

    def _converter_for(self, is_ours: bool) -> PayloadConverter:
        return self._ours if is_ours else self._theirs

    def with_context(self, context: SerializationContext) -> Self:
        changed = type(self)()
        for name, known in (("_theirs", self._theirs), ("_ours", self._ours)):
            if isinstance(known, WithSerializationContext):
                setattr(changed, name, known.with_context(context))
        return changed


def _is_ours(type_hint: object) -> bool:
    return isinstance(type_hint, type) and issubclass(type_hint, Record)
