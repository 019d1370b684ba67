"""What somebody with a loop of their own hands to the formats: calls, values, exceptions; in a format that is named."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from everturn.errors import ToolFailed
from everturn.formats import (
    ApiFormat,
    content_blocks_to_text,
    from_anthropic,
    from_format,
    from_gemini,
    from_openai_chat,
    from_openai_responses,
    is_content_block_list,
    to_anthropic,
    to_format,
    to_gemini,
    to_openai_chat,
    to_openai_responses,
    tool_result,
)
from everturn.records import Image, Message, Outcome, Reply, Text, ToolCall, ToolResult, tool_pairs

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
TEXT = {"type": "text", "text": "14 degrees"}

CALL = ToolCall(call_id="c1", name="weather", arguments={"city": "Köln"})

CHAT = [
    {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}},
    {"id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
]
RESPONSES = [
    {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls -l"},
    {"type": "function_call", "call_id": "c2", "name": "add", "arguments": '{"a":1}'},
]
CHAT_RESULTS = [
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {"role": "tool", "tool_call_id": "c2", "content": "ok"},
]
RESPONSES_RESULTS = [
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
    {"type": "function_call_output", "call_id": "c2", "output": "ok"},
]


class Weather(BaseModel):
    degrees: int


@pytest.mark.parametrize(
    ("value", "text", "is_error"),
    [
        ("14 degrees", "14 degrees", False),
        ({"degrees": 14}, '{"degrees":14}', False),
        (Weather(degrees=14), '{"degrees":14}', False),
        ([1, 2], "[1,2]", False),
        (None, "(no output)", False),
        (True, "true", False),
        (TEXT, "14 degrees", False),
        ([TEXT, TEXT], "14 degrees\n14 degrees", False),
        (Text(text="14 degrees"), "14 degrees", False),
        ({"content": [TEXT], "isError": True}, "14 degrees", True),
        (ValueError("no such city"), "ValueError: no such city", True),
        (ToolFailed("Ask for the country."), "Ask for the country.", True),
        (KeyboardInterrupt(), "KeyboardInterrupt", True),
    ],
)
def test_any_value_exception_or_block_is_a_result(value: Any, text: str, is_error: bool) -> None:
    result = tool_result(CALL, value)
    assert (result.call_id, result.name, result.text, result.is_error) == ("c1", "weather", text, is_error)
    [written] = to_openai_chat([(CALL, value)])
    assert written["content"].endswith(text)


def test_what_cannot_be_written_is_an_error_that_says_that_the_tool_ran() -> None:
    result = tool_result(CALL, object())
    assert result.is_error
    assert "The tool ran" in result.text


def test_pictures_and_results_stay_what_they_are() -> None:
    [image] = tool_result(CALL, PICTURE).content
    assert isinstance(image, Image)
    failed = tool_result(CALL, ToolFailed("It broke.", parts=[Image(data=PIXEL, media_type="image/png")]))
    assert [part.kind for part in failed.content] == ["text", "image"]
    given = ToolResult(call_id="c1", name="weather", content=(Text(text="a"),))
    assert tool_result(CALL, given) is given


def test_a_loop_hands_on_replies_calls_and_results_as_they_come() -> None:
    reply = Reply(message=Message(role="assistant", parts=(CALL, CALL.model_copy(update={"call_id": "c2"}))))
    pairs = [(call, 14) for call in reply.tool_calls]
    assert [message["role"] for message in to_openai_chat([Message.user("?"), reply, *pairs])] == [
        *("user", "assistant", "tool", "tool")
    ]
    # Anthropic wants the results of one reply in one message.
    assert [len(message["content"]) for message in to_anthropic([reply, *pairs])] == [2, 2]
    assert to_gemini([CALL]) == to_gemini([Message(role="assistant", parts=(CALL,))])
    with pytest.raises(TypeError, match="Item 1 is 'words', of type str"):
        to_openai_chat([CALL, "words"])  # type: ignore[list-item]


WRITERS = {
    "openai-chat": (to_openai_chat, from_openai_chat),
    "openai-responses": (to_openai_responses, from_openai_responses),
    "anthropic": (to_anthropic, from_anthropic),
    "gemini": (to_gemini, from_gemini),
}


@pytest.mark.parametrize("api_format", get_args(ApiFormat))
def test_one_function_writes_and_reads_each_format(api_format: ApiFormat) -> None:
    write, read = WRITERS[api_format]
    said = [Message.user("Weather?"), CALL, (CALL, "14 degrees")]
    assert to_format(said, api_format=api_format) == write(said)
    assert from_format(write(said), api_format=api_format) == read(write(said))
    assert to_format(said, api_format=api_format, model="openrouter:any") == write(said, model="openrouter:any")


@pytest.mark.parametrize("unknown", ["openai", "", "Anthropic", None, "cohere"])
def test_a_format_that_there_is_not_is_a_value_error_that_names_those_that_there_are(unknown: Any) -> None:
    for convert in (to_format, from_format):
        with pytest.raises(ValueError, match="one of 'openai-chat', 'openai-responses', 'anthropic', 'gemini'"):
            convert([], api_format=unknown)


@pytest.mark.parametrize("given", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("write", "calls", "results"),
    [
        (to_openai_chat, [{"role": "assistant", "content": None, "tool_calls": CHAT}], CHAT_RESULTS),
        (to_openai_responses, RESPONSES, RESPONSES_RESULTS),
    ],
)
def test_custom_and_function_calls_stay_what_they_are_without_a_provider(
    given: Any, write: Any, calls: Any, results: Any
) -> None:
    parsed = [ToolCall.parse(call) for call in given]
    asked = Message(role="assistant", parts=tuple(parsed))
    answers = [(call, "ok") for call in parsed]
    assert write([asked]) == calls
    assert write([asked, *answers]) == [*calls, *results]
    assert write(answers) == results, "results alone, too"
    by_hand = [ToolResult(call_id=call.call_id, name=call.name, content=(Text(text="ok"),)) for call in parsed]
    assert write([asked, *by_hand]) == [*calls, *results]


@pytest.mark.parametrize(
    ("read", "given", "write"),
    [
        (from_openai_chat, [{"role": "assistant", "tool_calls": CHAT}], to_openai_responses),
        (from_openai_chat, [{"role": "assistant", "tool_calls": CHAT}, *CHAT_RESULTS], to_openai_responses),
        (from_openai_responses, RESPONSES, to_openai_responses),
        (from_openai_responses, [*RESPONSES, *RESPONSES_RESULTS], to_openai_responses),
    ],
)
def test_custom_and_function_calls_are_read_whether_they_are_answered_or_not(read: Any, given: Any, write: Any) -> None:
    messages = read(given)
    assert [call.name for call in messages[0].tool_calls] == ["shell", "add"]
    assert [(one["type"], one["call_id"]) for one in write(messages)][:2] == [
        ("custom_tool_call", "c1"),
        ("function_call", "c2"),
    ]
    assert [one["call_id"] for one in write(messages)] == ["c1", "c2", "c1", "c2"][: len(write(messages))]


def test_what_xais_server_has_searched_is_no_call_of_ours() -> None:
    [message] = from_openai_responses(RESPONSES, provider="xai")
    assert [call.name for call in message.tool_calls] == ["add"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([TEXT], True),
        ([TEXT, PICTURE], True),
        ((TEXT,), True),
        ([{"type": "image", "data": PIXEL, "mimeType": "image/png"}], True),
        ([{"type": "input_text", "text": "a"}], True),
        ([], False),
        ("text", False),
        (None, False),
        (TEXT, False),
        (["text"], False),
        ([TEXT, {"type": "lamp"}], False),
        ([TEXT, 7], False),
        ([{"type": "image"}], False),
    ],
)
def test_a_list_of_content_blocks_is_told_from_other_values(value: Any, expected: bool) -> None:
    assert is_content_block_list(value) is expected


def test_content_blocks_become_a_text() -> None:
    assert content_blocks_to_text([TEXT]) == "14 degrees"
    text = content_blocks_to_text([TEXT, PICTURE, TEXT])
    assert text.splitlines()[::2] == ["14 degrees", "14 degrees"]
    assert "image/png" in text
    assert PIXEL not in text
    assert content_blocks_to_text(TEXT) == "14 degrees"
    for other in ("text", 7, None, [], {"type": "lamp"}):
        with pytest.raises(ValueError, match="no content blocks"):
            content_blocks_to_text(other)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (CHAT[1], '{"a":1}'),
        ({"name": "f", "arguments": {"city": "Köln"}}, '{"city":"Köln"}'),
        ({"name": "f", "arguments": {}}, "{}"),
        ({"name": "f", "arguments": "{broken"}, "{broken"),
        (CHAT[0], '{"input":"ls -l"}'),
    ],
)
def test_arguments_are_there_as_json_text(given: Any, text: str) -> None:
    assert ToolCall.parse(given).arguments_json == text


def test_a_transcript_and_its_outcome_give_pairs_in_order() -> None:
    first, second, third = (ToolCall(call_id=f"c{place}", name="f") for place in range(3))
    again = ToolCall(call_id="c0", name="g")
    results = {call.call_id: tool_result(call, call.call_id) for call in (first, second, third)}
    later = tool_result(again, "later")
    transcript = [
        Message.user("?"),
        Message(role="assistant", parts=(first, second)),
        Message(role="tool", parts=(results["c1"], results["c0"])),
        Message(role="assistant", parts=(again,)),
        Message(role="tool", parts=(later,)),
        Message(role="assistant", parts=(third,)),
    ]
    pairs = ((first, results["c0"]), (second, results["c1"]), (again, later))
    assert tool_pairs(transcript) == pairs
    cut = Message(role="tool", parts=(results["c2"],))
    outcome = Outcome(status="cancelled", tail=(cut,))
    assert outcome.tool_pairs(transcript) == (*pairs, (third, results["c2"]))
    assert outcome.tool_pairs([*transcript, cut]) == (*pairs, (third, results["c2"]))
    assert json.loads(outcome.model_dump_json())["tool_calls"] == 0
