"""Calls and results of somebody's own loop, as the messages that a format is written from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from everturn.records import Message, Part, Reply, ToolCall, ToolResult
from everturn.text.shortening import clipped
from everturn.tools.results import result_of
from everturn.tools.unwritten_results import UnwrittenResult, after_effect

CUSTOM = frozenset({"custom", "custom_tool_call"})
"""The `type` of a custom tool's call: in Chat, and in Responses."""

_CUSTOM_IN = {"openai_chat": ("custom", ""), "openai_responses": ("custom_tool_call", "custom_tool_call_output")}
"""By protocol: the `type` of a custom tool's call, and of its result. The other protocols know functions only."""

_OF_ANY_PROVIDER = frozenset({"text", "image", "document", "tool_call", "tool_result"})
"""The kinds of parts that mean the same to all providers."""


def tool_result(call: ToolCall, value: Any) -> ToolResult:
    """What the model is told of a call: `value` is what its tool returned, or the exception that it raised.

    A text, anything that JSON can hold, Images and Documents, content blocks, an MCP result, or a ToolResult, which
    stays as it is. What can't be written becomes an error that says so, since the tool has run.
    """
    try:
        with after_effect():
            result = result_of(call, value)
    except UnwrittenResult as problem:
        result = result_of(call, problem)
    kind = call.extra.get("type")
    if result is value or kind not in CUSTOM:
        return result
    return result.model_copy(update={"extra": {"type": kind}})


def messages_of(given: Iterable[Any]) -> tuple[Message, ...]:
    """The Messages in what a loop has: Messages, Replies, ToolResults, pairs of (call, what it returned or raised).
    Results that follow each other belong to one message. Raises TypeError for anything else."""
    messages: list[Message] = []
    for place, item in enumerate(given):
        message = _to_message(place, item)
        if message is not item and message.role == "tool" and messages and messages[-1].role == "tool":
            earlier = messages.pop()
            message = earlier.model_copy(update={"parts": (*earlier.parts, *message.parts)})
        messages.append(message)
    return tuple(messages)


def _to_message(place: int, item: Any) -> Message:
    match item:
        case Message():
            return item
        case Reply():
            return item.message
        case ToolCall():
            return Message(role="assistant", parts=(item,))
        case ToolResult():
            return Message(role="tool", parts=(item,))
        case (ToolCall() as call, value):
            return Message(role="tool", parts=(tool_result(call, value),))
        case _:
            raise TypeError(
                f"Item {place} is {clipped(repr(item), 80)}, of type {type(item).__name__}, and no message. Give "
                "Messages, Replies, ToolCalls, ToolResults, and pairs of (ToolCall, what it returned or raised)."
            )


def with_custom_calls(messages: Iterable[Message], protocol: str, provider: str) -> Iterator[Message]:
    """The messages, as this provider's own where they have calls of custom tools that another provider made, or nobody
    that they name: a call that `ToolCall.parse` has read stays of its kind, beside calls of functions."""
    if protocol not in _CUSTOM_IN:
        yield from messages
        return
    call_type, result_type = _CUSTOM_IN[protocol]
    for message in messages:
        movable = message.provider != provider and all(part.kind in _OF_ANY_PROVIDER for part in message.parts)
        if movable and any(_is_custom(part) for part in message.parts):
            parts = [
                _retype_part(part, call_type if part.kind == "tool_call" else result_type) for part in message.parts
            ]
            yield message.model_copy(update={"parts": tuple(parts), "provider": provider})
        else:
            yield message


def _is_custom(part: Part) -> bool:
    return part.kind in {"tool_call", "tool_result"} and part.extra.get("type") in CUSTOM


def _retype_part(part: Part, custom_type: str) -> Part:
    """The part with this type, if it is a custom tool's, and otherwise without what only its maker could read."""
    extra: dict[str, Any] = {}
    if custom_type and _is_custom(part):
        extra["type"] = custom_type
    if part.extra == extra:
        return part
    return part.model_copy(update={"extra": extra})
