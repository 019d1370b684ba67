"""Chat Completions: what a server can't do is refused or warned about; what it gave us goes back as it came."""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from typing import Any

import pytest

from everturn.errors import InvalidTool
from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.providers.base import Request, ToolSpec
from everturn.providers.openai_chat import Assembler, decode, encode
from everturn.records import (
    Document,
    Image,
    Message,
    Opaque,
    Reply,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from everturn.tools.server_tools import CodeExecution, ServerTool, UnsupportedParameter, WebSearch, XSearch

WEATHER = ToolSpec("weather")
QUESTION = Message.user("?")


def body_of(model: str | Model, *messages: Message, **options: Any) -> dict[str, Any]:
    settings = ModelSettings(**{"stream": False, **options.pop("settings", {})})
    model = Model(model) if isinstance(model, str) else model
    return encode(Request(model=model, messages=messages or [QUESTION], settings=settings, **options))[1]


# ---------------------------------------------------------------- what a server runs


def test_groq_runs_its_own_tools() -> None:
    body = body_of("groq:m", tools=[WEATHER], server_tools=[WebSearch(), CodeExecution()])
    assert [tool["type"] for tool in body["tools"]] == ["function", "browser_search", "code_interpreter"]


def test_a_field_that_a_server_tool_can_not_honour_is_warned_about() -> None:
    with pytest.warns(UnsupportedParameter, match=r"groq:m can't do WebSearch\(max_uses=\)"):
        body = body_of("groq:m", server_tools=[WebSearch(max_uses=3)])
    assert body["tools"] == [{"type": "browser_search"}]


@pytest.mark.parametrize(
    ("model", "tool", "said"),
    [
        ("groq:m", XSearch(), "'groq' has CodeExecution, WebSearch"),
        ("openai-chat:m", WebSearch(), "Use it with 'openai:', which has it"),
        ("openai-chat:m", XSearch(), "use a provider that has it"),
        ("mistral:m", CodeExecution(), "'mistral' has no tools of its own"),
        ("openrouter:m", CodeExecution(), "'openrouter' has WebSearch"),
    ],
)
def test_a_tool_that_a_provider_does_not_have_is_refused(model: str, tool: ServerTool, said: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        body_of(model, server_tools=[tool])
    assert str(caught.value).startswith(f"{model} has no {type(tool).__name__};")
    assert said in str(caught.value)


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("model", ["deepseek:m", "moonshot:m", "ollama:m"])
@pytest.mark.parametrize("choice", ["required", "weather"])
def test_a_server_that_can_not_be_forced_is_asked_and_we_say_so(model: str, choice: str) -> None:
    with pytest.warns(UnsupportedParameter, match=f"{model} can't do tool_choice='{choice}'"):
        body = body_of(model, tools=[WEATHER], settings={"tool_choice": choice})
    assert body["tool_choice"] == "auto"


@pytest.mark.parametrize("model", ["deepseek:m", "moonshot:m", "ollama:m"])
def test_a_server_that_always_may_call_in_parallel_is_warned_about(model: str) -> None:
    with pytest.warns(UnsupportedParameter, match="parallel_calls=False"):
        assert "parallel_tool_calls" not in body_of(model, tools=[WEATHER], settings={"parallel_calls": False})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        body_of(model, tools=[WEATHER], settings={"parallel_calls": True, "tool_choice": "auto"})


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("deepseek:m", "none", {"thinking": {"type": "disabled"}}),
        ("moonshot:m", "none", {"thinking": {"type": "disabled"}}),
        ("deepseek:m", "high", {"reasoning_effort": "high"}),
        ("groq:m", "none", {"reasoning_effort": "none"}),
        ("openai-chat:m", "none", {"reasoning_effort": "none"}),
    ],
)
def test_reasoning_is_turned_off_in_each_servers_way(model: str, effort: str, sent: dict[str, Any]) -> None:
    body = body_of(model, settings={"reasoning_effort": effort})
    assert {name: body[name] for name in body.keys() & {"thinking", "reasoning_effort"}} == sent


