"""Turns what a program gives as a message into the payload that is sent, or refuses it with the reason.

A message that a conversation would ignore, or that a model would never see, is refused here: none is dropped silently.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import WorkflowExecutionDescription

from everturn import names
from everturn.client.trace_context import current_context
from everturn.errors import InvalidSetting, Refused
from everturn.payloads import MessageIn, Start
from everturn.policy import Policy, Rule, problem, said_by
from everturn.records import Document, Image, Message, Part, Record, Text
from everturn.sizes import MAX_INPUT_PARTS, MAX_UNREAD_BYTES, check_input, clipped, size_of
from everturn.temporal.any_status import is_over
from everturn.user_parts import USERS_KINDS
from everturn.validation import durations
from everturn.validation.explaining import explain
from everturn.vendors.content_blocks import read_block

MessageLike = str | Message | Iterable[Part | str | Mapping[str, Any]]
"""A message: a text; parts (Text, Image, Document), or content blocks as dicts; or a user's Message."""

R = TypeVar("R", bound=Record)

_BESIDE = ("cache_control", "citations", "context")
"""Keys of a content block that only its own provider reads."""


def user_message(message: MessageLike, *, may_be_empty: bool = False) -> Message:
    """The message with the role `user`. Raises Refused if it is empty, too large, or can't be sent."""
    said = _as_message(message)
    if not may_be_empty or said.parts:
        if not said.parts:
            raise Refused("The message has no parts.", cure="Give it a text, an image or a document.")
        if all(isinstance(part, Text) and not part.text.strip() for part in said.parts):
            raise Refused("The message is empty.", cure="Say something.")
        if len(said.parts) > MAX_INPUT_PARTS:
            raise Refused(
                f"The message has {len(said.parts):,} parts; the limit is {MAX_INPUT_PARTS:,}.", cure="Join its texts."
            )
        if not said.provider and (part := next((part for part in said.parts if part.extra), None)):
            raise Refused(
                f"The message's {part.kind} has extra={_short(part.extra)}, which only one provider can read.",
                cure='Name the provider: Message(role="user", parts=..., provider="anthropic").',
            )
    check_input("message", said)
    return said


def content_of(message: Message) -> str | tuple[Part, ...]:
    """The content as payloads hold it: a str if the message is one plain text, else the parts."""
    if len(message.parts) == 1 and isinstance(text := message.parts[0], Text) and not text.extra:
        return text.text
    return message.parts


def message_payload(message: MessageLike, *, message_id: str, stream: bool | None = None) -> MessageIn:
    """The payload of `message`. Raises Refused if a conversation would ignore it."""
    said = user_message(message)
    content = content_of(said)
    given: dict[str, Any] = {"text" if isinstance(content, str) else "parts": content, "provider": said.provider}
    payload = checked(MessageIn, names.MESSAGE, **given, message_id=message_id, stream=stream, trace=current_context())
    check_input(names.MESSAGE, payload)
    return payload


def check_room(payload: MessageIn, described: WorkflowExecutionDescription) -> None:
    """Raises Refused if the run's history has no room for this message: Temporal limits a history's size."""
    size, so_far = size_of(payload), described.raw_description.workflow_execution_info.history_size_bytes
    if not is_over(described) and so_far + size > MAX_UNREAD_BYTES:
        raise Refused(
            f"Conversation {described.id!r} can't take a message of {size:,} bytes now: its run has {so_far:,} bytes, "
            f"and the limit is {MAX_UNREAD_BYTES:,}.",
            cure="Wait until it has answered, or send a link: short messages are still accepted.",
        )


def start_payload(message: MessageLike, *, may_be_empty: bool = False, **fields: Any) -> Start:
    """The input of a conversation that begins with this message. Raises Refused."""
    said = user_message(message, may_be_empty=may_be_empty)
    content = content_of(said) if said.parts else ()
    return checked(Start, "start", message=content, provider=said.provider, **fields)


def checked(payload: type[R], what: str, **fields: Any) -> R:
    """Makes the record. Raises Refused, with the reason in words, instead of pydantic's error."""
    try:
        return payload(**fields)
    except ValueError as error:
        raise Refused(f"The {what} can't be sent: {explain(error)}.", cure="Correct that, and send it again.") from None


def _as_message(message: MessageLike) -> Message:
    if isinstance(message, str):
        return Message.user(message) if message else Message(role="user", parts=())
    if isinstance(message, Message):
        if message.role != "user":
            raise Refused(
                f"The message has the role {message.role!r}; only the user's messages can be sent.",
                cure="Send Message.user(...), or the text alone.",
            )
        _ = [_as_part(part) for part in message.parts]
        return message
    if isinstance(message, Mapping) or not isinstance(message, Iterable) or isinstance(message, Record):
        return Message.user([_as_part(message)])
    return Message.user([_as_part(item) for item in message])


def _as_part(item: Any) -> Text | Image | Document:
    if isinstance(item, str):
        return Text(text=item)
    if isinstance(item, Text | Image | Document):
        return item
    if isinstance(item, Mapping) and isinstance(item.get("kind"), str):
        return _own(item)
    part = read_block(item)
    if part is None:
        raise Refused(
            f"A part of the message can't be sent: {_short(item)}.",
            cure="Give texts, Image(data= or url=) and Document(data= or url=). A file id works with "
            "one provider only: give the file's data or its address.",
        )
    beside = {name: item[name] for name in _BESIDE if name in item} if isinstance(item, Mapping) else {}
    return part.model_copy(update={"extra": part.extra | beside})


def _own(item: Mapping[str, Any]) -> Text | Image | Document:
    """A part in everturn's own JSON form."""
    kinds: dict[str, type[Text | Image | Document]] = {"text": Text, "image": Image, "document": Document}
    record = kinds.get(str(item["kind"]))
    if record is None:
        raise Refused(
            f"A user's message has no parts of the kind {item['kind']!r}.", cure=f"It has {', '.join(USERS_KINDS)}."
        )
    if unknown := sorted(item.keys() - record.model_fields.keys()):
        raise Refused(
            f"A part of the message has fields that {item['kind']} doesn't have: {', '.join(map(repr, unknown))}.",
            cure=f"It has {', '.join(record.model_fields)}.",
        )
    try:
        return record.model_validate(dict(item))
    except ValueError as error:
        raise Refused(
            f"A part of the message can't be sent: {explain(error)}.",
            cure="See everturn.Text, Image and Document.",
        ) from None


def _short(value: Any) -> str:
    return clipped(repr(value), 100)


def decision_options(always: bool | Mapping[str, Any], within: timedelta | None) -> dict[str, Any]:
    """The options that approve, deny and answer share. Raises InvalidSetting if `within` is not a duration."""
    if within is not None and (why := durations.problem_of(within)):
        raise InvalidSetting(f"within={within!r} is not a time limit for a decision.", cure=why)
    until = None if within is None else time.time() + within.total_seconds()
    return {"always": always if always is not False else None, "valid_until": until}


def rules_of(policy: Iterable[Rule | Mapping[str, Any]], *, by: str) -> Policy:
    """The rules that a conversation begins with. Raises Refused."""
    try:
        rules = said_by(by, [Rule.model_validate(rule) for rule in policy], known=())
    except (ValueError, TypeError) as error:
        why = explain(error) if isinstance(error, ValueError) else str(error)
        raise Refused(f"This is not a policy: {why}.", cure="Give a list of rules: see everturn.policy.Rule.") from None
    if too_much := problem(rules):
        raise Refused(too_much, cure="Give fewer rules, or shorter ones.")
    return rules
