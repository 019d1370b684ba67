"""Gemini: what goes out."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from everturn.errors import InvalidTool
from everturn.providers.base import ToolSpec
from everturn.providers.gemini import encode
from everturn.records import Document, Image, Message, Opaque, ServerToolUse, Text, Thinking, ToolCall
from everturn.tools.server_tools import CodeExecution, UnsupportedParameter, WebSearch, XSearch
from tests.providers import messages
from tests.providers.messages import assistant, result, results

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
NEW, OLD = "google:gemini-3-flash-preview", "google:gemini-2.5-flash"


request = partial(messages.request, model=OLD)


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    _, body = encode(request(*messages, **options))
    assert json.loads(json.dumps(body)) == body
    return body


def sent(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(*messages, **options)["contents"]
    return found


def response(call_id: str, text: str, *, key: str = "output", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": call_id, "name": "weather", "response": {key: text}, **more}}


ASK = Message.user("?")
PARIS = ToolCall(call_id="c1", name="weather", arguments={"city": "Paris"})
ROME = ToolCall(call_id="c2", name="weather", arguments={"city": "Rome"})
PICTURE = Image(data="AAAA", media_type="image/png")
INLINE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
CALL = {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Paris"}}}


def test_a_plain_question_is_a_plain_body() -> None:
    path, body = encode(request(Message.user("hi"), instructions="Be brief."))
    assert path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
    }


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("google:gemini-3-flash", "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"),
        ("google:models/gemini-3-flash", "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"),
        ("google:tunedModels/mine", "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("google:a b?c", "/v1beta/models/a%20b%3Fc:streamGenerateContent?alt=sse"),
    ],
)
def test_the_model_and_the_streaming_stand_in_the_path(model: str, path: str) -> None:
    assert encode(request(ASK, model=model, stream=True))[0] == path


def test_system_messages_are_one_with_the_instructions_wherever_they_stand() -> None:
    system = Message(role="system", parts=(Text(text="Two."),))
    body = body_of(ASK, system, instructions="One.")
    assert body["systemInstruction"] == {"parts": [{"text": "One.\n\nTwo."}]}
    assert len(body["contents"]) == 1


def test_results_follow_their_calls_in_one_content_and_in_the_order_of_the_calls() -> None:
    contents = sent(
        ASK,
        assistant(Text(text="Looking."), PARIS, ROME),
        results(result("c2", "rain")),
        results(result("c1", "no such city", is_error=True)),
        Message.user("and?"),
    )
    rome = {"functionCall": {"id": "c2", "name": "weather", "args": {"city": "Rome"}}}
    assert contents[1:] == [
        {"role": "model", "parts": [{"text": "Looking."}, CALL, rome]},
        {"role": "user", "parts": [response("c1", "no such city", key="error"), response("c2", "rain")]},
        {"role": "user", "parts": [{"text": "and?"}]},
    ]


def test_every_call_has_a_result_and_no_result_is_without_its_call() -> None:
    contents = sent(ASK, assistant(PARIS), results(result("gone", "?")))
    assert contents[2:] == [{"role": "user", "parts": [response("c1", "this call has no result", key="error")]}]


def test_a_structured_result_stays_a_text() -> None:
    contents = sent(ASK, assistant(PARIS), results(result("c1", '{"$ref": "x"}')))
    assert contents[2]["parts"] == [response("c1", '{"$ref": "x"}')]


def test_pictures_in_results_are_within_the_result_from_gemini_3_on() -> None:
    heic = Image(data="BBBB", media_type="image/heic")
    contents = sent(ASK, assistant(PARIS), results(result("c1", "map:", PICTURE, heic)), model=NEW)
    assert contents[2]["parts"] == [
        response("c1", "map:\n[image: image/png, attached]\n[image: image/heic, in the next message]", parts=[INLINE])
    ]
    assert contents[3]["parts"][1:] == [{"inlineData": {"mimeType": "image/heic", "data": "BBBB"}}]


def test_pictures_in_results_follow_all_results_before_gemini_3() -> None:
    contents = sent(ASK, assistant(PARIS, ROME), results(result("c1", PICTURE), result("c2", "no map")))
    assert contents[2:] == [
        {
            "role": "user",
            "parts": [response("c1", "[image: image/png, in the next message]"), response("c2", "no map")],
        },
        {"role": "user", "parts": [{"text": "From the result of weather (c1):"}, INLINE]},
    ]


@pytest.mark.parametrize(
    ("media", "part"),
    [
        (PICTURE, INLINE),
        (Image(url="https://x/y.png"), {"fileData": {"fileUri": "https://x/y.png", "mimeType": "image/png"}}),
        (Image(url="https://x/y"), {"fileData": {"fileUri": "https://x/y"}}),
        (
            Image(url="https://x/y", media_type="image/jpeg"),
            {"fileData": {"fileUri": "https://x/y", "mimeType": "image/jpeg"}},
        ),
        (Image(url="data:image/png;base64,AAAA"), INLINE),
        (
            Document(data="AAAA", media_type="application/pdf", name="bill.pdf"),
            {"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}},
        ),
    ],
)
def test_a_users_media_are_parts(media: Image | Document, part: dict[str, Any]) -> None:
    assert sent(Message.user([Text(text="what?"), media]))[0]["parts"] == [{"text": "what?"}, part]


MADE = (
    Thinking(text="hm", extra={"thoughtSignature": "A+/="}),
    ServerToolUse(name="google_search", data={"toolCall": {"id": "s"}, "thoughtSignature": "B-_"}),
    Opaque(data={"new": [1]}),
    Text(text="so"),
    PARIS.model_copy(update={"extra": {"thoughtSignature": "C"}}),
    ROME,
    Text(text="", extra={"thoughtSignature": "D"}),
    ServerToolUse(name="google_search", data={"groundingMetadata": {"webSearchQueries": ["x"]}}),
)


def test_what_gemini_made_goes_back_as_it_came_but_for_what_is_no_part() -> None:
    assert sent(ASK, assistant(*MADE, provider="google"), model=NEW)[1]["parts"] == [
        {"text": "hm", "thought": True, "thoughtSignature": "A+/="},
        {"toolCall": {"id": "s"}, "thoughtSignature": "B-_"},
        {"new": [1]},
        {"text": "so"},
        CALL | {"thoughtSignature": "C"},
        {"functionCall": {"id": "c2", "name": "weather", "args": {"city": "Rome"}}},
        {"text": "", "thoughtSignature": "D"},
    ]


@pytest.mark.parametrize("provider", ["", "anthropic"])
@pytest.mark.parametrize(
    ("model", "signature"), [(NEW, {"thoughtSignature": "skip_thought_signature_validator"}), (OLD, {})]
)
def test_what_another_provider_made_goes_without_what_only_that_one_may_see(
    provider: str, model: str, signature: dict[str, str]
) -> None:
    assert sent(ASK, assistant(*MADE, provider=provider), model=model)[1]["parts"] == [
        {"text": "so"},
        CALL | signature,
        {"functionCall": {"id": "c2", "name": "weather", "args": {"city": "Rome"}}},
    ]


def test_two_assistant_messages_are_one_content_and_an_empty_one_is_none() -> None:
    said = assistant(Text(text="a"))
    contents = sent(ASK, said, assistant(Thinking(text="x")), assistant(), assistant(PARIS))
    assert contents[1] == {"role": "model", "parts": [{"text": "a"}, CALL]}
    assert said == assistant(Text(text="a"))


def test_arguments_that_were_no_object_go_back_as_one() -> None:
    call = ToolCall(call_id="c1", name="weather", unparsed='{"city": "Par')
    assert sent(ASK, assistant(call))[1]["parts"][0]["functionCall"]["args"] == {"INVALID_JSON": '{"city": "Par'}


def test_a_call_goes_by_its_providers_id_on_both_sides() -> None:
    call = ToolCall(call_id="call_3_0", provider_id="0", name="weather")
    contents = sent(ASK, assistant(call), results(result("call_3_0", "sun")))
    assert contents[1]["parts"][0]["functionCall"]["id"] == "0"
    assert contents[2]["parts"] == [response("0", "sun")]


@pytest.mark.parametrize("name", ["a b/ü", "", "9x", "x" * 129])
def test_names_outside_of_the_alphabet_are_mapped_the_same_everywhere(name: str) -> None:
    tools = [ToolSpec(name), ToolSpec("a_b__")]
    call = ToolCall(call_id="c1", name=name)
    body = body_of(
        ASK, assistant(call), results(result("c1", "x")), tools=tools, settings={"tool_choice": name or "auto"}
    )
    declared = [tool["name"] for tool in body["tools"][0]["functionDeclarations"]]
    assert len({*declared}) == 2
    assert declared[1] == "a_b__"
    assert declared[0].isascii()
    assert len(declared[0]) <= 128
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == declared[0]
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == declared[0]
    if name:
        assert body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == declared[:1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"settings": {"tool_choice": "auto"}}, {"functionCallingConfig": {"mode": "AUTO"}}),
        ({"settings": {"tool_choice": "none"}}, {"functionCallingConfig": {"mode": "NONE"}}),
        ({"settings": {"tool_choice": "required"}}, {"functionCallingConfig": {"mode": "ANY"}}),
        (
            {"settings": {"tool_choice": "weather"}},
            {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
        ),
        ({"settings": {"tool_choice": "weather"}, "conclude": True}, {"functionCallingConfig": {"mode": "NONE"}}),
        ({"settings": {"parallel_calls": True}}, {}),
        ({"server_tools": [WebSearch()]}, {"includeServerSideToolInvocations": True}),
        ({"raw_tools": [{"urlContext": {}}]}, {"includeServerSideToolInvocations": True}),
        ({"raw_tools": [{"functionDeclarations": []}]}, {}),
        (
            {"server_tools": [WebSearch()], "settings": {"tool_choice": "auto"}},
            {"functionCallingConfig": {"mode": "VALIDATED"}, "includeServerSideToolInvocations": True},
        ),
    ],
)
def test_how_tools_may_be_called(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body_of(ASK, tools=[WEATHER], model=NEW, **options).get("toolConfig", {}) == expected


def test_an_object_that_takes_any_field_has_arguments() -> None:
    open_object = {"type": "object", "additionalProperties": {}}
    [tools] = body_of(ASK, tools=[ToolSpec("any", "", open_object)])["tools"]
    assert tools["functionDeclarations"][0]["parametersJsonSchema"] == open_object


def test_tools_are_declared_with_their_json_schemas_and_empty_ones_without() -> None:
    tools = [
        WEATHER,
        ToolSpec("now"),
        ToolSpec("any", "", {"type": "object", "additionalProperties": {"type": "string"}}),
    ]
    body = body_of(ASK, tools=tools, raw_tools=[{"urlContext": {}}], server_tools=[CodeExecution()], model=NEW)
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "weather", "description": "The weather", "parametersJsonSchema": WEATHER.parameters},
                {"name": "now", "description": ""},
                {"name": "any", "description": "", "parametersJsonSchema": tools[2].parameters},
            ]
        },
        {"codeExecution": {}},
        {"urlContext": {}},
    ]


def test_server_side_tools_alone_need_no_config() -> None:
    body = body_of(ASK, server_tools=[WebSearch()], settings={"tool_choice": "auto", "parallel_calls": False})
    assert body.keys() == {"contents", "tools"}
    assert body["tools"] == [{"googleSearch": {}}]


@pytest.mark.parametrize(
    ("tools", "model", "words"),
    [
        ([XSearch()], NEW, ["XSearch", "'google' has CodeExecution, WebSearch"]),
        ([WebSearch()], OLD, ["gemini-2.5-flash", "Gemini 3"]),
    ],
)
def test_tools_that_it_can_not_have_are_refused(tools: list[Any], model: str, words: list[str]) -> None:
    with pytest.raises(InvalidTool) as raised:
        encode(request(ASK, tools=[WEATHER], server_tools=tools, model=model))
    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"server_tools": [WebSearch(max_uses=2)]}, r"WebSearch\(max_uses=\)"),
        ({"server_tools": [WebSearch(allowed_domains=("x.org",))]}, r"WebSearch\(allowed_domains=\)"),
        ({"tools": [WEATHER], "settings": {"parallel_calls": False}}, "parallel_calls"),
        ({"settings": {"reasoning_effort": "low"}, "model": "google:gemini-2.0-flash"}, "reasoning_effort"),
    ],
)
def test_what_it_can_not_do_is_left_out_with_a_warning(options: dict[str, Any], words: str) -> None:
    with pytest.warns(UnsupportedParameter, match=words):
        body = body_of(ASK, **options)
    assert body.keys() <= {"contents", "tools"}


@pytest.mark.parametrize(
    ("model", "effort", "expected", "warned"),
    [
        (NEW, "low", {"thinkingLevel": "LOW", "includeThoughts": True}, False),
        (NEW, "xhigh", {"thinkingLevel": "HIGH", "includeThoughts": True}, False),
        (NEW, "max", {"thinkingLevel": "HIGH", "includeThoughts": True}, False),
        (NEW, "none", {"thinkingLevel": "MINIMAL"}, True),
        ("google:gemini-flash-latest", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}, False),
        ("google:gemini-3.1-pro-preview", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}, False),
        ("google:gemini-10.2-flash", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}, False),
        (OLD, "none", {"thinkingBudget": 0}, False),
        (OLD, "high", {"thinkingBudget": 24576, "includeThoughts": True}, False),
        ("google:gemini-2.5-pro", "none", {"thinkingBudget": 128}, True),
        ("google:gemma-3-27b-it", "high", None, True),
    ],
)
def test_effort_is_a_level_from_gemini_3_on_and_a_budget_before(
    model: str, effort: str, expected: dict[str, Any] | None, warned: bool, recwarn: pytest.WarningsRecorder
) -> None:
    body = body_of(ASK, model=model, settings={"reasoning_effort": effort})
    assert body.get("generationConfig", {}).get("thinkingConfig") == expected
    assert bool(recwarn.list) is warned


def test_settings_and_extra_are_one_config() -> None:
    body = body_of(
        ASK,
        output_schema={"type": "object"},
        settings={
            "max_output_tokens": 9,
            "temperature": 0.0,
            "stop": ("a",),
            "extra": {"generationConfig": {"topK": 4, "temperature": 1}, "safetySettings": [], "cachedContent": "x"},
        },
    )
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "?"}]}],
        "generationConfig": {
            "maxOutputTokens": 9,
            "temperature": 1,
            "stopSequences": ["a"],
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
            "topK": 4,
        },
        "safetySettings": [],
        "cachedContent": "x",
    }
