"""Whose payload it is reaches whatever of a worker's converter wants to know; where nothing does, nothing is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from everturn.storage.composed_converter import shared_converter
from everturn.storage.data_converter import data_converter, with_storage
from everturn.storage.unreadable import for_replayer

CONTEXT = WorkflowSerializationContext(namespace="default", workflow_id="order-81")


class ByConversation(PayloadCodec, WithSerializationContext):
    """Encodes for one conversation: as who has a key for each does it."""

    def __init__(self, context: SerializationContext | None = None) -> None:
        self.context = context

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]

    def with_context(self, context: SerializationContext) -> Self:
        return type(self)(context)


class Plain(PayloadCodec):
    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]


def test_a_codec_is_told_whose_payload_it_is() -> None:
    made = for_replayer(replace(data_converter, payload_codec=ByConversation())).with_context(CONTEXT)
    assert isinstance(made.payload_codec, ByConversation)
    assert made.payload_codec.context == CONTEXT


@pytest.mark.parametrize("converter", [data_converter, replace(data_converter, payload_codec=Plain())])
def test_where_nobody_wants_to_know_there_is_one_converter(converter: DataConverter) -> None:
    guarded = for_replayer(converter)
    assert guarded.with_context(CONTEXT) is guarded


def test_an_applications_own_payload_converter_is_told() -> None:
    guarded = for_replayer(shared_converter(DataConverter.default))
    assert guarded.with_context(CONTEXT) is not guarded


def test_external_storage_takes_no_context(tmp_path: object) -> None:
    guarded = for_replayer(with_storage(data_converter, str(tmp_path)))
    assert guarded.with_context(CONTEXT) is guarded
