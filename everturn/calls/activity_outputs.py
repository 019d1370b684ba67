"""What a user's own activity gave or raised, as the result of the call that it served.

The conversation and the readers of its history both make it here, of what the event holds, so that they say the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from nexusrpc import HandlerError, OperationError
from pydantic_core import to_jsonable_python
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError

from everturn.records import Document, Image, ResultPart, Text, ToolResult
from everturn.sizes import MAX_ERROR_BYTES, MAX_RESULT_BYTES
from everturn.system.json_numbers import compact_json, in_words
from everturn.text.base64_text import as_base64
from everturn.text.shortening import shortened
from everturn.text.utf8 import mend
from everturn.truncation import Notice, bound_content
from everturn.validation.explaining import why_unreadable
from everturn.vendors.content_blocks import FAILED, NO_OUTPUT, parts_in, says_error

TOOL_FAILED = "ToolFailed"
"""An error of this type means what it says for the model: its type is not shown."""

_JSON = (b"json/plain", b"json/protobuf")


def result_of(call_id: str, name: str, value: Any, *, max_chars: int, room: int = MAX_RESULT_BYTES) -> ToolResult:
    """The result of an activity that returned this value, cut to so many characters and bytes."""
    parts = parts_in(value)
    content: tuple[ResultPart, ...]
    failed = False
    if parts is None:
        content = (Text(text=_as_text(value)),)
    else:
        content = _as_parts(parts)
        failed = says_error(value)
    return _bounded_result(call_id, name, content, is_error=failed, max_chars=max_chars, room=room)


def failure_of(
    call_id: str, name: str, error: BaseException, *, max_chars: int, room: int = MAX_RESULT_BYTES
) -> ToolResult:
    """The result of an activity or a Nexus operation that raised an error: any but a time-out."""
    while isinstance(error, HandlerError | OperationError) and error.__cause__:  # Nexus's own, around the handler's
        error = error.__cause__
    message = str(getattr(error, "message", "")) or FAILED
    kind = (error.type or "") if isinstance(error, ApplicationError) else ""
    if not kind and isinstance(cause := error.__cause__, ApplicationError) and cause.message:  # Temporal's own words
        message = f"{message}: {cause.type}: {cause.message}" if cause.type else f"{message}: {cause.message}"
    text = message if kind in ("", TOOL_FAILED) else f"{kind}: {message}"
    text = shortened(mend(text), max_bytes=MAX_ERROR_BYTES)
    return _bounded_result(call_id, name, (Text(text=text),), is_error=True, max_chars=max_chars, room=room)


def not_taken(activity: str, task_queue: str, seconds: float) -> tuple[str, str]:
    """Cause and cure, if no worker took an activity in time."""
    cause = f"No worker on task queue {task_queue!r} took the activity {activity!r} within {seconds:g} s."
    cure = (
        f"Start a worker that has it, or check whether the polling workers are busy: temporal task-queue describe "
        f"--task-queue {task_queue} --task-queue-type activity"
    )
    return cause, cure


def not_started(endpoint: str, operation: str, within: timedelta) -> tuple[str, str]:
    """Cause and cure, if nobody began a Nexus operation in time. `operation`: `service/operation`."""
    cause = f"No handler at the Nexus endpoint {endpoint!r} started {operation!r} within {within.total_seconds():g} s."
    cure = (
        f"Start a worker with that service on the endpoint's task queue. This shows the queue: temporal operator nexus "
        f"endpoint get --name {endpoint}"
    )
    return cause, cure


def unreadable_text(name: str, reason: str) -> str:
    return f"{what_of(name)} can't be read: {reason}"


def what_of(name: str) -> str:
    return f"The result of {name}"


def value_in(raw: RawValue | None, converter: PayloadConverter) -> tuple[Any, str]:
    """What an activity returned; or None, and why that can't be read. JSON is read without a type, whatever language
    wrote it. The converter reads anything else."""
    if raw is None:
        return None, ""
    encoding = raw.payload.metadata.get("encoding")
    data = raw.payload.data
    if encoding in _JSON:
        try:
            return json.loads(data), ""
        except (ValueError, RecursionError):  # it is shown as it is
            return data.decode("utf-8", "replace"), ""
    try:
        # With a type, for ours would give a stand-in for what it can't read.
        return converter.from_payloads([raw.payload], [Any])[0], ""
    except Exception as error:  # noqa: BLE001 - converters raise all kinds
        return None, why_unreadable(error)


def _bounded_result(
    call_id: str, name: str, content: Sequence[ResultPart], *, is_error: bool, max_chars: int, room: int
) -> ToolResult:
    kept = bound_content(content, max_chars=max_chars, max_bytes=room, notice=Notice())
    return ToolResult(call_id=call_id, name=name, content=kept, is_error=is_error)


def _as_parts(values: Sequence[Any]) -> tuple[ResultPart, ...]:
    return tuple(map(_as_part, values)) or (Text(text=NO_OUTPUT),)


def _as_part(value: Any) -> ResultPart:
    if isinstance(value, Text):
        return Text(text=_as_text(value.text))
    if not isinstance(value, Image | Document):
        return Text(text=_as_text(value))
    if not value.data:
        return value
    # A provider would refuse data that is not base64, in this request and in all later ones.
    data = as_base64(value.data)
    if not data:
        return Text(text=f"[Left out because it is not base64: {value.kind}.]")
    return value.model_copy(update={"data": data})


def _as_text(value: Any) -> str:
    if value is None or value == "":
        return NO_OUTPUT
    if isinstance(value, bytes | bytearray):
        return f"[Left out because it is not text: {len(value):,} bytes.]"
    return mend(value if isinstance(value, str) else _written_out(value))


def _written_out(value: Any) -> str:
    if isinstance(value, float):  # by itself it is words, and no JSON: NaN needs no quotes
        return in_words(float(value))
    return compact_json(value, default=_plain_value)


def _plain_value(value: Any) -> Any:
    """What a converter made that JSON does not know."""
    return to_jsonable_python(value, inf_nan_mode="strings", fallback=str)
