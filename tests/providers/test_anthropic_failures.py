"""Anthropic: what its errors are to us, and with what headers it is asked."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from everturn.errors import (
    ContextTooLong,
    KeyRefused,
    ModelNotFound,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    Unavailable,
)
from everturn.models import Model
from everturn.providers import failures
from everturn.providers.anthropic_messages import decode
from everturn.providers.base import Request
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.failures import ErrorInReply

MODEL = Model("anthropic:m")


def error(kind: str, message: str = "x", **details: Any) -> dict[str, Any]:
    inner = {"type": kind, "message": message, **({"details": details} if details else {})}
    return {"type": "error", "error": inner, "request_id": "req_9"}


def judged(status: int, body: Any, **headers: str) -> ProviderError:
    endpoint = resolve_endpoint(MODEL, environ={"ANTHROPIC_API_KEY": "sk-ant-1"})
    raw = body if status == 200 else json.dumps(body).encode()
    fields = httpx.Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return failures.of_response(endpoint, status=status, headers=fields, body=raw)


SPENT = "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."


@pytest.mark.parametrize(
    ("status", "body", "kind", "retry"),
    [
        (400, error("invalid_request_error", "messages: at least one message is required"), RequestRefused, False),
        (400, error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), ContextTooLong, False),
        (
            400,
            error("invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 8 > 10"),
            ContextTooLong,
            False,
        ),
        (400, error("invalid_request_error", SPENT), QuotaExhausted, False),
        (401, error("authentication_error", "invalid x-api-key"), KeyRefused, False),
        (402, error("billing_error"), QuotaExhausted, False),
        (403, error("permission_error"), KeyRefused, False),
        (404, error("not_found_error", "model: m"), ModelNotFound, False),
        (413, error("request_too_large", "Request exceeds the maximum size"), ContextTooLong, False),
        (429, error("rate_limit_error"), RateLimited, True),
        (429, error("rate_limit_error", error_code="ramp_limit_exceeded"), RateLimited, True),
        (429, error("rate_limit_error", error_code="enforced_spend_limit_reached"), QuotaExhausted, False),
        (429, error("rate_limit_error", error_code="contract_spend_limit_reached"), QuotaExhausted, False),
        (500, error("api_error"), Unavailable, True),
        (504, error("timeout_error"), Unavailable, True),
        (529, error("overloaded_error", "Overloaded"), Unavailable, True),
    ],
)
def test_the_table_of_its_errors(status: int, body: Any, kind: type[ProviderError], retry: bool) -> None:
    found = judged(status, body, request_id="req_1", retry_after="7")
    assert (type(found), found.retry, found.status) == (kind, retry, status)
    assert (found.request_id, found.retry_after) == ("req_1", 7)
    after_200 = judged(200, body)
    assert (type(after_200), after_200.retry) == (kind, retry)
    assert after_200.request_id == "req_9"


def test_it_is_asked_with_its_own_headers() -> None:
    endpoint = resolve_endpoint(MODEL, environ={"ANTHROPIC_API_KEY": "sk-ant-1"})
    assert endpoint.url_of("/v1/messages") == "https://api.anthropic.com/v1/messages"
    assert endpoint.key_headers() == {"anthropic-version": "2023-06-01", "x-api-key": "sk-ant-1"}


def test_a_full_context_is_too_long() -> None:
    with pytest.raises(ErrorInReply) as raised:
        decode({"content": [], "stop_reason": "model_context_window_exceeded"}, Request(model=MODEL, messages=()))
    found = judged(200, raised.value.body)
    assert (type(found), found.retry) == (ContextTooLong, False)
