"""The transcript in four formats and back, for people with a loop of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.formats import (
    from_anthropic,
    from_gemini,
    from_openai_chat,
    from_openai_responses,
    instructions_of,
    to_anthropic,
    to_gemini,
    to_openai_chat,
    to_openai_responses,
)
from everturn.models import Model
from everturn.providers import anthropic_messages, gemini, openai_chat, openai_responses
from everturn.providers.base import Request
from everturn.records import Document, Image, Message, Text, ToolCall, ToolResult
from everturn.text.base64_text import as_base64
from tests.providers.messages import assistant
from tests.support.formats import FORMATS, Read, Write
from tests.support.vendors import anthropic_types, chat_types, gemini_types, responses_types

every_format = pytest.mark.parametrize(("read", "write"), FORMATS.values(), ids=FORMATS)


def answer(*results: ToolResult) -> Message:
    return Message(role="tool", parts=results)


PARIS = ToolCall(call_id="c1", name="weather", arguments={"city": "Paris"})
ROME = ToolCall(call_id="c2", name="weather", arguments={"city": "Rome"})
SUN = ToolResult(call_id="c1", name="weather", content=(Text(text="sun"),))
RAIN = ToolResult(call_id="c2", name="weather", content=(Text(text="rain"),))
FAILED = ToolResult(call_id="c1", name="weather", content=(Text(text="Error: no such city"),), is_error=True)


@pytest.mark.parametrize(
    ("write", "message", "written"),
    [
        (
            to_openai_chat,
            assistant(PARIS),
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": '{"city":"Paris"}'},
                        }
                    ],
                }
            ],
        ),
        (to_openai_chat, answer(SUN), [{"role": "tool", "tool_call_id": "c1", "content": "sun"}]),
        (
            to_openai_responses,
            assistant(PARIS),
            [{"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Paris"}'}],
        ),
        (
            to_openai_responses,
            answer(SUN),
            [{"type": "function_call_output", "call_id": "c1", "output": "sun"}],
        ),
        (
            to_anthropic,
            assistant(Text(text="Looking."), PARIS),
            [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Looking."},
                        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}},
                    ],
                }
            ],
        ),
        (
            to_anthropic,
            answer(FAILED),
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c1",
                            "content": "Error: no such city",
                            "is_error": True,
                        }
                    ],
                }
            ],
        ),
        (
            to_gemini,
            answer(SUN, RAIN),
            [
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"id": "c1", "name": "weather", "response": {"output": "sun"}}},
                        {"functionResponse": {"id": "c2", "name": "weather", "response": {"output": "rain"}}},
                    ],
                }
            ],
        ),
    ],
)
def test_a_message_alone_is_written_alone(write: Write, message: Message, written: list[dict[str, Any]]) -> None:
    assert write([message]) == written


WHOLE: dict[Write, tuple[Any, str]] = {
    to_openai_chat: (openai_chat, "openai-chat:any"),
    to_openai_responses: (openai_responses, "openai:any"),
    to_anthropic: (anthropic_messages, "anthropic:any"),
    to_gemini: (gemini, "google:any"),
}


@every_format
def test_nothing_is_made_up_for_what_is_not_there(read: Read, write: Write) -> None:
    asked = assistant(PARIS, ROME)
    pieces = [
        asked,
        Message.user("Never mind Rome"),
        answer(SUN),
        answer(ToolResult(call_id="c9", name="", content=())),
    ]
    protocol, model = WHOLE[write]
    whole = Request(model=Model(model), messages=[Message.user("?"), asked])
    assert "this call has no result" in json.dumps(protocol.encode(whole)[1])  # which is remembered for its messages
    written = json.dumps(write(pieces))
    assert "no result" not in written
    assert (written.count("sun"), written.count("Never mind Rome")) == (1, 1)
    assert [result.text for message in read(json.loads(written)) for result in message.tool_results] == ["sun", ""]


@every_format
def test_pieces_written_one_by_one_are_the_whole(read: Read, write: Write) -> None:
    messages = [Message.user("?"), assistant(PARIS, ROME), answer(SUN, RAIN), assistant(Text(text="Mixed."))]
    assert [item for message in messages for item in write([message])] == write(messages)


@every_format
def test_a_conversation_survives_the_way_there_and_back(read: Read, write: Write) -> None:
    messages = (
        Message.user("What is the weather in Paris and in Rome?"),
        assistant(Text(text="Looking."), PARIS, ROME),
        answer(SUN, RAIN),
        assistant(Text(text="Mixed.")),
        Message.user("And the map?"),
    )
    found = read(write(messages))
    assert [message.role for message in found] == [message.role for message in messages]
    assert [message.text for message in found] == [message.text for message in messages]
    calls = [(call.call_id, call.name, call.arguments) for message in found for call in message.tool_calls]
    assert calls == [("c1", "weather", {"city": "Paris"}), ("c2", "weather", {"city": "Rome"})]
    assert [result.text for result in found[2].tool_results] == ["sun", "rain"]
    assert [(result.call_id, result.name) for result in found[2].tool_results] == [("c1", "weather"), ("c2", "weather")]
    assert write(found) == write(messages)


@every_format
def test_pictures_and_documents_survive(read: Read, write: Write) -> None:
    parts = (
        Text(text="see"),
        Image(data="AAAA", media_type="image/png"),
        Document(data="JVBERg==", media_type="application/pdf", name="bill.pdf"),
    )
    [found] = read(write([Message.user(parts)]))
    assert found.parts[:2] == parts[:2]
    document = found.parts[2]
    assert isinstance(document, Document)
    assert (document.data, document.media_type) == ("JVBERg==", "application/pdf")


@every_format
def test_nothing_is_nothing(read: Read, write: Write) -> None:
    assert write([]) == []
    assert read([]) == ()


@every_format
def test_no_message_of_an_unknown_role_is_guessed_at(read: Read, write: Write) -> None:
    with pytest.raises(ValueError, match="role='critic'"):
        read([{"role": "critic", "content": "no", "parts": []}])


def test_system_messages_are_messages_in_chat_alone() -> None:
    messages = (Message(role="system", parts=(Text(text="Be brief."),)), Message.user("?"))
    assert from_openai_chat(to_openai_chat(messages)) == messages
    assert len(to_anthropic(messages)) == 1
    assert instructions_of(messages) == "Be brief."


def test_the_sdks_own_objects_are_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    chat = chat_types.ChatCompletionMessage(role="assistant", content="Looking.", tool_calls=[call])  # type: ignore[list-item]
    item = responses_types.ResponseFunctionToolCall(
        type="function_call", call_id="c1", name="weather", arguments='{"city": "Paris"}'
    )
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}
    message = anthropic_types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [use],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    content = gemini_types.Content.model_validate(
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Paris"}}}]}
    )
    read = [from_openai_chat([chat]), from_openai_responses([item]), from_anthropic([message]), from_gemini([content])]
    for [found] in read:
        [found_call] = found.tool_calls
        assert (found_call.call_id, found_call.name, found_call.arguments) == ("c1", "weather", {"city": "Paris"})


def test_gemini_calls_without_ids_find_their_results_by_name() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "?"}]},
        {"role": "model", "parts": [{"function_call": {"name": name, "args": {}}} for name in ("a", "b", "a")]},
        {
            "role": "user",
            "parts": [{"function_response": {"name": name, "response": {"n": name}}} for name in ("b", "a", "a")],
        },
    ]
    _, called, answered = from_gemini(contents)
    ids = [call.call_id for call in called.tool_calls]
    assert [result.call_id for result in answered.tool_results] == [ids[1], ids[0], ids[2]]
    assert answered.tool_results[0].text == '{"n":"b"}'


names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    messages = [Message.user(draw(texts))]
    for turn in range(draw(st.integers(0, 3))):
        calls = [
            ToolCall(call_id=f"call{turn}x{number}", name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(
                draw(st.lists(st.tuples(names, st.dictionaries(names, texts, max_size=2)), min_size=1, max_size=3))
            )
        ]
        messages.append(assistant(*([Text(text=draw(texts))] if draw(st.booleans()) else []), *calls))
        results = [
            ToolResult(call_id=call.call_id, name=call.name, content=(Text(text=draw(texts)),)) for call in calls
        ]
        if draw(st.booleans()):
            messages.append(answer(*results))
    return messages


@given(messages=transcripts(), name=st.sampled_from(sorted(FORMATS)))
def test_what_was_read_is_written_as_it_was(messages: list[Message], name: str) -> None:
    read, write = FORMATS[name]
    written = write(messages)
    found = read(written)
    assert write(found) == written
    assert [call.call_id for message in found for call in message.tool_calls] == [
        call.call_id for message in messages for call in message.tool_calls
    ]


RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"
FIELDS = {"openai_responses": "input", "gemini_generate_content": "contents"}


def recorded() -> dict[str, dict[str, Any]]:
    found = {path.name: json.loads(path.read_text()) for path in sorted(RECORDINGS.glob("*.json"))}
    return {
        name: one
        for name, one in found.items()
        if isinstance(((one.get("request") or {}).get("body") or {}).get(FIELDS.get(one["protocol"], "messages")), list)
    }


@pytest.mark.skipif(not RECORDINGS.exists(), reason="no recordings here")
@pytest.mark.parametrize("name", recorded() if RECORDINGS.exists() else {})
def test_a_recorded_history_is_read_and_its_writing_is_stable(name: str) -> None:
    one = recorded()[name]
    read, write = FORMATS[one["protocol"]]
    given = one["request"]["body"][FIELDS.get(one["protocol"], "messages")]
    messages = read(given)
    written = write(messages)
    assert write(read(written)) == written
    # Nothing opaque is lost on the way: what was signed or encrypted is there, byte for byte. Pictures and documents
    # are in the common alphabet.
    text = json.dumps(written, ensure_ascii=False)
    for secret in secrets_in(given):
        assert secret in text or as_base64(secret) in text


def secrets_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [secret for item in value for secret in secrets_in(item)]
    if not isinstance(value, dict):
        return []
    own = ("signature", "thoughtSignature", "thought_signature", "encrypted_content", "data")
    return [
        secret
        for name, item in value.items()
        for secret in ([item] if name in own and isinstance(item, str) else secrets_in(item))
    ]
