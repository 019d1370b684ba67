"""Two texts of one result, or of one message, reach the model as two: "12" and "34" are not 1234."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn import Image, Message, Model, Text, ToolCall, ToolResult
from everturn.providers import Request
from everturn.providers.http import protocol_by_name
from everturn.records import Part, on_lines

PICTURE = Image(data="iVBORw0KGgo=", media_type="image/png")
MODELS = ["openai-chat:gpt-5.5", "openai:gpt-5.5", "anthropic:claude-opus-4-8", "google:gemini-3-pro"]
PROTOCOL = {"openai-chat": "openai_chat", "openai": "openai_responses", "anthropic": "anthropic_messages"}


def sent(model: str, *messages: Message) -> str:
    provider = model.partition(":")[0]
    protocol: Any = protocol_by_name(PROTOCOL.get(provider, "gemini"))  # type: ignore[index]
    _, body = protocol.encode(Request(model=Model(model), messages=messages))
    return json.dumps(body, ensure_ascii=False)


def told(*parts: Any, is_error: bool = False) -> tuple[Message, ...]:
    call = ToolCall(call_id="c1", name="cities")
    result = ToolResult(call_id="c1", name="cities", content=parts, is_error=is_error)
    return Message.user("Go."), Message(role="assistant", parts=(call,)), Message(role="tool", parts=(result,))


BOTH: tuple[Part, ...] = (Text(text="Paris"), Text(text="London"))
SAYINGS = {
    "a result": told(*BOTH),
    "a failure": told(*BOTH, is_error=True),
    "a result with a picture": told(BOTH[0], PICTURE, BOTH[1]),
    "texts beside a picture": told(*BOTH, PICTURE),
    "a user": (Message.user(BOTH),),
    "a user with a picture": (Message.user((*BOTH, PICTURE)),),
    "a summary": (Message(role="user", parts=BOTH, summary=True),),
    "a system message": (Message(role="system", parts=BOTH), Message.user("Go.")),
}


@pytest.mark.parametrize("messages", SAYINGS.values(), ids=SAYINGS)
@pytest.mark.parametrize("model", MODELS)
def test_two_texts_stay_two(model: str, messages: tuple[Message, ...]) -> None:
    body = sent(model, *messages)
    assert "Paris" in body
    assert "London" in body
    assert "ParisLondon" not in body


@pytest.mark.parametrize("model", MODELS)
def test_what_the_model_wrote_in_pieces_stays_as_it_was(model: str) -> None:
    """Its provider cuts a text anywhere, at a citation for example."""
    said = Message(role="assistant", parts=(Text(text="Lon"), Text(text="don")))
    body = sent(model, Message.user("Where?"), said, Message.user("Sure?"))
    assert "Lon\\ndon" not in body
    assert said.text == "London"


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a\nb"),
        (["a\n", "b"], "a\nb"),
        (["a", "\nb"], "a\nb"),
        (["a", "", "b"], "a\nb"),
        (["", "a"], "a"),
    ],
)
def test_each_text_has_its_line(texts: list[str], joined: str) -> None:
    assert on_lines(texts) == joined
