"""Replies of more parts than any model writes."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.errors import InvalidReply
from everturn.models import Model
from everturn.providers import anthropic_messages, gemini, openai_responses
from everturn.providers.base import MAX_PARTS, Request
from everturn.records import Message

MANY = MAX_PARTS + 1
TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}

BODIES: list[tuple[Any, str, Any]] = [
    (openai_responses, "openai:m", {"status": "completed", "output": [TEXT] * MANY}),
    (gemini, "google:m", {"candidates": [{"content": {"parts": [PICTURE] * MANY}, "finishReason": "STOP"}]}),
    (anthropic_messages, "anthropic:m", {"content": [{"type": "text", "text": "a"}] * MANY, "stop_reason": "end_turn"}),
]


@pytest.mark.parametrize(("protocol", "model", "body"), BODIES, ids=[name for _, name, _ in BODIES])
def test_a_reply_of_countless_parts_is_refused(protocol: Any, model: str, body: Any) -> None:
    with pytest.raises(InvalidReply, match=r"(holds|has) (more than|20,001) "):
        protocol.decode(body, Request(model=Model(model), messages=[Message.user("?")]))
