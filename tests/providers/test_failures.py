"""One table from what a provider answers to what everturn does about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.errors import (
    ConnectionFailed,
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
from everturn.http.retry_after import seconds_to_wait
from everturn.models import Model
from everturn.providers import failures
from everturn.providers.catalog import resolve_endpoint

KEY = "sk-secret-0123456789"
ENDPOINT = resolve_endpoint(Model("openai-chat:gpt-x"), environ={"OPENAI_API_KEY": KEY})


def answered(status: int, body: Any = b"", **headers: str) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = httpx.Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return failures.of_response(ENDPOINT, status=status, headers=fields, body=raw)


def openai(message: str = "x", *, code: Any = None, kind: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "error", "retry"),
    [
        # By status alone.
        (301, b"", RequestRefused, False),
        (400, b"", RequestRefused, False),
        (401, b"", KeyRefused, False),
        (402, b"", QuotaExhausted, False),
        (403, b"", KeyRefused, False),
        (404, b"", ModelNotFound, False),
        (405, b"", RequestRefused, False),
        (408, b"", Unavailable, True),
        (409, b"", Unavailable, True),
        (413, b"", RequestRefused, False),
        (422, b"", RequestRefused, False),
        (429, b"", RateLimited, True),
        (451, b"", RequestRefused, False),
        # An unknown model, where it is no 404: DeepSeek (two wordings), xAI, LiteLLM, Z.ai, Hugging Face.
        (400, openai("Model Not Exist", code="invalid_request_error"), ModelNotFound, False),
        (
            400,
            openai(
                "The supported API model names are deepseek-v4-pro or deepseek-v4-flash, but you passed deepseek-chat.",
                kind="invalid_request_error",
                code="invalid_request_error",
            ),
            ModelNotFound,
            False,
        ),
        (
            400,
            {"code": "Client specified an invalid argument", "error": "Model not found: grok-2-latest"},
            ModelNotFound,
            False,
        ),
        (
            404,
            {"code": "Some requested entity was not found", "error": "The model grok-beta does not exist or your team"},
            ModelNotFound,
            False,
        ),
        (400, {"error": "/chat/completions: Invalid model name passed in model=x."}, ModelNotFound, False),
        (
            400,
            {"error": {"code": "1211", "message": "Unknown Model, check the model code."}},
            ModelNotFound,
            False,
        ),
        (400, openai("not supported by any provider you enabled", code="model_not_supported"), ModelNotFound, False),
        (
            400,
            {"code": "Client specified an invalid argument", "error": "Argument not supported on this model: stop"},
            RequestRefused,
            False,
        ),
        (500, b"", Unavailable, True),
        (502, b"<html>", Unavailable, True),
        (503, b"", Unavailable, True),
        (504, b"", Unavailable, True),
        (529, b"", Unavailable, True),
        (599, b"", Unavailable, True),
        # By what the body says.
        (429, openai(code="insufficient_quota"), QuotaExhausted, False),
        (429, openai(kind="insufficient_quota"), QuotaExhausted, False),
        (429, openai(kind="exceeded_current_quota_error"), QuotaExhausted, False),
        (429, openai("Your account is not active", code="billing_not_active"), QuotaExhausted, False),
        (400, openai("Access denied, ...", code="Arrearage"), QuotaExhausted, False),  # DashScope
        (403, openai("Key limit exceeded (daily limit). Manage it", code=403), QuotaExhausted, False),  # OpenRouter
        (429, openai("Your prepayment credits are depleted.", kind="RESOURCE_EXHAUSTED"), QuotaExhausted, False),
        (
            429,
            openai("Your project has exceeded its monthly spending cap.", kind="RESOURCE_EXHAUSTED"),
            QuotaExhausted,
            False,
        ),
        (429, openai("Rate limit reached", code="rate_limit_exceeded"), RateLimited, True),
        (498, openai("Flex tier capacity exceeded", code="capacity_exceeded"), Unavailable, True),  # Groq
        (400, openai("Parsing failed.", code="output_parse_failed"), InvalidReply, True),  # Groq
        (400, openai("Failed to generate JSON.", code="json_validate_failed"), InvalidReply, True),  # Groq
        (400, openai("<400> ... Range of input length should be [1, 98304]"), ContextTooLong, False),  # DashScope
        (400, openai("Prompt exceeds max length", code="1261"), ContextTooLong, False),  # Z.ai
        (402, openai("Insufficient Balance", kind="unknown_error"), QuotaExhausted, False),
        (403, {"code": "x", "error": "Your team has used all available credits"}, QuotaExhausted, False),
        (400, openai("Your credit balance is too low"), QuotaExhausted, False),
        (400, openai(code="context_length_exceeded"), ContextTooLong, False),
        (400, openai("This model's maximum context length is 65536 tokens."), ContextTooLong, False),
        (400, openai("Your input exceeds the context window of this model."), ContextTooLong, False),
        (400, openai("prompt is too long: 210000 tokens > 200000 maximum"), ContextTooLong, False),
        (
            400,
            openai("The input token count (9) exceeds the maximum number of tokens allowed (8)"),
            ContextTooLong,
            False,
        ),
        (
            400,
            openai("the request exceeds the available context size", kind="exceed_context_size_error"),
            ContextTooLong,
            False,
        ),
        (400, openai("Invalid request: Your request exceeded model token limit: 8192"), ContextTooLong, False),
        (
            400,
            {"object": "error", "message": "Prompt contains 9 tokens, too large for model with 8 maximum"},
            ContextTooLong,
            False,
        ),
        (413, openai("Request too large for model `m` on tokens per minute"), ContextTooLong, False),
        (
            429,
            openai("Request too large for gpt-x (TPM): Limit 1, Requested 2", code="rate_limit_exceeded"),
            ContextTooLong,
            False,
        ),
        (400, openai(code="invalid_api_key"), KeyRefused, False),
        (400, {"error": "Incorrect API key provided: xa***"}, KeyRefused, False),
        (403, openai(code="model_not_found"), ModelNotFound, False),
        (400, openai("x is not a valid model ID", code=400), ModelNotFound, False),
        (400, {"object": "error", "message": "Invalid model: x", "type": "invalid_model"}, ModelNotFound, False),
        (400, openai("Model Not Exist"), ModelNotFound, False),
        (400, openai("Tool call validation failed", code="tool_use_failed"), InvalidReply, True),
        (500, openai("The server had an error"), Unavailable, True),
        (429, openai("slow down", code=429), RateLimited, True),
    ],
)
def test_the_table(status: int, body: Any, error: type[ProviderError], retry: bool) -> None:
    found = answered(status, body)
    assert type(found) is error
    assert (found.retry, found.status, found.provider) == (retry, status, "openai-chat")
    assert str(found).startswith(f"openai-chat:gpt-x answered {status}: ")


@pytest.mark.parametrize(
    ("body", "error", "status"),
    [
        (openai("overloaded", kind="overloaded_error"), Unavailable, 529),
        (openai("slow", kind="rate_limit_exceeded"), RateLimited, 429),
        (openai("bad", kind="invalid_request_error"), RequestRefused, 400),
        (openai("x", code=502), Unavailable, 502),
        (openai("x", code=429), RateLimited, 429),
        ({"error": {"message": "x", "status_code": 503}}, Unavailable, 503),
        (openai("x", code="context_length_exceeded"), ContextTooLong, 500),
        (openai("x", code="insufficient_quota"), QuotaExhausted, 500),
        ({"error": {"message": "x", "statusCode": 429}}, RateLimited, 429),
        ({"error": {"message": "x", "http_code": "401"}}, KeyRefused, 401),
        ({"error": "rate_limit_exceeded"}, RateLimited, 429),
        ({"code": 401, "msg": "token expired", "success": False}, KeyRefused, 401),
        (openai("???"), Unavailable, 500),
        ("just words", Unavailable, 500),
        (None, Unavailable, 500),
    ],
)
def test_an_error_after_a_200_is_judged_by_what_it_says(body: Any, error: type[ProviderError], status: int) -> None:
    found = failures.of_response(ENDPOINT, status=200, headers={}, body=body)
    assert (type(found), found.status) == (error, status)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "no explanation."),
        (b"null", "no explanation."),
        (b"Bad gateway", "Bad gateway."),
        (b"<html><head><title>502 Bad\n Gateway</title>", "an HTML page, '502 Bad Gateway'."),
        (b"<!DOCTYPE html><p>x", "an HTML page."),
        (b"\xff\xfe\x00", "\ufffd\ufffd."),
        (b'{"error": {"\\ud83d": "\\ud83d"}}', '{"error":{"\ufffd":"\ufffd"}}.'),
        (openai("Too many requests!"), "Too many requests!"),
        ({"error": "model 'x' is loading"}, "model 'x' is loading."),
        ({"message": "no"}, "no."),
        ({"detail": "no"}, "no."),
        ({"detail": [{"loc": ["body"], "msg": "Field required"}]}, "Field required."),
        ({"object": "error", "message": {"detail": [{"msg": "Extra inputs"}]}}, '{"detail":[{"msg":"Extra inputs"}]}.'),
        ([openai("in a list")], "in a list."),
        ({"error": {"code": 7}}, '{"error":{"code":7}}.'),
        (openai("two\nlines\t\x1b[31mred"), "two lines [31mred."),
        (
            {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "x is rate-limited"}}},
            "Provider returned error: x is rate-limited.",
        ),
    ],
)
def test_the_providers_own_sentence_is_found_in_any_body(body: Any, sentence: str) -> None:
    assert answered(418, body).message == f"openai-chat:gpt-x answered 418: {sentence}"


@pytest.mark.parametrize("body", [b"x" * 5_000_000, openai("y" * 100_000), openai("z " * 100_000)])
def test_a_huge_body_makes_a_short_message(body: Any) -> None:
    assert len(answered(500, body).message) < 600


@pytest.mark.parametrize(
    ("key", "message", "shown"),
    [
        # What is no secret, but a word for a server that takes no key, hides none of an error's own words.
        ("test", "The latest test failed", "The latest test failed"),
        ("none", "none of the models", "none of the models"),
        ("EMPTY", "EMPTY body", "EMPTY body"),
        ("not-needed", "a key is not-needed-here", "a key is not-needed-here"),
        ("not-needed", "bad key: not-needed", "bad key: [key]"),
        ("dummy-key-0123456789", "bad key: xdummy-key-0123456789", "bad key: x[key]"),
    ],
)
def test_only_a_secret_is_cut_out_of_an_error(key: str, message: str, shown: str) -> None:
    endpoint = resolve_endpoint(Model("openai-chat:gpt-x"), environ={"OPENAI_API_KEY": key})
    error = failures.of_response(endpoint, status=400, headers={}, body={"error": {"message": message}})
    assert error.message == f"openai-chat:gpt-x answered 400: {shown}."


@pytest.mark.parametrize("where", ["sk-secret-0123456789", "a" * 495 + KEY, f"{KEY} and {KEY}"])
def test_the_key_is_in_no_message_not_even_in_part(where: str) -> None:
    for found in (
        answered(401, openai(where)),
        answered(500, where.encode(), x_request_id=where[-100:]),
        failures.of_exception(ENDPOINT, httpx.ConnectError(where)),
        failures.not_the_protocol(ENDPOINT, "it is not JSON", body=where.encode()),
    ):
        shown = f"{found} {found.message} {found.cure} {found.request_id} {found.args}"
        assert "sk-s" not in shown


def test_a_message_says_who_what_and_what_to_do() -> None:
    found = answered(401, openai("Incorrect API key provided."), x_request_id="req_1")
    assert str(found) == (
        "openai-chat:gpt-x answered 401 (request req_1): Incorrect API key provided. "
        "Check OPENAI_API_KEY in the worker's environment, and whether the key may use this model."
    )
    assert found.request_id == "req_1"


@pytest.mark.parametrize("header", ["x-request-id", "request-id", "apim-request-id", "mistral-correlation-id"])
def test_the_request_id_is_found_under_every_name(header: str) -> None:
    assert answered(500, **{header: "r1"}).request_id == "r1"


NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "Fri, 20 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 20 Nov 2026 13:00:30 +0100"}, 30.0),
        ({"retry-after": "Fri, 20 Nov 2026 12:00:30"}, 30.0),
        ({"retry-after": "Fri, 20 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_how_long_the_provider_asks_us_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert seconds_to_wait(httpx.Headers(headers), now=NOW) == seconds


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=40))
def test_no_retry_after_header_crashes(text: str) -> None:
    seconds = seconds_to_wait({"retry-after": text}, now=NOW)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("status", "body", "verdict", "retry"),
    [
        (429, b"", "false", False),
        (500, b"", "false", False),
        (400, b"", "true", True),
        (400, b"", "perhaps", False),
        (429, openai(code="insufficient_quota"), "true", False),
    ],
)
def test_the_providers_verdict_on_retrying_wins(status: int, body: Any, verdict: str, retry: bool) -> None:
    assert answered(status, body, x_should_retry=verdict).retry is retry


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("[Errno 111] refused"), "can't be reached (ConnectError: [Errno 111] refused)"),
        (httpx.ConnectTimeout(""), "did not accept a connection in time (ConnectTimeout)"),
        (httpx.ReadTimeout(""), "stopped answering"),
        (httpx.WriteTimeout(""), "stopped answering"),
        (httpx.ReadError(""), "broke the connection"),
        (httpx.RemoteProtocolError("Server disconnected"), "broke the connection"),
        (httpx.ProxyError("403"), "broke the connection"),
    ],
)
def test_a_connection_that_failed_names_the_host(error: httpx.HTTPError, words: str) -> None:
    found = failures.of_exception(ENDPOINT, error)
    assert isinstance(found, ConnectionFailed)
    assert found.retry
    assert words in found.message
    assert "'https://api.openai.com/v1'" in found.message
    assert found.cure == "Check the network."


@pytest.mark.parametrize(
    ("given", "variable", "source"),
    [
        ("http://ann:pw@localhost:9/v2?key=pw", "http://b", "base_url="),
        (None, "http://localhost:9/v2", "OPENAI_BASE_URL"),
    ],
)
def test_an_address_that_somebody_gave_is_named_with_its_source_and_without_its_password(
    given: str | None, variable: str, source: str
) -> None:
    model = Model("openai-chat:x", base_url=given)
    endpoint = resolve_endpoint(model, environ={"OPENAI_BASE_URL": variable})
    lost = failures.of_exception(endpoint, httpx.ConnectError("refused"))
    assert "'http://localhost:9/v2' can't be reached" in lost.message
    assert lost.cure == f"Check the network, and {source}."
    unknown = failures.of_response(endpoint, status=404, headers={}, body=b"")
    assert unknown.cure.endswith(f", and {source}: it was asked at 'http://localhost:9/v2'.")
    redirect = failures.of_response(endpoint, status=302, headers={}, body=b"")
    garbage = failures.not_the_protocol(endpoint, "it is no JSON")
    for error in (lost, unknown, redirect, garbage):
        assert source in error.cure
        assert "pw" not in str(error)


def every_lower_error(kind: type[httpx.HTTPError] = httpx.HTTPError) -> list[type[httpx.HTTPError]]:
    return [kind, *(lower for child in kind.__subclasses__() for lower in every_lower_error(child))]


def test_every_error_of_httpx_is_mapped() -> None:
    for kind in every_lower_error():
        error = kind.__new__(kind, "x")
        Exception.__init__(error, "x")
        assert isinstance(failures.of_exception(ENDPOINT, error), ProviderError)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "detail", "metadata", "details"]), inner)
    ),
    max_leaves=8,
)


@given(body=st.binary(max_size=50) | json_values, status=st.integers(min_value=200, max_value=600))
def test_no_body_crashes_the_table(body: Any, status: int) -> None:
    assert isinstance(failures.of_response(ENDPOINT, status=status, headers={}, body=body), ProviderError)


# ---------------------------------------------------------------- behind gateways


def litellm(message: str, kind: str, code: str) -> dict[str, Any]:
    """As LiteLLM 1.108.7 answers: the code is a text, and the provider's own code is left out."""
    more = "\n\nLiteLLM: model group 'm' failed with the error above. No fallback was attempted."
    return {"error": {"message": f"litellm.{message}{more}", "type": kind, "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (
            429,
            litellm(
                "RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check "
                "your plan "
                "and billing details.",
                "throttling_error",
                "429",
            ),
            QuotaExhausted,
        ),
        (
            429,
            litellm(
                'RateLimitError: OpenAIException - {"error": {"message": "x", "code": "insufficient_quota"}}',
                "rate_limit_error",
                "429",
            ),
            QuotaExhausted,
        ),
        (
            429,
            litellm(
                "RateLimitError: GeminiException - You exceeded your current quota, please check your plan and billing "
                "details. * Quota exceeded for metric: generate_content_free_tier_requests. Please retry in 34s.",
                "throttling_error",
                "429",
            ),
            RateLimited,
        ),
        (
            401,
            litellm("AuthenticationError: OpenAIException - Incorrect API key", "authentication_error", "401"),
            KeyRefused,
        ),
        (400, {"error": {"message": "No connected db.", "type": "no_db_connection", "code": "400"}}, KeyRefused),
        (
            400,
            {"error": {"message": "Budget has been exceeded!", "type": "budget_exceeded", "code": "400"}},
            QuotaExhausted,
        ),
        (200, litellm("InternalServerError: gone", "internal_server_error", "503"), Unavailable),
        (200, litellm("RateLimitError: slow", "throttling_error", "429"), RateLimited),
        (
            500,
            litellm("InternalServerError: image input is not supported", "internal_server_error", "500"),
            RequestRefused,
        ),
        (500, {"error": {"message": "Conversation roles must alternate user/assistant/user"}}, RequestRefused),
        (500, {"error": "m does not support tools"}, RequestRefused),
        (500, {"error": "this model is missing data required for image input"}, RequestRefused),  # Ollama
        (500, {"error": {"message": "unsupported content[].type"}}, RequestRefused),  # llama.cpp
        (500, {"error": {"message": "At most 0 image(s) may be provided in one prompt."}}, RequestRefused),  # vLLM
        (500, {"error": {"message": "This model only supports text input."}}, RequestRefused),
        (500, {"error": {"message": "Tool use is not supported by this model"}}, RequestRefused),
        (500, {"error": {"message": "CUDA error: out of memory"}}, Unavailable),
        (503, {"error": {"message": "The image service is not available"}}, Unavailable),
        # What a gateway quotes: as JSON in a text, in OpenRouter's metadata, and as a list (Cloudflare)
        (502, {"error": {"message": "upstream: " + json.dumps(openai(code="insufficient_quota"))}}, QuotaExhausted),
        (502, {"error": {"metadata": {"raw": json.dumps(openai(code="insufficient_quota"))}}}, QuotaExhausted),
        (502, {"error": {"message": 'upstream: {"error": {"code": "insufficient_quota"}'}}, Unavailable),
        (500, {"error": [{"code": "insufficient_quota", "message": "x"}]}, QuotaExhausted),
        # OpenRouter's moderation and OpenAI's countries are no matter of the key; Vercel's and Google's of an account
        (403, {"error": {"message": "x", "metadata": {"reasons": ["x"], "flagged_input": "y"}}}, RequestRefused),
        (403, openai(code="unsupported_country_region_territory"), RequestRefused),
        (403, openai(kind="customer_verification_required"), QuotaExhausted),
        (403, {"error": {"details": [{"reason": "BILLING_DISABLED"}]}}, QuotaExhausted),
        (400, {"__type": "com.amazon.coral.service#ThrottlingException", "message": "x"}, RateLimited),
        (400, {"__type": "ExpiredTokenException", "Message": "x"}, KeyRefused),
        (400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"}, ContextTooLong),
    ],
)
def test_what_gateways_and_small_servers_say(status: int, body: Any, error: type[ProviderError]) -> None:
    assert type(answered(status, body)) is error


