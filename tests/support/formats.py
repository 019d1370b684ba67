"""The four formats of messages, each with its reader and its writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everturn.formats import (
    from_anthropic,
    from_gemini,
    from_openai_chat,
    from_openai_responses,
    to_anthropic,
    to_gemini,
    to_openai_chat,
    to_openai_responses,
)
from everturn.records import Message

Read = Callable[..., tuple[Message, ...]]
Write = Callable[..., list[dict[str, Any]]]

FORMATS: dict[str, tuple[Read, Write]] = {
    "openai_chat": (from_openai_chat, to_openai_chat),
    "openai_responses": (from_openai_responses, to_openai_responses),
    "anthropic_messages": (from_anthropic, to_anthropic),
    "gemini_generate_content": (from_gemini, to_gemini),
}