@pytest.mark.parametrize(
    ("model", "options", "key"),
    [
        ("openai-chat:m", {"conversation_id": "order-81"}, "order-81"),
        ("openai-chat:m", {"conversation_id": "x" * 65}, "64 letters"),
        ("openai-chat:m", {}, None),
        ("openai-chat:m", {"conversation_id": "order-81", "settings": {"cache": False}}, None),
        (Model("openai-chat:m", base_url="http://localhost/v1"), {"conversation_id": "order-81"}, None),
        ("azure:m", {"conversation_id": "order-81"}, None),
        ("groq:m", {"conversation_id": "order-81"}, None),
    ],
)
def test_a_conversation_is_its_prompts_cache_key(model: Any, options: dict[str, Any], key: str | None) -> None:
    found = body_of(model, **options).get("prompt_cache_key")
    assert len(found) == 64 if key == "64 letters" else found == key


# ---------------------------------------------------------------- output

CLOSED = {
    "title": "An order",
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"id": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "name", "strict"), [(CLOSED, "An_order", True), (OPEN, "output", False)], ids=["closed", "open"]
)
@pytest.mark.parametrize("model", ["openai-chat:m", "mistral:m", "moonshot:m", "vllm:m", "openrouter:m", "azure:m"])
def test_an_outputs_schema_is_sent_strict_where_it_fits(
    model: str, schema: dict[str, Any], name: str, strict: bool
) -> None:
    body = body_of(model, output_schema=schema)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": strict},
    }
    # A server that may leave the field out in silence.
    in_words = ["system"] if model in {"vllm:m", "openrouter:m"} else []
    assert [message["role"] for message in body["messages"]] == [*in_words, "user"]


@pytest.mark.parametrize(("model", "response_format"), [("deepseek:m", {"type": "json_object"}), ("groq:m", None)])
def test_a_server_without_schemas_is_told_in_words(model: str, response_format: Any) -> None:
    body = body_of(model, output_schema=CLOSED, instructions="Be brief.")
    assert body.get("response_format") == response_format
    said = body["messages"][0]["content"]
    assert said.startswith("Be brief.\n\nWrite your final reply as one JSON object")
    assert json.loads(said.rpartition("\n")[2]) == CLOSED


# ---------------------------------------------------------------- documents

PDF = Document(data="JVBERg==", media_type="application/pdf", name="bill.pdf")
NOTES = Document(data=b64encode("Grüße".encode()).decode(), media_type="text/markdown", name="notes.md")


