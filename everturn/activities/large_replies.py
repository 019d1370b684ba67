"""Cuts replies that are larger than a payload, such as those with generated pictures: they are paid for, so they are
never asked for again.

With external storage they stay whole. Without it, large parts go into the artifact store, and a notice takes their
place. Without an artifact store, the notice says that they are lost, and how to keep the next ones.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json
from temporalio import activity

from everturn.logs import get_logger
from everturn.names import TOO_DEEP
from everturn.records import (
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reply,
    ResultPart,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from everturn.sizes import (
    MAX_DETAILS_BYTES,
    MAX_REPLY_BYTES,
    MAX_STORED_REPLY_BYTES,
    SMALL_PART_BYTES,
    size_of,
    too_deep,
)
from everturn.storage.artifacts import Artifacts
from everturn.truncation import Notice, cut_messages, cut_part

KEEP_SECONDS = 30.0

CURE = "Set EVERTURN_STORAGE or EVERTURN_ARTIFACTS on the workers to keep the next one."

LEFT_OUT: Final = "left_out"

_log = get_logger("everturn.turn")


async def fit_reply(reply: Reply, *, turn: int, artifacts: Artifacts | None) -> Reply:
    """The reply, cut to what a payload may hold."""
    reply = _without_deep_values(reply)
    size = size_of(reply.message)
    if size <= MAX_REPLY_BYTES:
        return reply
    limit = MAX_REPLY_BYTES
    if activity.client().data_converter.external_storage is not None:
        limit = MAX_STORED_REPLY_BYTES
    if size <= limit:
        return reply
    parts = reply.message.parts
    large_indexes = _too_large(parts, limit)
    rest_bytes = size - sum(size_of(parts[index]) for index in large_indexes)
    # Whether there are so many small parts that these have to be cut, too.
    shortens_all = rest_bytes + len(large_indexes) * SMALL_PART_BYTES > limit
    keep = [part for index, part in enumerate(parts) if shortens_all or index in large_indexes]
    name = await _keep_parts(keep, turn=turn, artifacts=artifacts)
    notice = f"It is kept as {name}." if name else f"It is lost. {CURE}"
    room = max(SMALL_PART_BYTES, (limit - rest_bytes) // max(1, len(large_indexes)))
    shorter = tuple(
        _shorten_part(part, notice, room) if index in large_indexes else part for index, part in enumerate(parts)
    )
    _log.warning("reply.cut", turn=turn, bytes=size, limit=limit, parts=len(keep), kept_as=name or None)
    # A provider's own parts may refer to what was cut. A message of no provider is encoded without such references.
    message = Message(role=reply.message.role, parts=shorter)
    if shortens_all:
        message = _cut_everywhere(message, notice, limit)
    else:
        (message,) = cut_messages([message], limit)
    return reply.model_copy(update={"message": message})


def _cut_everywhere(message: Message, notice: str, limit: int) -> Message:
    """The message cut to `limit` bytes, with one notice for all that was cut, which comes before the calls."""
    notice_part = Text(text=f"\n[The reply was too large and was cut. {notice}]")
    (shorter,) = cut_messages([message], limit - size_of(notice_part) - 1)
    calls = (index for index, part in enumerate(shorter.parts) if isinstance(part, ToolCall))
    position = next(calls, len(shorter.parts))
    return shorter.model_copy(update={"parts": (*shorter.parts[:position], notice_part, *shorter.parts[position:])})


def _without_deep_values(reply: Reply) -> Reply:
    """The reply without values that are nested too deeply to be read again."""
    parts = tuple(map(_flatten_part, reply.message.parts))
    if parts == reply.message.parts:
        return reply
    return reply.model_copy(update={"message": Message(role=reply.message.role, parts=parts)})


def _flatten_part(part: Part) -> Part:
    match part:
        case ToolCall() if too_deep(part.arguments) or too_deep(part.extra):
            # Like arguments that are no JSON object: the model is told that they can't be read.
            return part.model_copy(update={"arguments": {}, "unparsed": None, "extra": {TOO_DEEP: True}})
        case ServerToolUse() | Opaque() if too_deep(part.data):
            return Text(text=f"\n[Left out because it is nested too deeply: {part.kind}.]\n")
        case _ if too_deep(part.extra):
            return part.model_copy(update={"extra": {}})
        case _:
            return part


def _too_large(parts: tuple[Part, ...], limit: int) -> set[int]:
    """The indices of the largest parts: if these are cut, the reply fits."""
    sizes = {index: size_of(part) for index, part in enumerate(parts)}
    total = sum(sizes.values())
    large: set[int] = set()
    for index in sorted(sizes, key=lambda index: -sizes[index]):
        if total <= limit or sizes[index] <= SMALL_PART_BYTES:
            break
        total -= sizes[index] - SMALL_PART_BYTES
        large.add(index)
    return large


def _shorten_part(part: Part, notice: str, room: int) -> Part:
    if isinstance(part, Text | Thinking):
        return cut_part(part, room, Notice(text=notice))
    shorter = cut_part(part, SMALL_PART_BYTES, Notice(other=notice))
    if not isinstance(shorter, Text):
        return shorter
    return shorter.model_copy(update={"text": f"{shorter.text}\n"})


async def _keep_parts(parts: list[Part], *, turn: int, artifacts: Artifacts | None) -> str:
    """Keeps the parts whole, and returns the name under which they are kept; empty if that was not possible."""
    if artifacts is None:
        return ""
    info = activity.info()
    # No model gives a call such an id, with a space in it.
    whole = ToolResult(call_id=f"turn {turn}", name="reply", content=tuple(map(_as_result_part, parts)))
    try:
        keeping = asyncio.to_thread(artifacts.keep, info.workflow_id or "", whole)
        return await asyncio.wait_for(keeping, KEEP_SECONDS)
    except Exception as error:  # noqa: BLE001 - file systems raise all kinds, and the reply is paid for
        error_text = f"{type(error).__name__}: {error}"
        _log.warning("artifact.lost", conversation=info.workflow_id, turn=turn, error=error_text)
        return ""


def _as_result_part(part: Part) -> ResultPart:
    match part:
        case Text() | Image() | Document():
            return part
        case Thinking():
            return Text(text=part.text)
        case ToolCall():
            return Text(text=_json_text(part.unparsed if part.unparsed is not None else part.arguments))
        case ServerToolUse() | Opaque():
            return Text(text=_json_text(part.data))
        case _:
            return Text(text=part.model_dump_json())


def _json_text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return to_json(value, inf_nan_mode="constants", fallback=str).decode()


def without_large_details(reply: Reply) -> Reply:
    """The reply without the details that are too large for a history, such as the logprobs of a long text; their names
    are under `left_out`. `generate()` gives all of them."""
    sizes = {name: len(name) + size_of(value) for name, value in reply.details.items()}
    large_names: list[str] = []
    while sum(size for name, size in sizes.items() if name not in large_names) > MAX_DETAILS_BYTES:
        large_names.append(max((name for name in sizes if name not in large_names), key=lambda name: sizes[name]))
    if not large_names:
        return reply
    kept = {name: value for name, value in reply.details.items() if name not in large_names}
    return reply.model_copy(update={"details": kept | {LEFT_OUT: [name for name in sizes if name in large_names]}})
