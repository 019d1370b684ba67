"""The transcript in each of the four wire formats, and back: for people with a loop of their own.

    messages = from_openai_chat(history)          # dicts, or the SDK's own objects
    call = messages[-1].tool_calls[0]
    result = ToolResult(call_id=call.call_id, name=call.name, content=(Text(text="14 degrees"),))
    history += to_openai_chat([Message(role="tool", parts=(result,))])

`to_...` writes exactly the messages that it is given: a message alone becomes that message alone, and a call that has
no result yet gets none made up. `from_...` reads messages, items or contents as they are in a request or a reply.
What only its maker may see (signatures, encrypted reasoning) is kept on the way in, and written for that maker only:
`model` says for whom the messages are, and so in which dialect.

System messages are messages in Chat alone. Elsewhere they have a field of their own: see `instructions_of`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everturn.formats.readers import read_anthropic, read_gemini, read_openai_chat, read_openai_responses
from everturn.models import Model, ModelSettings
from everturn.records import Message

__all__ = [
    "from_anthropic",
    "from_gemini",
    "from_openai_chat",
    "from_openai_responses",
    "instructions_of",
    "to_anthropic",
    "to_gemini",
    "to_openai_chat",
    "to_openai_responses",
]

Json = dict[str, Any]


def to_openai_chat(messages: Iterable[Message], *, model: str | Model = "openai-chat:any") -> list[Json]:
    """Chat Completions' `messages`, in the dialect of the model's provider."""
    from everturn.providers import openai_chat

    return _write(openai_chat, "messages", messages, model)


def to_openai_responses(messages: Iterable[Message], *, model: str | Model = "openai:any") -> list[Json]:
    """The Responses API's `input` items."""
    from everturn.providers import openai_responses

    return _write(openai_responses, "input", messages, model)


def to_anthropic(messages: Iterable[Message], *, model: str | Model = "anthropic:any") -> list[Json]:
    """The Messages API's `messages`. The results of one reply are in one user's message, because the API requires
    it."""
    from everturn.providers import anthropic_messages

    return _write(anthropic_messages, "messages", messages, model)


def to_gemini(messages: Iterable[Message], *, model: str | Model = "google:any") -> list[Json]:
    """generateContent's `contents`."""
    from everturn.providers import gemini

    return _write(gemini, "contents", messages, model)


def from_openai_chat(messages: Iterable[Any], *, provider: str = "openai-chat") -> tuple[Message, ...]:
    """Records of Chat Completions' `messages`, or of a reply's `choices[0].message` in a list."""
    return read_openai_chat(messages, provider=provider)


def from_openai_responses(items: Iterable[Any], *, provider: str = "openai") -> tuple[Message, ...]:
    """Records of the Responses API's `input` or `output` items. Calls of one reply belong to one message."""
    return read_openai_responses(items, provider=provider)


def from_anthropic(messages: Iterable[Any], *, provider: str = "anthropic") -> tuple[Message, ...]:
    """Records of the Messages API's `messages`, or of replies. A user's results come before the user's words."""
    return read_anthropic(messages, provider=provider)


def from_gemini(contents: Iterable[Any], *, provider: str = "google") -> tuple[Message, ...]:
    """Records of generateContent's `contents`, or of a reply's `candidates[0].content` in a list."""
    return read_gemini(contents, provider=provider)


def instructions_of(messages: Iterable[Message]) -> str:
    """The system messages as one text: for Anthropic's `system`, Responses' `instructions`, Gemini's own field."""
    return "\n\n".join(message.text for message in messages if message.role == "system" and message.text)


def _write(protocol: Any, field: str, messages: Iterable[Message], model: str | Model) -> list[Json]:
    from everturn.providers.base import Request

    given = tuple(messages)
    if not given:
        return []
    request = Request(
        model=model if isinstance(model, Model) else Model(model),
        messages=given,
        settings=ModelSettings(stream=False, cache=False),
        as_given=True,
    )
    written: list[Json] = protocol.encode(request)[1][field]
    return written
