"""What a user's message may hold, in all four protocols: nothing, documents, and what only one provider knows."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from everturn import formats
from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.http import protocol_by_name
from everturn.records import Document, Image, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult

PDF = Document(data="JVBERi0=", media_type="application/pdf", name="bill.pdf")
AT_URL = Document(url="https://x.org/bill.pdf", name="bill.pdf")
MODELS = ["openai-chat:m", "mistral:m", "openrouter:m", "openai:m", "anthropic:m", "google:gemini-3-flash"]


def body_of(model: str, *messages: Message) -> dict[str, Any]:
    request = Request(model=Model(model), messages=messages)
    return protocol_by_name(row_of(request.model.provider).protocol).encode(request)[1]


def first_of(model: str, *parts: Part, provider: str = "") -> Any:
    """What a user's message of these parts becomes."""
    body = body_of(model, Message(role="user", parts=parts, provider=provider))
    (message,) = body.get("messages") or body.get("input") or body["contents"]
    content = message.get("parts") or message["content"]
    if isinstance(content, list):  # the prompt's cache is no business of these tests
        content = [{name: value for name, value in part.items() if name != "cache_control"} for part in content]
    return content


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("openai-chat:m", ""),
        ("openai:m", ""),
        ("anthropic:m", [{"type": "text", "text": "(empty)"}]),
        ("google:gemini-3-flash", [{"text": "(empty)"}]),
    ],
)
def test_a_message_without_a_word_is_still_one(model: str, expected: Any) -> None:
    assert first_of(model, Text(text=""), Text(text="")) == expected


