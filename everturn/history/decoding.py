"""Reads payloads of histories as the records they should be. Another version may have written them, or another
program."""

from __future__ import annotations

from typing import Any, TypeVar

from temporalio.api.common.v1 import Payloads
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.calls.decision_records import DECISION_RECORDS, InheritPolicy, SetPolicy
from everturn.errors import InvalidSetting, OtherWorkflow
from everturn.payloads import Control, MessageIn
from everturn.records import Record
from everturn.storage.encryption import key_id_of, lacking_key
from everturn.validation.explaining import why_unreadable

R = TypeVar("R")

COMMANDS: dict[str, type[Record]] = {
    **DECISION_RECORDS,
    names.SET_POLICY: SetPolicy,
    names.INHERIT_POLICY: InheritPolicy,
    **dict.fromkeys((names.PAUSE, names.RESUME, names.CANCEL_TURN, names.CLOSE), Control),
}
"""What people decide and steer with. A signal with another name, or with a payload that is not such a record, changes
nothing."""

_PLAIN = (b"json/plain", b"json/protobuf", b"binary/null", b"binary/plain", b"binary/protobuf")
"""Encodings that need no codec."""

UNREADABLE = (ApplicationError, ValueError, KeyError, RuntimeError, RecursionError)
"""What decoding raises for a payload that we can't read: it is not JSON, its encoding is unknown, or its codec is
missing."""


class Decoder:
    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter

    async def read_record(self, payloads: Payloads, record: type[R]) -> R | None:
        """The first payload as a record; None if it is not one. Such input changed nothing when it arrived."""
        return (await self.try_to_read(payloads, record))[0]

    async def try_to_read(self, payloads: Payloads, kind: type[R]) -> tuple[R | None, str]:
        """The first payload; or None, and why it can't be read."""
        try:
            values = await self.decode(payloads, [kind])
        except UNREADABLE as error:
            if kind is not MessageIn:  # which anybody may send
                _check_encoding(payloads, error)
            return None, why_unreadable(error)
        if not values:
            return None, "it is empty"
        if not isinstance(values[0], kind):
            return None, f"it is a {type(values[0]).__name__}"
        return values[0], ""

    async def find_problem(self, payloads: Payloads, record: type[Record]) -> str:
        """Why the first payload is no such record, as whoever checks it as plain JSON says it; empty if it is one."""
        try:
            values = await self.decode(payloads, None)
            record.model_validate(values[0] if values else {})
        except UNREADABLE as error:
            return why_unreadable(error)
        return ""

    async def read_text(self, payloads: Payloads) -> str:
        """A result that is a text; empty if it is not a text."""
        return await self.read_record(payloads, str) or ""

    async def decode(self, payloads: Payloads, types: list[type] | None) -> list[Any]:
        if not payloads.payloads:
            return []
        try:
            return await self._converter.decode(payloads.payloads, types)
        except (ApplicationError, InvalidSetting):
            raise
        except Exception as error:
            if not any(payload.external_payloads for payload in payloads.payloads):
                raise
            # Not the sender's doing: the input may be fine, and we can't see it.
            raise InvalidSetting(
                f"A payload of this conversation is in external storage and can't be read from there: {error}.",
                cure="Set EVERTURN_STORAGE (or connect(storage=)) to the same value as on the conversation's workers.",
            ) from error


def check_kind(workflow_id: str, workflow_type: str) -> None:
    """Raises OtherWorkflow for another kind of workflow: nobody shall wait for what it never does, and nobody shall say
    to it what it may understand otherwise."""
    if workflow_type not in (names.CONVERSATION, ""):
        raise OtherWorkflow(
            f"There is no conversation {workflow_id!r}: that is a workflow of type {workflow_type!r}.",
            cure="`everturn list` shows the conversations there are.",
        )


def _check_encoding(payloads: Payloads, error: Exception) -> None:
    """Raises InvalidSetting if it was written with a data converter that this process does not have, or with another
    key."""
    for payload in payloads.payloads:
        encoding = payload.metadata.get("encoding", b"")
        if key_id := key_id_of(payload):
            raise lacking_key(key_id) from error
        if encoding not in _PLAIN:
            raise InvalidSetting(
                f"Payloads of this conversation can't be read: they are {encoding.decode(errors='replace')!r} "
                f"({str(error)[:200] or type(error).__name__}).",
                cure="Set EVERTURN_DATA_CONVERTER (or connect(data_converter=)) to the same "
                "value as where the payloads are written.",
            ) from error
