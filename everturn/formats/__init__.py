"""The transcript in each of the four wire formats, and back: for people with a loop of their own.

    messages = from_openai_chat(history)          # dicts, or the SDK's own objects
    call = messages[-1].tool_calls[0]
    history += to_openai_chat([(call, "14 degrees")])     # or the exception that the tool has raised

`to_format` and `from_format` do the same for the format that `api_format=` names.

`to_...` writes exactly the messages that it is given: a message alone becomes that message alone, and a call that has
no result yet gets none made up. Beside Messages it takes Replies, ToolCalls, ToolResults, and pairs of a call and what
its tool returned or raised. `from_...` reads messages, items or contents as they are in a request or a reply.
What only its maker may see (signatures, encrypted reasoning) is kept on the way in, and written for that maker only:
`model` says for whom the messages are, and so in which dialect.

System messages are messages in Chat alone. Elsewhere they have a field of their own: see `instructions_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, get_args

from everturn.formats.own_calls import messages_of, tool_result, with_custom_calls
from everturn.formats.readers import read_anthropic, read_gemini, read_openai_chat, read_openai_responses
from everturn.models import Model, ModelSettings
from everturn.records import Document, Image, Message, Reply, ToolCall, ToolResult, on_lines, tool_pairs
from everturn.tools.results import parts_of_blocks
from everturn.vendors.content_blocks import read_block

__all__ = [
    "ApiFormat",
    "Said",
    "content_blocks_to_text",
    "from_anthropic",
    "from_format",
    "from_gemini",
    "from_openai_chat",
    "from_openai_responses",
    "instructions_of",
    "is_content_block_list",
    "to_anthropic",
    "to_format",
    "to_gemini",
    "to_openai_chat",
    "to_openai_responses",
    "tool_pairs",
    "tool_result",
]

Json = dict[str, Any]

ApiFormat = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]

Said = Message | Reply | ToolCall | ToolResult | tuple[ToolCall, Any]
"""What a loop of your own has said or done; of a pair, the second is what the call's tool returned or raised."""


def to_format(
    messages: Iterable[Said], *, api_format: ApiFormat = "openai-chat", model: str | Model | None = None
) -> list[Json]:
    """The messages in the format that `api_format` names. `model`: as in the function for that format. Raises
    ValueError for a format that there is not."""
    options = {} if model is None else {"model": model}
    written: list[Json] = _of_format(_WRITERS, api_format)(messages, **options)
    return written


def from_format(
    messages: Iterable[Any], *, api_format: ApiFormat = "openai-chat", provider: str | None = None
) -> tuple[Message, ...]:
    """Records of messages, items or contents in the format that `api_format` names. Raises ValueError for a format that
    there is not."""
    options = {} if provider is None else {"provider": provider}
    read: tuple[Message, ...] = _of_format(_READERS, api_format)(messages, **options)
    return read


def is_content_block_list(value: Any) -> bool:
    """Whether it is a list of content blocks, as providers and MCP have them, and of nothing else. An empty one is
    none."""
    return isinstance(value, list | tuple) and bool(value) and all(read_block(item) is not None for item in value)


def content_blocks_to_text(blocks: Any) -> str:
    """Content blocks, or one of them, as a text: texts each on lines of its own, a notice for a picture or a file, and
    the content of text files. Raises ValueError for what has no content blocks."""
    from everturn.providers.media import in_words

    parts = parts_of_blocks(blocks)
    if parts is None:
        raise ValueError(f"These are no content blocks: {blocks!r:.200}")
    return on_lines([in_words(part) if isinstance(part, Image | Document) else part.text for part in parts])


def to_openai_chat(messages: Iterable[Said], *, model: str | Model = "openai-chat:any") -> list[Json]:
    """Chat Completions' `messages`, in the dialect of the model's provider."""
    from everturn.providers import openai_chat

    return _write_messages(openai_chat, "messages", messages, model)


def to_openai_responses(messages: Iterable[Said], *, model: str | Model = "openai:any") -> list[Json]:
    """The Responses API's `input` items."""
    from everturn.providers import openai_responses

    return _write_messages(openai_responses, "input", messages, model)


def to_anthropic(messages: Iterable[Said], *, model: str | Model = "anthropic:any") -> list[Json]:
    """The Messages API's `messages`. The results of one reply are in one user's message, because the API requires
    it."""
    from everturn.providers import anthropic_messages

    return _write_messages(anthropic_messages, "messages", messages, model)


def to_gemini(messages: Iterable[Said], *, model: str | Model = "google:any") -> list[Json]:
    """generateContent's `contents`."""
    from everturn.providers import gemini

    return _write_messages(gemini, "contents", messages, model)


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


_WRITERS: Final[dict[str, Callable[..., list[Json]]]] = {
    "openai-chat": to_openai_chat,
    "openai-responses": to_openai_responses,
    "anthropic": to_anthropic,
    "gemini": to_gemini,
}
_READERS: Final[dict[str, Callable[..., tuple[Message, ...]]]] = {
    "openai-chat": from_openai_chat,
    "openai-responses": from_openai_responses,
    "anthropic": from_anthropic,
    "gemini": from_gemini,
}


def _of_format(functions: dict[str, Callable[..., Any]], api_format: str) -> Callable[..., Any]:
    if api_format not in functions:
        known = ", ".join(map(repr, get_args(ApiFormat)))
        raise ValueError(f"There is no api_format={api_format!r:.100}. It is one of {known}.")
    return functions[api_format]


def _write_messages(protocol: Any, field: str, messages: Iterable[Said], model: str | Model) -> list[Json]:
    from everturn.providers.base import Request

    if not isinstance(model, Model):
        model = Model(model)
    given = messages_of(messages)
    if not given:
        return []
    request = Request(
        model=model,
        messages=tuple(with_custom_calls(given, protocol.__name__.rpartition(".")[2], model.provider)),
        settings=ModelSettings(stream=False, cache=False),
        as_given=True,
    )
    written: list[Json] = protocol.encode(request)[1][field]
    return written