def test_a_gemini_conversation_begins_with_a_user() -> None:
    call = Message(role="assistant", parts=(ToolCall(call_id="c", name="f"),))
    contents = body_of("google:gemini-3-flash", call)["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert body_of("google:gemini-3-flash")["contents"] == [{"role": "user", "parts": [{"text": "(empty)"}]}]


@pytest.mark.parametrize(
    ("model", "document", "expected"),
    [
        (
            "openai-chat:m",
            PDF,
            {"type": "file", "file": {"filename": "bill.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
        ),
        (
            "openai-chat:m",
            AT_URL,
            {"type": "text", "text": "[document: bill.pdf, which this model can't be shown]"},
        ),
        (
            "openrouter:m",
            AT_URL,
            {"type": "file", "file": {"filename": "bill.pdf", "file_data": "https://x.org/bill.pdf"}},
        ),
        ("mistral:m", PDF, {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERi0="}),
        ("mistral:m", AT_URL, {"type": "document_url", "document_url": "https://x.org/bill.pdf"}),
        (
            "openai:m",
            PDF,
            {"type": "input_file", "filename": "bill.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        ),
        ("openai:m", AT_URL, {"type": "input_file", "file_url": "https://x.org/bill.pdf"}),
        (
            "anthropic:m",
            PDF,
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                "title": "bill.pdf",
            },
        ),
        (
            "anthropic:m",
            AT_URL,
            {"type": "document", "source": {"type": "url", "url": "https://x.org/bill.pdf"}, "title": "bill.pdf"},
        ),
        ("google:gemini-3-flash", PDF, {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}}),
        (
            "google:gemini-3-flash",
            AT_URL,
            {"fileData": {"fileUri": "https://x.org/bill.pdf", "mimeType": "application/pdf"}},
        ),
    ],
)
def test_a_document_is_sent_as_the_provider_takes_it(model: str, document: Document, expected: Any) -> None:
    content = first_of(model, Text(text="Read this."), document)
    assert content[-1] == expected


@pytest.mark.parametrize("model", MODELS)
def test_a_part_of_a_kind_that_we_do_not_know_goes_to_its_own_provider_only(model: str) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    provider = model.partition(":")[0]
    assert first_of(model, Text(text="?"), Opaque(data=part), provider=provider)[-1] == part
    assert "input_audio" not in json.dumps(first_of(model, Text(text="?"), Opaque(data=part), provider="else"))


@pytest.mark.parametrize(
    ("model", "extra"),
    [
        ("openai-chat:m", {"detail": "low"}),
        ("openai:m", {"detail": "low"}),
        ("anthropic:m", {"cite": True}),
        ("google:gemini-3-flash", {"mediaResolution": {"level": "LOW"}}),
    ],
)
def test_what_stands_beside_a_picture_goes_to_its_own_provider_only(model: str, extra: dict[str, Any]) -> None:
    picture = Image(data="AAAA", media_type="image/png", extra=extra)
    provider = model.partition(":")[0]
    own = json.dumps(first_of(model, picture, provider=provider))
    assert all(json.dumps(name) in own and json.dumps(value) in own for name, value in extra.items())
    assert json.dumps(next(iter(extra.values()))) not in json.dumps(first_of(model, picture, provider="else"))


def test_what_formats_read_they_write() -> None:
    text = base64.b64encode(b"Hello").decode()
    said: list[tuple[Any, Any, dict[str, Any]]] = [
        (
            formats.from_openai_responses,
            formats.to_openai_responses,
            {"role": "assistant", "content": "Done.", "phase": "final_answer"},
        ),
        (
            formats.from_openai_chat,
            formats.to_openai_chat,
            {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://x.org/v.mp4"}}]},
        ),
        (
            formats.from_anthropic,
            formats.to_anthropic,
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "tool_reference", "tool_name": "f"}],
                    }
                ],
            },
        ),
        (
            formats.from_gemini,
            formats.to_gemini,
            {
                "role": "user",
                "parts": [{"fileData": {"fileUri": "https://x.org/v", "mimeType": "video/mp4"}, "videoMetadata": {}}],
            },
        ),
    ]
    for read, write, message in said:
        (written,) = write(read([message]))
        content = written.get("content") or written["parts"]
        expected = message.get("content") or message["parts"]
        assert content == (
            [{"type": "output_text", "annotations": [], "text": "Done."}] if expected == "Done." else expected
        )
        assert written.get("phase") == message.get("phase")
    block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hello"}}
    (message,) = formats.from_anthropic([{"role": "user", "content": [block]}])
    assert message.parts == (Document(data=text, media_type="text/plain"),)
    assert formats.to_anthropic([message]) == [{"role": "user", "content": [block]}]
    assert formats.from_gemini([{"role": "model", "parts": [{"text": ""}]}])[0].parts == ()


NOBODY_MADE = {
    "call": ToolCall(call_id="x", name="pay"),
    "result": ToolResult(call_id="x", name="pay", content=(Text(text="paid"),)),
    "thought": Thinking(text="hmm"),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", sorted(NOBODY_MADE))
def test_what_nobody_made_in_a_users_message_of_old_is_not_sent(model: str, kind: str) -> None:
    """Such parts were once taken from the wire. Then a provider refused each turn of that conversation."""
    said, poisoned = Message.user("hello"), Message(role="user", parts=(NOBODY_MADE[kind],))
    answered = Message(role="assistant", parts=(Text(text="Hi"),))
    body = body_of(model, said, answered, poisoned)
    assert not any(word in json.dumps(body) for word in ("paid", "pay", "hmm", "has no result"))
    if model.startswith(("anthropic", "google")):
        last = (body.get("messages") or body["contents"])[-1]
        assert last["role"] == "user", "it is a user's turn all the same"
        assert [part["text"] for part in last.get("content") or last["parts"]] == ["(empty)"]


@pytest.mark.parametrize("model", MODELS)
def test_a_result_in_a_users_message_that_answers_a_call_needs_no_word_beside_it(model: str) -> None:
    called = Message(role="assistant", parts=(ToolCall(call_id="x", name="pay"),))
    result = Message(role="user", parts=(NOBODY_MADE["result"],))
    written = json.dumps(body_of(model, Message.user("Pay."), called, result))
    assert written.count("paid") == 1
    assert "(empty)" not in written


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("part", [Text(text="q"), Image(url="https://x.org/a.png"), PDF])
def test_what_stands_beside_a_part_does_not_change_it(model: str, part: Part) -> None:
    def block_of(extra: dict[str, Any]) -> Any:
        beside = Image(url="https://x.org/b.png")  # with it, the content is a list
        return first_of(model, part.model_copy(update={"extra": extra}), beside, provider=Model(model).provider)[0]

    def holds(shown: dict[str, Any], plain: dict[str, Any]) -> bool:
        return all(holds(shown[name], at) if isinstance(at, dict) else shown[name] == at for name, at in plain.items())

    plain = block_of({})
    inside = [name for value in plain.values() if isinstance(value, dict) for name in value]
    assert holds(
        block_of(dict.fromkeys((*plain, *inside), "evil")), plain | ({"detail": "evil"} if "detail" in plain else {})
    )
