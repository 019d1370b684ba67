"""Gemini over HTTP: where a request goes, with which key, and what Google's errors are read as."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.errors import (
    ContextTooLong,
    InvalidReply,
    KeyRefused,
    ModelNotFound,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    Unavailable,
)
from everturn.models import Model, ModelSettings
from everturn.providers import ask, failures
from everturn.providers.base import Delta, Request
from everturn.providers.catalog import resolve_endpoint
from everturn.records import Message, Reply, Text, ToolCall, ToolResult
from tests.providers.sockets import Google

CALL = {"content": {"parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "A+/="}]}}
CALLED = {"candidates": [CALL | {"finishReason": "STOP"}]}
HALF = {"candidates": [{"content": {"parts": [{"text": "It is "}]}}]}
REST = {"candidates": [{"content": {"parts": [{"text": "fine."}]}, "finishReason": "STOP"}]}


def events(*chunks: dict[str, Any]) -> tuple[str, bytes]:
    return "text/event-stream", b"".join(f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in chunks)


def document(value: Any) -> tuple[str, bytes]:
    return "application/json; charset=UTF-8", json.dumps(value).encode()


@pytest.mark.parametrize(
    ("stream", "answers", "path"),
    [
        (
            True,
            [events(CALLED), events(HALF, REST)],
            "post /v1beta/models/gemini-3-flash:streamgeneratecontent?alt=sse ",
        ),
        (True, [document([CALLED]), document([HALF, REST])], "post /v1beta/models/gemini-3-flash:streamgenerate"),
        (False, [document(CALLED), document([HALF, REST])], "post /v1beta/models/gemini-3-flash:generatecontent "),
    ],
    ids=["streamed", "an array", "whole"],
)
async def test_a_conversation_with_a_tool(
    stream: bool, answers: list[tuple[str, bytes]], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    said: list[Delta] = []
    async with Google(*answers) as google:
        model, settings = Model("google:gemini-3-flash", base_url=google.base_url), ModelSettings(stream=stream)
        messages = [Message.user("?")]

        async def turn() -> Reply:
            return await ask(Request(model=model, messages=messages, settings=settings), on_delta=said.append)

        first = await turn()
        assert first.tool_calls == (ToolCall(call_id="call_0_0", name="f", extra={"thoughtSignature": "A+/="}),)
        result = ToolResult(call_id="call_0_0", content=(Text(text="sun"),))
        messages += [first.message, Message(role="tool", parts=(result,))]
        assert (await turn()).text == "It is fine."
    assert all(head.startswith(path) and "\r\nx-goog-api-key: secret\r\n" in head for head in google.heads)
    assert [content["role"] for content in google.bodies[1]["contents"]] == ["user", "model", "user"]
    assert google.bodies[1]["contents"][1]["parts"][0]["thoughtSignature"] == "A+/="
    if answers[0][0] == "text/event-stream":
        assert said == [Delta("text", "It is "), Delta("text", "fine.")]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (events(HALF), InvalidReply),
        (events(HALF, {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}), Unavailable),
        (document([HALF, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}]), RateLimited),
        (document(HALF | {"candidates": []}), InvalidReply),
    ],
)
async def test_half_an_answer_is_an_error_that_can_be_retried(
    answer: tuple[str, bytes], error: type[ProviderError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    async with Google(answer) as google:
        with pytest.raises(error) as raised:
            await ask(Request(model=Model("google:m", base_url=google.base_url), messages=[Message.user("?")]))
    assert raised.value.retry
    assert raised.value.provider == "google"


def google(code: int, status: str, message: str = "x", *details: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": [*details]}}


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}
KEY_INVALID = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


def quota(name: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": name}]}


@pytest.mark.parametrize(
    ("body", "error", "retry_after"),
    [
        (google(400, "INVALID_ARGUMENT"), RequestRefused, None),
        (google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), KeyRefused, None),
        (google(400, "INVALID_ARGUMENT", "x", KEY_INVALID), KeyRefused, None),
        (
            google(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            ContextTooLong,
            None,
        ),
        (google(403, "PERMISSION_DENIED"), KeyRefused, None),
        (google(404, "NOT_FOUND", "models/x is not found for API version v1beta"), ModelNotFound, None),
        (google(429, "RESOURCE_EXHAUSTED", "x", quota("GenerateRequestsPerMinute"), WAIT), RateLimited, 34.4),
        (google(429, "RESOURCE_EXHAUSTED", "x", quota("GenerateRequestsPerDayPerProject"), WAIT), QuotaExhausted, 34.4),
        (google(499, "CANCELLED"), Unavailable, None),
        (google(500, "INTERNAL"), Unavailable, None),
        (google(503, "UNAVAILABLE"), Unavailable, None),
        (google(504, "DEADLINE_EXCEEDED"), Unavailable, None),
    ],
)
@pytest.mark.parametrize("shape", ["object", "array", "in the stream"])
def test_googles_errors(
    body: dict[str, Any], error: type[ProviderError], retry_after: float | None, shape: str
) -> None:
    endpoint = resolve_endpoint(Model("google:m"), environ={"GOOGLE_API_KEY": "k"})
    status = 200 if shape == "in the stream" else body["error"]["code"]
    raw = [body] if shape == "array" else body
    found = failures.of_response(
        endpoint, status=status, headers={}, body=raw if status == 200 else json.dumps(raw).encode()
    )
    assert (type(found), found.status, found.retry_after) == (error, body["error"]["code"], retry_after)


def test_the_key_goes_in_googles_header() -> None:
    both = {"GEMINI_API_KEY": "a", "GOOGLE_API_KEY": "b", "GOOGLE_BASE_URL": "http://x"}
    endpoint = resolve_endpoint(Model("google:m"), environ=both)
    assert endpoint.key_headers() == {"x-goog-api-key": "a"}
    assert endpoint.url_of("/v1beta/models/m:generateContent") == "http://x/v1beta/models/m:generateContent"
