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
from everturn.agent import Agent
from everturn.client.trace_context import current_context
from everturn.declared_tools import check_offered, tool_names
from everturn.errors import InvalidSetting, Refused
from everturn.payloads import MessageIn, Start
from everturn.policy import Policy, Rule, problem, said_by
from everturn.records import Document, Image, Message, Part, Record, Text
from everturn.sizes import MAX_INPUT_PARTS, MAX_UNREAD_BYTES, check_input, size_of
from everturn.temporal.any_status import is_over
from everturn.text.shortening import clipped
from everturn.tools.tool import Tool
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
    parsed = _as_message(message)
    if not may_be_empty or parsed.parts:
        if not parsed.parts:
            raise Refused("The message has no parts.", cure="Give it a text, an image or a document.")
        if all(isinstance(part, Text) and not part.text.strip() for part in parsed.parts):
            raise Refused("The message is empty.", cure="Say something.")
        if len(parsed.parts) > MAX_INPUT_PARTS:
            raise Refused(
                f"The message has {len(parsed.parts):,} parts; the limit is {MAX_INPUT_PARTS:,}.",
                cure="Join its texts.",
            )
        if not parsed.provider and (part := next((part for part in parsed.parts if part.extra), None)):
            raise Refused(
                f"The message's {part.kind} has extra={_short_repr(part.extra)}, which only one provider can read.",
                cure='Name the provider: Message(role="user", parts=..., provider="anthropic").',
            )
    check_input("message", parsed)
    return parsed


def with_tools(message: MessageLike, tools: Iterable[str | Tool] | None, agent: Agent | str = "") -> MessageLike:
    """The message with the only tools for its answer; as it is without any. Raises InvalidTool, for a name that the
    agent does not have if all of its tools are known here; and Refused."""
    if tools is None:
        return message
    wanted = tool_names(tools)
    if isinstance(agent, Agent) and not (agent.mcp_servers or agent.prepare_tools):
        check_offered(agent, wanted or ())
    return user_message(message).model_copy(update={"tools": wanted})


def content_of(message: Message) -> str | tuple[Part, ...]:
    """The content as payloads hold it: a str if the message is one plain text, else the parts."""
    if len(message.parts) == 1 and isinstance(text := message.parts[0], Text) and not text.extra:
        return text.text
    return message.parts


def message_payload(message: MessageLike, *, message_id: str, stream: bool | None = None) -> MessageIn:
    """The payload of `message`. Raises Refused if a conversation would ignore it."""
    parsed = user_message(message)
    content = content_of(parsed)
    payload = make_checked(
        MessageIn,
        names.MESSAGE,
        **{"text" if isinstance(content, str) else "parts": content},
        provider=parsed.provider,
        tools=parsed.tools,
        message_id=message_id,
        stream=stream,
        trace=current_context(),
    )
    check_input(names.MESSAGE, payload)
    return payload


def check_room(payload: MessageIn, described: WorkflowExecutionDescription) -> None:
    """Raises Refused if the run's history has no room for this message: Temporal limits a history's size."""
    size = size_of(payload)
    so_far = described.raw_description.workflow_execution_info.history_size_bytes
    if not is_over(described) and so_far + size > MAX_UNREAD_BYTES:
        raise Refused(
            f"Conversation {described.id!r} can't take a message of {size:,} bytes now: its run has {so_far:,} bytes, "
            f"and the limit is {MAX_UNREAD_BYTES:,}.",
            cure="Wait until it has answered, or send a link: short messages are still accepted.",
        )


def start_payload(message: MessageLike, *, may_be_empty: bool = False, **fields: Any) -> Start:
    """The input of a conversation that begins with this message. Raises Refused."""
    parsed = user_message(message, may_be_empty=may_be_empty)
    content: str | tuple[Part, ...] = ()
    if parsed.parts:
        content = content_of(parsed)
    return make_checked(Start, "start", message=content, provider=parsed.provider, tools=parsed.tools, **fields)


def make_checked(payload: type[R], what: str, **fields: Any) -> R:
    """Makes the record. Raises Refused, with the reason in words, instead of pydantic's error."""
    try:
        return payload(**fields)
    except ValueError as error:
        raise Refused(f"The {what} can't be sent: {explain(error)}.", cure="Correct that, and send it again.") from None


def _as_message(message: MessageLike) -> Message:
    if isinstance(message, str):
        if not message:
            return Message(role="user", parts=())
        return Message.user(message)
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
        return _own_part(item)
    part = read_block(item)
    if part is None:
        raise Refused(
            f"A part of the message can't be sent: {_short_repr(item)}.",
            cure="Give texts, Image(data= or url=) and Document(data= or url=). A file id works with "
            "one provider only: give the file's data or its address.",
        )
    if not isinstance(item, Mapping):
        return part
    beside = {name: item[name] for name in _BESIDE if name in item}
    return part.model_copy(update={"extra": part.extra | beside})


def _own_part(item: Mapping[str, Any]) -> Text | Image | Document:
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


def _short_repr(value: Any) -> str:
    return clipped(repr(value), 100)


def decision_options(always: bool | Mapping[str, Any], within: timedelta | None) -> dict[str, Any]:
    """The options that approve, deny and answer share. Raises InvalidSetting if `within` is not a duration."""
    if within is not None and (problem := durations.problem_of(within)):
        raise InvalidSetting(f"within={within!r} is not a time limit for a decision.", cure=problem)
    options: dict[str, Any] = {"always": None, "valid_until": None}
    if always is not False:
        options["always"] = always
    if within is not None:
        options["valid_until"] = time.time() + within.total_seconds()
    return options


def rules_of(policy: Iterable[Rule | Mapping[str, Any]], *, by: str) -> Policy:
    """The rules that a conversation begins with. Raises Refused."""
    try:
        rules = said_by(by, [Rule.model_validate(rule) for rule in policy], known=())
    except (ValueError, TypeError) as error:
        reason = explain(error) if isinstance(error, ValueError) else str(error)
        raise Refused(
            f"This is not a policy: {reason}.", cure="Give a list of rules: see everturn.policy.Rule."
        ) from None
    if too_much := problem(rules):
        raise Refused(too_much, cure="Give fewer rules, or shorter ones.")
    return rules
