"""OpenAI's Chat Completions, and the dialects of the servers that speak it too: requests.

What comes back is read in `openai_chat_replies`; `decode` and `Assembler` are given on from here, for a protocol
is one module to its users: `encode(request)`, `decode(body, request)`, `Assembler(request)`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from everturn.providers.base import Request, ToolSpec
from everturn.providers.catalog import Dialect, row_of
from everturn.providers.openai_chat_replies import Assembler, decode
from everturn.providers.untrusted import write
from everturn.records import Image, Message, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["Assembler", "decode", "encode"]

PATH = "/chat/completions"

NO_RESULT = "Error: this call has no result."
"""What the model reads for a call that was never answered. Servers refuse a call without a result."""

UNPARSED = "INVALID_JSON"
"""The key under which a model reads arguments of its own that were no JSON object. Servers parse the arguments of
past calls, and refuse the whole request if they can't."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def encode(request: Request) -> tuple[str, dict[str, Any]]:
    """The path under the base URL, and the body."""
    dialect = row_of(request.model.provider).dialect
    settings = request.settings
    body: dict[str, Any] = {"model": request.model.model, "messages": _messages(request, dialect)}
    body |= _tools(request, dialect)
    if settings.max_output_tokens is not None:
        body[dialect.max_tokens] = settings.max_output_tokens
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.reasoning_effort is not None:
        body["reasoning_effort"] = settings.reasoning_effort
    if settings.stop:
        body["stop"] = list(settings.stop)
    if settings.stream:
        body["stream"] = True
        if dialect.stream_usage:
            body["stream_options"] = {"include_usage": True}
    return PATH, body | settings.extra


def _tools(request: Request, dialect: Dialect) -> dict[str, Any]:
    tools = [*map(_tool, request.tools), *map(dict, request.raw_tools)]
    if not tools:
        return {}
    body: dict[str, Any] = {"tools": tools}
    choice = "none" if request.conclude else request.settings.tool_choice
    if choice == "required":
        body["tool_choice"] = dialect.required
    elif choice in {"auto", "none"}:
        body["tool_choice"] = choice
    elif choice:
        body["tool_choice"] = {"type": "function", "function": {"name": choice}}
    if request.settings.parallel_calls is not None:
        body["parallel_tool_calls"] = request.settings.parallel_calls
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    # `strict` stays out: several servers refuse the field, and without it OpenAI takes the schema as it is.
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _messages(request: Request, dialect: Dialect) -> list[dict[str, Any]]:
    results = {result.call_id: result for message in request.messages for result in message.tool_results}
    messages = request.messages
    leading = next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))
    # Many servers take no more than one system message, and that one first.
    system = "\n\n".join(filter(None, [request.instructions, *(message.text for message in messages[:leading])]))
    encoded: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages[leading:]:
        match message.role:
            case "assistant":
                encoded += _assistant(message, results, dialect=dialect, provider=request.model.provider)
            case "user" if any(isinstance(part, Text | Image) for part in message.parts):
                encoded.append({"role": "user", "content": _user_content(message.parts)})
            case "system":
                encoded.append({"role": "system", "content": message.text})
            case _:
                pass  # each result goes behind its call
    return encoded if dialect.user_after_tool else list(_bridged(encoded))


def _assistant(
    message: Message, results: dict[str, ToolResult], *, dialect: Dialect, provider: str
) -> Iterator[dict[str, Any]]:
    """The assistant's message, the results of its calls in their order, and the pictures in these results."""
    encoded: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls := message.tool_calls:
        encoded["content"] = message.text or None
        encoded["tool_calls"] = [_call(call, dialect) for call in calls]
        if dialect.reasoning_back:
            # Required with thinking on, where an empty one will do; another provider's thoughts stay with it.
            own = message.provider == provider
            encoded["reasoning_content"] = "".join(
                part.text for part in message.parts if own and isinstance(part, Thinking)
            )
    yield encoded
    for call in calls:
        result = results.get(call.call_id)
        yield {
            "role": "tool",
            "tool_call_id": _wire_id(call, dialect),
            "content": _result_text(result) if result else NO_RESULT,
        }
    for call in calls:
        if (result := results.get(call.call_id)) and (pictures := _pictures(result)):
            label = Text(text=f"From the result of {call.name} ({_wire_id(call, dialect)}):")
            yield {"role": "user", "content": _user_content((label, *pictures))}


def _call(call: ToolCall, dialect: Dialect) -> dict[str, Any]:
    arguments = call.arguments if call.unparsed is None else {UNPARSED: call.unparsed}
    # Models make up names that servers then refuse to read back.
    name = _NOT_IN_NAMES.sub("_", call.name)[:64] or "unknown"
    function = {"name": name, "arguments": write(arguments).decode()}
    return {"id": _wire_id(call, dialect), "type": "function", "function": function}


def _wire_id(call: ToolCall, dialect: Dialect) -> str:
    """The call's id as this server takes it: the same for the call and its result, in every request."""
    given = call.provider_id or call.call_id
    if dialect.call_id is None or dialect.call_id.fullmatch(given):
        return given
    return hashlib.sha256(given.encode()).hexdigest()[:9]


def _result_text(result: ToolResult) -> str:
    """A tool message holds text only and has no flag for errors: pictures and errors are put into words."""
    pieces = [part.text if isinstance(part, Text) else "[image: in the next message]" for part in result.content]
    text = "\n".join(pieces) if _pictures(result) else "".join(pieces)
    if result.is_error and not text.lower().startswith("error"):
        return f"Error: {text}"
    return text


def _pictures(result: ToolResult) -> tuple[Image, ...]:
    return tuple(part for part in result.content if isinstance(part, Image))


def _user_content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            url = part.url or f"data:{part.media_type};base64,{part.data}"
            content.append({"type": "image_url", "image_url": {"url": url}})
    return content


def _bridged(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mistral answers 400 (code 3230) to a user message right after a tool message."""
    previous = ""
    for message in messages:
        if previous == "tool" and message["role"] == "user":
            yield {"role": "assistant", "content": "OK"}
        previous = message["role"]
        yield message
