"""What others' forms hold is read rightly or refused by its name: nothing is left out, and nobody's words become
another's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest

from everturn import Message
from everturn.errors import Refused
from everturn.formats import from_anthropic, from_gemini, from_openai_chat, from_openai_responses, known_kinds
from everturn.formats.any_format import read_any
from tests.support.agents import nowhere

PART = {"content": "My order is 81.", "part_kind": "user-prompt"}
UI = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "My order is 81."}]}


def langchain(*, wrapped: bool = False) -> list[dict[str, Any]]:
    from langchain_core.load import dumpd
    from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict

    said = [HumanMessage("My order is 81."), AIMessage("Noted.")]
    return messages_to_dict(said) if wrapped else [dumpd(one) for one in said]


def pydantic_ai() -> list[dict[str, Any]]:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        TextPart,
        UserPromptPart,
    )

    said: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("My order is 81.")]),
        ModelResponse(parts=[TextPart("Noted.")]),
    ]
    dumped: list[dict[str, Any]] = json.loads(ModelMessagesTypeAdapter.dump_json(said))
    return dumped


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (pydantic_ai, r"'content'.* It looks like pydantic-ai"),
        (lambda: [{"kind": "request", "parts": [PART]}], "It looks like pydantic-ai"),
        (langchain, r"It looks like LangChain: .*convert_to_openai_messages"),
        (lambda: langchain(wrapped=True), r"type='human'.* It looks like LangChain"),
        (lambda: [{"type": "human", "content": "Hi"}, {"type": "ai", "content": "Ho"}], "type='human'"),
        (lambda: [{"role": "user", "content": "Hi"}, {"type": "ai", "content": "Ho"}], "type='ai'"),
        (lambda: [UI], "'type'"),  # the AI SDK's, on a page
        (lambda: [{"role": "user", "content": [{"type": "tool-call", "toolCallId": "a"}]}], "the AI SDK"),
        (lambda: [{"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "a"}]}], "type='tool-call'"),
        (lambda: [{"role": "tool", "content": [{"type": "tool-result", "toolCallId": "a"}]}], "type='tool-result'"),
        (lambda: [{"role": "user", "content": [{"text": "Hi"}]}], "no type"),  # Bedrock's
        (lambda: [{"role": "assistant", "content": [{"toolUse": {"name": "x"}}]}], "no type"),
        (lambda: [{"role": "user", "blocks": [{"text": "Hi"}], "additional_kwargs": {}}], "LlamaIndex"),
        (lambda: [{"role": "assistant", "blocks": [{"text": "Hi"}]}], "'blocks', 'role'"),
        (lambda: [{"role": "user", "message": "Hi"}], "field 'message'"),  # Cohere's
        (lambda: [{"role": "user", "content": "Hi", "images": ["aGk="]}], "field 'images'"),  # Ollama's
        (lambda: [{"role": "user", "items": [{"text": "Hi"}]}], "field 'items'"),  # Semantic Kernel's
        (lambda: [{"role": "USER", "content": "Hi"}], "role='USER'"),
        (lambda: [{"role": "function", "name": "x", "content": "Hi"}], "role='function'"),
        (lambda: [{"role": "assistant", "content": "", "tool_calls": [{"name": "x", "args": {}, "id": "a"}]}], "call"),
        (lambda: [{"type": "TextMessage", "source": "user", "content": "Hi"}], "type='TextMessage'"),  # AutoGen's
        (lambda: [{"role": "user", "content": 5}], "of type int"),
        (lambda: [{"role": "user", "parts": [{"kind": "file", "file": {"uri": "x"}}]}], "not a Message"),  # A2A's
    ],
)
def test_a_transcript_in_a_form_that_is_not_known_is_refused(
    given: Callable[[], list[dict[str, Any]]], problem: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=problem):
        read_any(given())


async def test_nothing_starts_with_a_transcript_that_is_refused() -> None:
    with pytest.raises(Refused, match=r"The transcript can't be read: .*It looks like pydantic-ai"):
        await nowhere().start("clerk", "What is my order?", transcript=pydantic_ai())


@pytest.mark.parametrize(
    ("read", "item", "problem"),
    [
        (from_openai_chat, {"role": "user", "content": [{"type": "hologram"}]}, "type='hologram'"),
        (from_openai_chat, {"role": "tool", "tool_call_id": "a", "content": [{"type": "hologram"}]}, "'hologram'"),
        (from_openai_chat, {"role": "user", "content": "a", "hologram": "b"}, "field 'hologram'"),
        (from_openai_responses, {"type": "hologram", "content": "a"}, "type='hologram'"),
        (from_openai_responses, {"role": "user", "content": [{"type": "hologram"}]}, "type='hologram'"),
        (from_openai_responses, {"role": "assistant", "content": [{"type": "hologram"}]}, "type='hologram'"),
        (from_openai_responses, {"role": "user"}, "the fields 'role'"),
        (from_anthropic, {"role": "user", "content": [{"type": "hologram"}]}, "type='hologram'"),
        (from_anthropic, {"role": "assistant", "content": [{"type": "hologram"}]}, "type='hologram'"),
        (from_anthropic, {"role": "tool", "content": "a"}, "role='tool'"),
        (from_anthropic, {"role": "user", "parts": "a"}, "'parts', 'role'"),
        (from_gemini, {"role": "user", "parts": [{"hologram": "a"}]}, "field 'hologram'"),
        (from_gemini, {"role": "model", "parts": [{"hologram": "a"}]}, "field 'hologram'"),
        (from_gemini, {"role": "assistant", "parts": [{"text": "a"}]}, "role='assistant'"),
        (from_gemini, {"role": "user", "content": "a"}, "'content', 'role'"),
    ],
)
def test_each_reader_refuses_what_it_does_not_know(
    read: Callable[[Iterable[Any]], tuple[Message, ...]], item: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        read([item])


def kinds_in(union: Any) -> set[str]:
    """The `type` of each member of a union of a vendor's."""
    if get_origin(union) in (Union, UnionType, Annotated):
        return set().union(*(kinds_in(arg) for arg in get_args(union) if not isinstance(arg, str)))
    return set(re.findall(r"""["'](\w+)["']""", str(getattr(union, "__annotations__", {}).get("type"))))


def test_what_the_vendors_types_hold_is_known() -> None:
    from anthropic.types import ContentBlockParam
    from anthropic.types.beta import BetaContentBlock, BetaContentBlockParam
    from google.genai.types import Part
    from openai.types.chat import ChatCompletionContentPartParam
    from openai.types.responses import ResponseInputContentParam, ResponseInputItemParam, ResponseOutputItem

    blocks = kinds_in(ContentBlockParam) | kinds_in(BetaContentBlockParam) | kinds_in(BetaContentBlock)
    assert {
        block for block in blocks if not block.endswith(known_kinds.ANTHROPIC_RESULT)
    } <= known_kinds.ANTHROPIC_BLOCKS
    assert kinds_in(ChatCompletionContentPartParam) <= known_kinds.CHAT_BLOCKS
    assert kinds_in(ResponseInputContentParam) <= known_kinds.RESPONSES_BLOCKS
    assert kinds_in(ResponseInputItemParam) | kinds_in(ResponseOutputItem) <= known_kinds.RESPONSES_ITEMS
    assert {field.alias or name for name, field in Part.model_fields.items()} <= known_kinds.GEMINI_PARTS
