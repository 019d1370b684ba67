"""What a worker does with payloads that it can't read: stored elsewhere, or encoded by another codec.

Left to the SDK, the workflow task fails for ever: one signal that refers to a missing payload freezes a conversation
for everybody. Here, the task fails a few times, since another worker may be able to read the payload. Then a payload
with the reason replaces it, and the conversation handles that. Other workflows can't, so theirs is not replaced.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, Self

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import (
    DataConverter,
    SerializationContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
    WithSerializationContext,
)

from everturn import names
from everturn.logs import get_logger
from everturn.storage.composed_converter import shared_converter
from everturn.storage.data_converter import NOT_HAD, Payloads, StoredPayloads

TRIES = 2
"""How often an unreadable payload fails its task: another worker may get it. The server waits 10 s before the third."""

MAX_COUNTED = 10_000
"""The most payloads whose tries are counted; the oldest count is dropped."""

Decode = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]

_log = get_logger("everturn.worker")

_WITHOUT_CONTEXT: Final = (Payloads, StoredPayloads)

_in_a_conversation: ContextVar[bool] = ContextVar("in_a_conversation", default=False)
"""Whether the current task is for a conversation or its activity. The SDK runs each in an asyncio task of its own."""


@dataclass(frozen=True)
class GuardedConverter(DataConverter):
    """Runs each of the SDK's three decoding steps for all payloads together; if that fails, for each payload alone."""

    original: DataConverter = field(default_factory=DataConverter)
    replays: bool = False
    """Used by a replayer: no other worker might read the payload, so it is not tried again."""
    tries: OrderedDict[bytes, int] = field(default_factory=OrderedDict, compare=False)

    def with_context(self, context: SerializationContext) -> Self:
        if not self._takes_context:
            return self
        return super().with_context(context)

    @cached_property
    def _takes_context(self) -> bool:
        """Whether any part depends on the context. everturn's own don't, and the SDK calls `with_context` for each
        payload."""
        parts = (self.payload_codec, self.failure_converter, self.external_storage)
        return self.payload_converter_class not in _WITHOUT_CONTEXT or any(
            isinstance(part, WithSerializationContext) for part in parts
        )

    def _with_contexts(
        self, serialization_ctx: SerializationContext, store_ctx: StorageDriverStoreContext
    ) -> DataConverter:
        target = store_ctx.target
        _in_a_conversation.set(isinstance(target, StorageDriverWorkflowInfo) and target.type == names.CONVERSATION)
        return super()._with_contexts(serialization_ctx, store_ctx)

    async def _decode_reference_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._each_tried(super()._decode_reference_payload_sequence, payloads)

    async def _external_retrieve_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._each_tried(super()._external_retrieve_payload_sequence, payloads)

    async def _decode_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._each_tried(super()._decode_payload_sequence, payloads)

    async def _each_tried(self, decode: Decode, payloads: Sequence[Payload]) -> list[Payload]:
        if not _in_a_conversation.get():
            return await decode(payloads)
        if not (self.tries and any(map(_given_up, payloads))):
            try:
                return await decode(payloads)
            except Exception:  # noqa: BLE001 - each payload alone raises its own error; and this is hot
                pass
        return [payload if _given_up(payload) else await self._decode_one(decode, payload) for payload in payloads]

    async def _decode_one(self, decode: Decode, payload: Payload) -> Payload:
        try:
            return (await decode([payload]))[0]
        except Exception as error:
            digest = blake2b(payload.SerializeToString(deterministic=True), digest_size=16).digest()
            self.tries[digest] = self.tries.get(digest, 0) + 1
            self.tries.move_to_end(digest)
            if len(self.tries) > MAX_COUNTED:
                self.tries.popitem(last=False)
            if (self.tries[digest] <= TRIES and not self.replays) or _may_pass(error):
                raise
            error_text = str(error.__cause__ or error) or type(error).__name__
            if not self.replays:
                _log.error("payload.not_had", error=error_text)
            return Payload(metadata={"encoding": NOT_HAD}, data=error_text.encode("utf-8", "replace"))


def _given_up(payload: Payload) -> bool:
    return bool(payload.metadata.get("encoding") == NOT_HAD)


def _may_pass(error: BaseException | None) -> bool:
    """Whether the error may be temporary: the storage can't be reached, rather than lacking the payload."""
    while error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return True
        status = _http_status(error)
        if status >= 500 or status in (408, 429):
            return True
        error = error.__cause__
    return False


def _http_status(error: BaseException) -> int:
    """As boto and aiohttp have it; 0 without one."""
    response: Any = getattr(error, "response", None)
    status: Any = None
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status is None:
        status = getattr(error, "status", 0)
    return status if isinstance(status, int) else 0


def for_worker(client: Client) -> Client:
    """The client with the guarded converter that a worker needs."""
    if isinstance(client.data_converter, GuardedConverter):
        return client
    changed = copy(client)
    # Not Client(**config): that would apply the user's plugins once more.
    changed._config = client.config(active_config=True)
    changed._config["data_converter"] = _guarded(shared_converter(client.data_converter))
    return changed


def for_replayer(converter: DataConverter) -> DataConverter:
    """The converter for a replayer: payloads that no worker could read are replaced here, too."""
    return _guarded(strict(converter), replays=True)


def _guarded(known: DataConverter, *, replays: bool = False) -> GuardedConverter:
    return GuardedConverter(
        payload_converter_class=known.payload_converter_class,
        payload_codec=known.payload_codec,
        failure_converter_class=known.failure_converter_class,
        external_storage=known.external_storage,
        original=known,
        replays=replays,
    )


def strict(converter: DataConverter) -> DataConverter:
    """The converter for readers of histories: an unreadable payload is an error, and is not replaced."""
    if isinstance(converter, GuardedConverter):
        return converter.original
    return converter
