"""Makes things fit: cuts what is too large for a payload or for a model, and says in its place what was there.

`bound_content` cuts a tool's result, and `cut_messages` messages, so that they have no more than so many bytes as
written. Each text in them is cut by `shortened`; see sizes.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from everturn.names import TOO_LARGE
from everturn.payloads import Status
from everturn.records import (
    Decision,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    ResultPart,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from everturn.size_estimates import fits, is_larger
from everturn.sizes import (
    LEAST_PART_BYTES,
    MAX_CAUSE_BYTES,
    MAX_EDIT_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_REASON_BYTES,
    MAX_RESULT_BYTES,
    WHY_BYTES,
    size_of,
)
from everturn.text.shortening import shortened
from everturn.text.utf8 import mend

MAX_NAME_SHOWN = 200
"""Characters of a name or an address, in a notice."""


@dataclass(frozen=True)
class Notice:
    """What the model reads in place of what is missing, beside the sizes."""

    text: str = "Ask for less, or for a part."
    """For a text that was cut; `{shown}` becomes the number of characters shown."""
    other: str = "Ask for a smaller one."
    """For an image or document that was left out."""


NOTHING = Notice(text="", other="")


# ---------------------------------------------------------------- a tool's result


def result_fits(content: Sequence[ResultPart], *, max_chars: int, max_bytes: int = MAX_RESULT_BYTES) -> bool:
    return chars_of(content) <= max_chars and size_of(content) <= max_bytes


def bound_content(
    content: Sequence[ResultPart], *, max_chars: int, notice: Notice, max_bytes: int = MAX_RESULT_BYTES
) -> tuple[ResultPart, ...]:
    """The content, cut to what fits. After a text that was cut, there is no more text."""
    total = chars_of(content)
    chars_shown = 0
    room = max_bytes
    kept: list[ResultPart] = []
    for part in content:
        bounded_part: ResultPart = part
        if not isinstance(part, Text):
            if size_of(part) > room:
                bounded_part = _left_out(part, notice.other)
        elif max_chars < 0:
            continue
        else:
            bounded_part = part if size_of(part) <= room else Text(text=part.text)
            if len(part.text) <= max_chars and size_of(bounded_part) <= room:
                chars_shown += len(part.text)
                max_chars -= len(part.text)
            else:
                bytes_left = room - size_of(Text(text=""))
                text = shortened(
                    part.text,
                    max_bytes=bytes_left,
                    max_chars=max_chars,
                    notice=notice.text,
                    chars_before=chars_shown,
                    total=total,
                )
                bounded_part = Text(text=text)
                max_chars = -1
        kept.append(bounded_part)
        room = max(0, room - size_of(bounded_part) - 1)
    return tuple(kept)


def chars_of(content: Sequence[ResultPart]) -> int:
    return sum(len(part.text) for part in content if isinstance(part, Text))


def edit_notice(decision: Decision | None) -> tuple[ResultPart, ...]:
    """What the model is told of an approval with a note or with other arguments than its own."""
    if decision is None or not decision.is_told:
        return ()
    approver = f" by {decision.by}" if decision.by else ""
    edited = f" with other arguments: {_compact_json(decision.arguments)}" if decision.arguments is not None else ""
    note = f". Note: {decision.note}" if decision.note else ""
    text = shortened(f"Approved{approver}{edited}{note}", max_bytes=MAX_EDIT_BYTES)
    return (Text(text=f"[{text}]\n"),)


def _compact_json(arguments: Mapping[str, JsonValue]) -> str:
    return mend(json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))


# ---------------------------------------------------------------- a status


def short_status(status: Status) -> Status:
    """The status as an answer to a query can carry it. The calls' arguments are whole: a reply holds them all."""
    for most in WHY_BYTES:
        status = status.model_copy(
            update={
                "cause": status.cause and shortened(status.cause, max_bytes=MAX_CAUSE_BYTES),
                "cure": status.cure and shortened(status.cure, max_bytes=MAX_CAUSE_BYTES),
                "waiting": tuple(
                    call.model_copy(update={"why": shortened(call.why, max_bytes=most)}) for call in status.waiting
                ),
            }
        )
        if size_of(status.as_json()) <= MAX_PAYLOAD_BYTES:
            return status
    room = max(0, MAX_PAYLOAD_BYTES - size_of(status.model_copy(update={"agents": ()}).as_json()))
    each = max(map(size_of, status.agents), default=1) + 1
    return status.model_copy(update={"agents": status.agents[: room // each]})


# ---------------------------------------------------------------- messages


def cut_messages(messages: Sequence[Message], room: int) -> tuple[Message, ...]:
    """The messages, cut to `room` bytes. The first ones stay whole as long as there is room. No message is left out,
    nor a result of a call: if there are thousands, even what is left of them may be more than `room`."""
    if fits(messages, room):
        return tuple(messages)
    sizes = [[size_of(part) for part in message.parts] for message in messages]
    least_sizes = [[min(size, LEAST_PART_BYTES) for size in of_message] for of_message in sizes]
    remaining = room - sum(size_of(message.model_copy(update={"parts": ()})) + 1 for message in messages)
    remaining -= sum(len(of_message) + sum(of_message) for of_message in least_sizes)
    if remaining < 0:
        return tuple(map(_least_of, messages))
    shortened_messages = []
    for message, of_parts, least_of_parts in zip(messages, sizes, least_sizes, strict=True):
        parts = []
        for part, size, kept in zip(message.parts, of_parts, least_of_parts, strict=True):
            new = part
            if size > kept + remaining:
                new = cut_part(part, kept + remaining)
            remaining = max(0, remaining + kept - (size if new is part else size_of(new)))
            parts.append(new)
        shortened_messages.append(message.model_copy(update={"parts": tuple(parts)}))
    return tuple(shortened_messages)


def _least_of(message: Message) -> Message:
    """Of very many parts, only the results of calls are left, without their content."""
    results = [ToolResult(call_id=part.call_id, is_error=part.is_error) for part in message.tool_results]
    if len(results) == len(message.parts):
        return message.model_copy(update={"parts": tuple(results)})
    notice = Text(text=f"\n[Left out because it is too large: {len(message.parts) - len(results):,} parts.]")
    return message.model_copy(update={"parts": (notice, *results)})


def cut_part(part: Part, room: int, notice: Notice = NOTHING) -> Part:
    """The part, cut to `room` bytes, or to its notice if that takes more. Never larger than it was."""
    if not is_larger(part, room):
        return part
    if part.extra:
        bare = part.model_copy(update={"extra": {}})
        if not is_larger(bare, room):
            return bare
    shorter = _cut_part(part, room, notice)
    if size_of(shorter) >= size_of(part):
        return part
    return shorter


def _cut_part(part: Part, room: int, notice: Notice) -> Part:
    match part:
        case Text() | Thinking():
            empty = type(part)(text="")
            text = shortened(part.text, max_bytes=room - size_of(empty), notice=notice.text)
            return empty.model_copy(update={"text": text})
        case ToolCall() if len(part.call_id) <= MAX_NAME_SHOWN:
            # As arguments that are no JSON object: they can't be read, and the model is told.
            return part.model_copy(
                update={"arguments": {}, "unparsed": None, "provider_id": None, "extra": {TOO_LARGE: size_of(part)}}
            )
        case ToolResult() if len(part.call_id) <= MAX_NAME_SHOWN:
            return _cut_result(part, room, notice)
        case _:
            return _left_out(part, notice.other)


def _cut_result(result: ToolResult, room: int, notice: Notice) -> ToolResult:
    decision = result.decision and result.decision.model_copy(
        update={"arguments": None, "note": None, "by": result.decision.by[:MAX_NAME_SHOWN]}
    )
    emptied_result = result.model_copy(update={"content": (), "decision": decision, "extra": {}})
    if size_of(emptied_result) > room - LEAST_PART_BYTES // 4:
        emptied_result = emptied_result.model_copy(update={"name": "", "decision": None})  # its call has its name, too
    remaining = room - size_of(emptied_result) - len(',"content":[]')
    content = bound_content(result.content, max_chars=chars_of(result.content), max_bytes=remaining, notice=notice)
    if size_of(content) - 2 > remaining:  # there are very many notices
        text = f"{result.text}\n[Left out because it is too large: {len(content)} parts.]"
        content = (Text(text=shortened(text, max_bytes=remaining - size_of(Text(text="")), notice=notice.text)),)
    return emptied_result.model_copy(update={"content": content})


def without_content(messages: Sequence[Message], named: Sequence[str]) -> tuple[Message, ...]:
    """The messages, with the content of these calls' results left out."""
    return tuple(
        message.model_copy(
            update={
                "parts": tuple(
                    ToolResult(call_id=part.call_id, is_error=part.is_error)
                    if isinstance(part, ToolResult) and part.call_id in named
                    else part
                    for part in message.parts
                )
            }
        )
        for message in messages
    )


def _left_out(part: Part, notice: str) -> Text:
    more = notice and f" {notice}"
    notice_part = Text(text=f"\n[Left out because it is too large: {describe_part(part)}.{more}]")
    if size_of(notice_part) > LEAST_PART_BYTES + len(more):
        return Text(text=f"\n[Left out because it is too large.{more}]")
    return notice_part


def describe_part(part: Part) -> str:
    """A part that is no text, in words."""
    match part:
        case Text():
            return part.text
        case Image() | Document():
            named = f" {name[:MAX_NAME_SHOWN]!r}" if (name := getattr(part, "name", "")) else ""
            size = f"{len(part.data):,} base64 characters" if part.data else part.url or "empty"
            return f"{part.kind}{named} ({(part.media_type or 'of unknown type')[:100]}, {size[:MAX_NAME_SHOWN]})"
        case ServerToolUse():
            return f"what {part.name[:100]} gave ({size_of(part.data):,} bytes)"
        case Opaque() | Thinking() | ToolCall() | ToolResult():
            return f"{part.kind} ({size_of(part):,} bytes)"


def shortened_reason(text: str) -> str:
    """A person's name or reason, short enough to be passed on."""
    return shortened(text, max_bytes=MAX_REASON_BYTES)


def with_short_words(decision: Decision) -> Decision:
    """The decision with its words cut short, since something large goes along with it."""
    note = None if decision.note is None else shortened_reason(decision.note)
    return decision.model_copy(update={"by": shortened_reason(decision.by), "note": note})
