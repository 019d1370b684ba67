"""Provider tools that the caller runs: what of their calls and results goes to and fro, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.providers import gemini, openai_chat, openai_responses
from everturn.records import Image, Message, Text, ToolResult
from tests.providers.messages import request

ASK = Message.user("?")
SQL = {"type": "custom", "custom": {"name": "sql", "description": "Runs SQL."}}
SHOT = Image(data="iVBORw0KGgo=", media_type="image/png")


def told(call_id: str, *content: Text | Image, **fields: Any) -> Message:
    return Message(role="tool", parts=(ToolResult(call_id=call_id, content=content, **fields),))


def test_a_custom_tool_of_chat_is_called_with_its_text_and_goes_back_as_it_came() -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    body = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    asked = request(ASK, model="openai-chat:gpt-5.5", raw_tools=[SQL])
    reply = openai_chat.decode(body, asked)
    (found,) = reply.tool_calls
    assert (found.name, found.arguments, reply.stop) == ("sql", {"input": "select 1"}, "tool_calls")
    assert openai_chat.decode(body, request(ASK, model="openai-chat:gpt-5.5")).tool_calls == ()
    again = request(ASK, reply.message, told("c1", Text(text="1")), model="openai-chat:gpt-5.5", raw_tools=[SQL])
    messages = openai_chat.encode(again)[1]["messages"]
    assert messages[1]["tool_calls"] == [call]
    assert messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "1"}


@pytest.mark.parametrize(
    ("raw", "is_ours"),
    [
        ({"type": "shell"}, True),
        ({"type": "shell", "environment": {"type": "local"}}, True),
        ({"type": "shell", "environment": {"type": "container_auto"}}, False),
        ({"type": "web_search"}, False),
    ],
)
def test_a_shell_that_the_provider_runs_is_no_call(raw: dict[str, Any], is_ours: bool) -> None:
    item = {"type": "shell_call", "call_id": "c1", "status": "completed", "action": {"commands": ["ls"]}}
    body = {"id": "r", "status": "completed", "output": [item]}
    reply = openai_responses.decode(body, request(ASK, model="openai:gpt-5.5", raw_tools=[raw]))
    assert bool(reply.tool_calls) is is_ours
    again = request(ASK, reply.message, told("c1", Text(text="x")), model="openai:gpt-5.5", raw_tools=[raw])
    assert openai_responses.encode(again)[1]["input"][1] == item


def test_another_provider_sees_such_a_call_as_one_of_a_function() -> None:
    item = {"type": "shell_call", "call_id": "c1", "status": "completed", "action": {"commands": ["ls"]}}
    body = {"id": "r", "status": "completed", "output": [item]}
    reply = openai_responses.decode(body, request(ASK, model="openai:gpt-5.5", raw_tools=[{"type": "shell"}]))
    again = request(ASK, reply.message, told("c1", Text(text="x")), model="xai:grok-5")
    call, output = openai_responses.encode(again)[1]["input"][1:]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "shell", '{"commands":["ls"]}')
    assert output == {"type": "function_call_output", "call_id": "c1", "output": "x"}


def test_a_call_that_was_cut_off_goes_back_as_a_function_call_with_an_error() -> None:
    item = {"type": "apply_patch_call", "call_id": "c1", "status": "incomplete", "operation": {"type": "create_file"}}
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    asked = request(ASK, model="openai:gpt-5.5", raw_tools=[{"type": "apply_patch"}])
    reply = openai_responses.decode({"id": "r", "output": [item], **details}, asked)
    (call,) = reply.tool_calls
    assert call.unparsed is not None
    again = request(ASK, reply.message, told("c1", Text(text="cut"), is_error=True), model="openai:gpt-5.5")
    kinds = [one.get("type") for one in openai_responses.encode(again)[1]["input"][1:]]
    assert kinds == ["function_call", "function_call_output"]


def test_a_computers_result_without_a_picture_says_why_in_words() -> None:
    item = {"type": "computer_call", "id": "i", "call_id": "c1", "status": "completed", "actions": []}
    checked = item | {"pending_safety_checks": [{"id": "cs_1"}]}
    raw = [{"type": "computer"}]
    body = {"id": "r", "status": "completed", "output": [checked]}
    reply = openai_responses.decode(body, request(ASK, model="openai:gpt-5.5", raw_tools=raw))
    denied = told("c1", Text(text="A person denied it."), is_error=True)
    again = request(ASK, reply.message, denied, model="openai:gpt-5.5", raw_tools=raw)
    output, words = openai_responses.encode(again)[1]["input"][2:]
    assert output["output"]["image_url"].startswith("data:image/png;base64,")
    assert "acknowledged_safety_checks" not in output
    assert "A person denied it." in words["content"]


def test_gemini_is_told_the_address_that_its_browser_is_at() -> None:
    raw = [{"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}]
    args = {"x": 1, "y": 2, "safety_decision": {"decision": "require_confirmation", "explanation": "Cookies."}}
    part = {"functionCall": {"name": "click_at", "args": args}}
    body = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}
    model = "google:gemini-2.5-computer-use-preview-10-2025"
    reply = gemini.decode(body, request(ASK, model=model, raw_tools=raw))
    (call,) = reply.tool_calls
    seen = told(call.call_id, SHOT, Text(text='{"url": "https://example.com"}'))
    contents = gemini.encode(request(ASK, reply.message, seen, model=model, raw_tools=raw))[1]["contents"]
    response = contents[2]["parts"][0]["functionResponse"]
    assert response["response"] == {"url": "https://example.com", "safety_acknowledgement": "true"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]


@pytest.mark.parametrize("said", ['{"status": []}', '{"status": {}, "output": 5}', "[]", "null", '{"output": [[]]}'])
@pytest.mark.parametrize("kind", ["shell", "local_shell", "apply_patch", "computer"])
def test_whatever_a_function_returns_goes_back_as_something(kind: str, said: str) -> None:
    item = {"type": f"{kind}_call", "id": "i", "call_id": "c1", "status": "completed", "action": {"type": "wait"}}
    if kind == "apply_patch":
        item["operation"] = {"type": "delete_file", "path": "x"}
    raw = {"type": "computer_use_preview"} if kind == "computer" else {"type": kind}
    body = {"id": "r", "status": "completed", "output": [item]}
    reply = openai_responses.decode(body, request(ASK, model="openai:gpt-5.5", raw_tools=[raw]))
    assert len(reply.tool_calls) == 1
    again = request(ASK, reply.message, told("c1", Text(text=said)), model="openai:gpt-5.5", raw_tools=[raw])
    output = openai_responses.encode(again)[1]["input"][2]
    assert (output["type"], output["call_id"]) == (f"{kind}_call_output", "c1")


@pytest.mark.parametrize("odd", [[], {}, 5, None, True, [{}]])
def test_a_call_of_whatever_shape_is_read_or_is_none(odd: Any) -> None:
    raw = [{"type": kind} for kind in ("shell", "local_shell", "apply_patch", "computer_use_preview", "mcp")]
    fields = ("type", "call_id", "id", "action", "actions", "operation", "arguments", "name", "status")
    for kind in ("shell_call", "local_shell_call", "apply_patch_call", "computer_call", "mcp_approval_request"):
        whole = {"type": kind, "id": "i", "call_id": "c1", "status": "completed", "action": {"type": "wait"}}
        for field in fields:
            body = {"id": "r", "status": "completed", "output": [{**whole, field: odd}]}
            reply = openai_responses.decode(body, request(ASK, model="openai:gpt-5.5", raw_tools=raw))
            openai_responses.encode(request(ASK, reply.message, model="openai:gpt-5.5", raw_tools=raw))