def _limits(remaining: str) -> dict[str, str]:
    facts = {"limit": "60", "remaining": remaining, "reset": "7s"}
    return {f"x-ratelimit-{fact}-requests": value for fact, value in facts.items()}


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"llm_provider-retry-after": "7"}, {}, 7.0),  # LiteLLM
        ({"llm_provider-retry-after-ms": "250"}, {}, 0.25),
        ({"retry-after": "3", "llm_provider-retry-after": "7"}, {}, 3.0),
        ({"ratelimit-reset": "12"}, {}, 12.0),  # the IETF's draft
        ({"ratelimit": '"minute";r=3;t=60, "day";r=0;t=17, "month";r=0;t=9'}, {}, 17.0),  # its later one
        ({"ratelimit": "limit=9, remaining=0, reset=17"}, {}, 17.0),
        ({"ratelimit": '"minute";r=10;t=17'}, {}, None),
        ({"x-ms-retry-after-ms": "250"}, {}, 0.25),  # azure-core
        (_limits("0"), {}, 7.0),
        ({f"llm_provider-{name}": value for name, value in _limits("0").items()}, {}, 7.0),
        (_limits("3"), {}, None),
        ({"x-ratelimit-reset": "1m30s"}, {}, 90.0),
        ({"x-ratelimit-reset": "1795737620000", "date": "Fri, 27 Nov 2026 00:00:10 GMT"}, {}, 10.0),  # OpenRouter
        ({"x-ratelimit-reset": "99999999999999"}, {}, None),
        ({}, {"error": {"message": "x", "metadata": {"headers": {"Retry-After": "9"}}}}, 9.0),  # OpenRouter's body
        ({}, {"title": "Error 1015", "retryable": True, "retry_after": 30}, 30.0),  # Cloudflare's own
        ({}, {"error": "Model m is currently loading", "estimated_time": 20.5}, 20.5),  # Hugging Face
        ({}, openai("Limit 30000, Requested 2000. Please try again in 1m30.5s. Visit https://x"), 90.5),  # OpenAI, Groq
        ({}, openai("Please try again in 250ms."), 0.25),
        ({"retry-after": "3"}, openai("Please try again in 20s."), 3.0),
        ({}, openai("Please retry after 1 second."), 1.0),  # Azure
        ({}, openai("Please wait at least 2 minutes and 5 seconds before retrying."), 125.0),
        ({}, openai("litellm.RateLimitError: {'retry-after': '12.5'}"), 12.5),
        ({}, openai("Try again in 2 days, or retry after 3 months: retry_after=2026-11-30"), None),
    ],
)
def test_how_long_a_gateway_asks_us_to_wait(headers: dict[str, str], body: Any, seconds: float | None) -> None:
    error = failures.of_response(ENDPOINT, status=429, headers=headers, body=body or openai())
    assert (error.retry_after, error.after) == (seconds, seconds)


def test_amazons_header_says_what_its_body_does_not() -> None:
    error = answered(400, {"Message": "Rate exceeded"}, x_amzn_errortype="ThrottlingException:http://internal/")
    assert type(error) is RateLimited
    assert "Rate exceeded." in str(error)


@pytest.mark.parametrize(
    "body",
    [
        {"success": False, "message": "no such route"},
        {"code": "InvalidApiKey", "message": "no such key", "request_id": "r"},
        {"code": 1004, "msg": "no such key"},
    ],
)
def test_an_error_without_a_field_for_it_is_found_in_a_body_with_status_200(body: dict[str, Any]) -> None:
    assert failures.error_in(body) is body
    assert failures.error_in({**body, "success": True, "choices": [{}]}) is None


@pytest.mark.parametrize("name", ["llm_provider-x-request-id", "x-litellm-call-id", "x-generation-id", "cf-aig-log-id"])
def test_a_gateway_s_request_id_is_found(name: str) -> None:
    assert failures.of_response(ENDPOINT, status=500, headers={name: "req_7"}, body=openai()).request_id == "req_7"