@pytest.mark.parametrize(
    ("model", "document", "shown"),
    [
        (
            "openai-chat:m",
            PDF,
            {
                "type": "file",
                "file": {"filename": "bill.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
            },
        ),
        ("azure:m", PDF, {"type": "text", "text": "[document: bill.pdf, which this model can't be shown]"}),
        ("openai-chat:m", NOTES, {"type": "text", "text": "[document: notes.md]\nGrüße"}),
        (
            "groq:m",
            Document(url="https://x/y.pdf"),
            {"type": "text", "text": "[document: https://x/y.pdf, which this model can't be shown]"},
        ),
        (
            "groq:m",
            Document(data="/w==", media_type="text/plain"),
            {"type": "text", "text": "[document: text/plain, which can't be read]"},
        ),
    ],
)
def test_a_document_is_a_file_or_words(model: str, document: Document, shown: dict[str, Any]) -> None:
    [message] = body_of(model, Message.user([Text(text="read:"), document]))["messages"]
    assert message["content"] == [{"type": "text", "text": "read:"}, shown]


@pytest.mark.parametrize(
    ("model", "content", "behind"),
    [
        ("openai-chat:m", "see\n[document: in the next message]", 1),
        ("azure:m", "see\n[document: bill.pdf, which this model can't be shown]", 0),
    ],
)
def test_a_document_in_a_result_follows_it_where_it_can_be_sent(model: str, content: str, behind: int) -> None:
    call = ToolCall(call_id="c1", name="fetch")
    result = ToolResult(call_id="c1", name="fetch", content=(Text(text="see"), PDF))
    transcript = (QUESTION, Message(role="assistant", parts=(call,)), Message(role="tool", parts=(result,)))
    messages = body_of(model, *transcript)["messages"]
    assert messages[2]["content"] == content
    assert len(messages) == 3 + behind


# ---------------------------------------------------------------- kept, and sent back


def reply(model: str, message: dict[str, Any]) -> Reply:
    """The reply in a message, which is the same where each of its fields comes as a delta of its own."""
    asked = Request(model=Model(model), messages=[QUESTION])
    whole = decode({"choices": [{"message": message, "finish_reason": "stop"}]}, asked)
    assembler = Assembler(asked)
    for name, value in message.items():
        assembler.feed(Event(json.dumps({"choices": [{"delta": {name: value}}]})))
    assembler.feed(Event("[DONE]"))
    assert assembler.finish() == whole
    return whole


def back(model: str, answered: Reply) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(model, QUESTION, answered.message)["messages"]
    return found[1:]


DETAILS = [
    {"type": "reasoning.text", "text": "hm", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "AAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
]


def test_openrouters_reasoning_goes_back_as_it_came_and_to_nobody_else() -> None:
    answered = reply("openrouter:m", {"content": "a", "reasoning": "hm", "reasoning_details": DETAILS})
    assert answered.message.parts[0] == Thinking(text="hm", extra={"reasoning_details": DETAILS})
    assert back("openrouter:m", answered) == [{"role": "assistant", "content": "a", "reasoning_details": DETAILS}]
    assert back("openai-chat:m", answered) == [{"role": "assistant", "content": "a"}]


def test_reasoning_that_comes_in_details_only_is_shown() -> None:
    answered = reply("openrouter:m", {"reasoning_details": DETAILS, "content": "a"})
    assert answered.message.parts[0] == Thinking(text="hm", extra={"reasoning_details": DETAILS})


def test_pieces_of_openrouters_reasoning_are_joined() -> None:
    assembler = Assembler(Request(model=Model("openrouter:m"), messages=[QUESTION]))
    pieces = [
        {"type": "reasoning.text", "text": "h", "index": 0, "format": "x"},
        {"type": "reasoning.text", "text": "m", "index": 0, "signature": None},
        {"type": "reasoning.text", "signature": "c2ln", "index": 0},
        {"type": "reasoning.text", "text": "so", "index": 1},
        {"type": "reasoning.encrypted", "data": "A", "index": 2},
        {"type": "reasoning.encrypted", "data": "B", "index": 2},
    ]
    for piece in pieces:
        assembler.feed(Event(json.dumps({"choices": [{"delta": {"reasoning_details": [piece]}}]})))
    assembler.feed(Event("[DONE]"))
    [thought] = assembler.finish().message.parts
    assert thought == Thinking(
        text="hmso",
        extra={
            "reasoning_details": [
                {"type": "reasoning.text", "text": "hm", "index": 0, "format": "x", "signature": "c2ln"},
                {"type": "reasoning.text", "text": "so", "index": 1},
                {"type": "reasoning.encrypted", "data": "A", "index": 2},
                {"type": "reasoning.encrypted", "data": "B", "index": 2},
            ]
        },
    )


SIGNED = {"google": {"thought_signature": "c2ln"}}


def test_geminis_signatures_go_back_on_their_exact_places() -> None:
    function = {"name": "weather", "arguments": "{}"}
    calls = [
        {"index": 0, "id": "a", "type": "function", "function": function, "extra_content": SIGNED},
        {"index": 1, "id": "b", "type": "function", "function": function},
    ]
    answered = reply("openai-chat:gemini-3-pro", {"tool_calls": calls})
    [sent, *_] = back("openai-chat:gemini-3-pro", answered)
    assert [entry.get("extra_content") for entry in sent["tool_calls"]] == [SIGNED, None]
    [elsewhere, *_] = back("mistral:m", answered)
    assert all(entry.keys() == {"id", "type", "function"} for entry in elsewhere["tool_calls"])


@pytest.mark.parametrize("content", ["a", None])
def test_a_signature_of_the_message_goes_back_with_it(content: str | None) -> None:
    answered = reply("openai-chat:m", {"content": content, "extra_content": SIGNED})
    assert back("openai-chat:m", answered)[0]["extra_content"] == SIGNED


@pytest.mark.parametrize("model", ["groq:m", "ollama:m", "vllm:m"])
def test_reasoning_goes_back_under_its_name_with_tool_calls(model: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    answered = reply(model, {"reasoning": "hm", "tool_calls": [call]})
    assert back(model, answered)[0]["reasoning"] == "hm"
    assert "reasoning" not in back(model, reply(model, {"tool_calls": [call]}))[0]


def test_a_custom_tools_call_is_kept_and_never_dispatched() -> None:
    custom = {"id": "c9", "type": "custom", "custom": {"name": "shell", "input": "rm -rf /"}}
    answered = reply("openai-chat:m", {"content": "a", "tool_calls": [custom]})
    assert answered.tool_calls == ()
    assert answered.stop == "end"
    assert answered.message.parts[1] == Opaque(data=custom)
    assert back("openai-chat:m", answered) == [
        {"role": "assistant", "content": "a", "tool_calls": [custom]},
        {"role": "tool", "tool_call_id": "c9", "content": "Error: this tool is not run here."},
    ]
    assert back("groq:m", answered) == [{"role": "assistant", "content": "a"}]


def test_a_custom_tools_input_is_joined_from_its_pieces() -> None:
    assembler = Assembler(Request(model=Model("openai-chat:m"), messages=[QUESTION]))
    pieces: list[dict[str, Any]] = [
        {"index": 0, "id": "c9", "type": "custom", "custom": {"name": "shell", "input": ""}},
        {"index": 0, "custom": {"input": "ls "}},
        {"index": 0, "custom": {"input": "-l"}},
        {"index": 1, "id": "c10", "function": {"name": "weather", "arguments": "{}"}},
    ]
    for piece in pieces:
        assembler.feed(Event(json.dumps({"choices": [{"delta": {"tool_calls": [piece]}}]})))
    assembler.feed(Event("[DONE]"))
    custom = Opaque(data={"id": "c9", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}})
    answered = assembler.finish()
    assert answered.message.parts == (custom, ToolCall(call_id="c10", name="weather"))
    assert answered.stop == "tool_calls"


@pytest.mark.parametrize(
    ("model", "roles"),
    [
        ("openai-chat:gpt-5.5", ["user", "assistant", "user"]),  # templates want the two in turn
        ("openrouter:anthropic/claude-opus-5.5", ["user", "user"]),
        ("openai-chat:claude-opus-5-5", ["user", "user"]),
    ],
)
def test_claude_behind_a_gateway_is_sent_no_empty_message(model: str, roles: list[str]) -> None:
    """It refuses empty texts; LiteLLM (1.110.2) puts words of its own there."""
    silent = Message(role="assistant", parts=(), provider=model.partition(":")[0])
    messages = body_of(model, QUESTION, silent, QUESTION)["messages"]
    assert [message["role"] for message in messages] == roles


def test_citations_are_kept_beside_the_text_and_not_sent_back() -> None:
    cited = [{"type": "url_citation", "url_citation": {"url": "https://x"}}]
    answered = reply("openrouter:m", {"content": "a", "annotations": cited})
    assert answered.message.parts == (Text(text="a", extra={"annotations": cited}),)
    assert back("openrouter:m", answered) == [{"role": "assistant", "content": "a"}]


def test_what_groq_ran_by_itself_is_in_the_transcript() -> None:
    ran = {"index": 0, "type": "browser_search", "arguments": "{}", "output": "found"}
    answered = reply("groq:m", {"executed_tools": [ran], "content": "a"})
    assert answered.message.parts == (ServerToolUse(name="browser_search", data=ran), Text(text="a"))
    assert back("groq:m", answered) == [{"role": "assistant", "content": "a"}]


def test_a_picture_of_another_providers_is_put_into_words() -> None:
    drawn = Message(role="assistant", parts=(Text(text="Here: "), Image(data="AAAA", media_type="image/png")))
    [_, message] = body_of("openai-chat:m", QUESTION, drawn)["messages"]
    assert message["content"] == "Here: [image: image/png, which this model can't be shown]"


# ---------------------------------------------------------------- what was encoded before


def test_a_result_that_came_since_is_not_missed() -> None:
    called = Message(role="assistant", parts=(ToolCall(call_id="c1", name="weather"),))
    results = [
        Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text=text),)),)) for text in ("sun", "rain")
    ]
    contents = [
        body_of("openai-chat:m", QUESTION, called, *more)["messages"][2]["content"]
        for more in ([], results[:1], results[1:], [])
    ]
    assert contents == ["Error: this call has no result.", "sun", "rain", "Error: this call has no result."]
