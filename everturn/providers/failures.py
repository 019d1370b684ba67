"""One table from a provider's answer, or its lack, to our errors: whether to ask again, when, and the cure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
from everturn.http.headers import read_header, read_number
from everturn.http.retry_after import seconds_to_wait
from everturn.providers import output_limits, refused_grammars
from everturn.providers.catalog import ModelEndpoint
from everturn.providers.json_values import a_dict, a_list, a_str, parse_json, write_json
from everturn.providers.rate_limits.rate_headers import limit_reset
from everturn.providers.rate_limits.waits_in_words import wait_in_words
from everturn.text.shortening import clipped
from everturn.text.utf8 import mend

if TYPE_CHECKING:
    import httpx

MAX_SENTENCE_CHARS = 500
MIN_SECRET_CHARS = 16
"""A shorter key is likely a dummy ("not-needed", "sk-local"): it is cut out as a whole word only."""
MIN_KEY_CHARS = 8
"""One shorter than this ("test", "EMPTY", "none") is no secret: cut out, it would make an error's words unreadable."""


class ErrorInReply(Exception):
    """An error object in place of a reply: in a stream, or with status 200. `body` is the object as received.

    Protocols raise it. The transport passes it to `of_response`, because it knows what must not be quoted.
    """

    def __init__(self, body: object) -> None:
        super().__init__("the provider sent an error instead of a reply")
        self.body = body


def error_in(body: dict[str, Any]) -> object | None:
    """The error in a body with status 200 or in a chunk of a stream, in any vendor's field; None if there is none.

    Sources: OpenAI and most others (`error`), Groq's last chunk (`x_groq`), OpenRouter (an error in the choice), older
    vLLM and Mistral (`object`), MiniMax (`base_resp`), Cloudflare (`errors`), Baidu (`error_code`), servers made with
    FastAPI (`detail`), DashScope and Chinese gateways (`code` beside `message` or `msg`), and Helicone (`success`).
    """
    if body.get("error"):
        return body
    if error := a_dict(body.get("x_groq")).get("error"):
        return {"error": error}
    for choice in a_list(body.get("choices")):
        for place in (choice, a_dict(choice).get("delta"), a_dict(choice).get("message")):
            if isinstance(place, dict) and place.get("error"):
                return {"error": place["error"]}
    is_named = body.get("object") == "error" or body.get("type") == "error" or a_list(body.get("errors"))
    status = a_dict(body.get("base_resp")).get("status_code")
    coded = body.get("code") and a_str(body.get("message") or body.get("msg"))
    bare = (body.get("error_code") or body.get("detail") or coded) and "choices" not in body
    if is_named or status or bare or body.get("success") is False:
        return body
    return None


@dataclass(frozen=True, slots=True)
class _ErrorBody:
    """What an error's body says."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    """Its type and codes, lower-case."""
    status: int | None = None
    """A status in the body itself: the only one if the error comes in the middle of a stream."""
    retry_after: float | None = None
    request_id: str | None = None


_QUOTA = frozenset(
    {
        "insufficient_quota",
        "exceeded_current_quota_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "arrearage",  # Alibaba's DashScope
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "quota_per_day",
        "billing_disabled",  # Google
        "allocationquota.freetieronly",  # DashScope
        "customer_verification_required",  # Vercel's gateway, of an account without a card
        "budget_exceeded",  # LiteLLM's own budgets
    }
)
_QUOTA_WORDS = re.compile(
    r"insufficient balance|credit balance is too low|used all available credits|spending (?:limit|cap)"
    r"|prepayment credits are depleted"  # Gemini, as are its caps: RESOURCE_EXHAUSTED without a violation
    r"|key limit exceeded \((?:daily|weekly|monthly|total)"  # OpenRouter, with 403
    r"|reached your specified api usage limits|out of call volume quota"  # the latter of Azure's API Management
    # OpenAI's words where a gateway leaves out its code. Google says the same of a minute, and then goes on.
    r"|[\"']insufficient_quota[\"']"
    r"|exceeded your current quota(?!.{0,2000}(?:rate-limits|quota exceeded for metric|retry in|retrydelay))",
    re.I | re.S,
)
_CONTEXT = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "request_too_large",
        "model_context_window_exceeded",
    }
)
_CONTEXT_WORDS = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum (?:context|prompt) length|prompt is too long|input is too long"
    r"|input token count|exceeded model token limit|request too large|reduce the length of the messages"
    r"|range of input length should be|prompt exceeds max length|too many tokens: "  # DashScope, Z.ai, Cohere
    r"|too large for model with|`inputs` tokens|truncation.{0,40}disabled",
    re.I,
)
_NO_MODEL = frozenset({"model_not_found", "model_not_supported", "invalid_model", "not_found_error", "model_not_exist"})
_NO_MODEL_WORDS = re.compile(
    r"not a valid model|invalid model(?: name passed|:)|unknown model|model (?:not exist|not found)"
    r"|model .{0,100}does not exist|supported (?:api )?model names are",  # DeepSeek and xAI say it in words alone
    re.I,
)
_BAD_KEY = frozenset(
    {
        *("invalid_api_key", "api_key_invalid", "authentication_error", "permission_error", "permission_denied"),
        *("expiredtokenexception", "unrecognizedclientexception"),  # AWS, with 400
        "no_db_connection",  # LiteLLM without a database, of a key that is not its own: 400 "No connected db."
    }
)
_NOT_THE_KEY = frozenset({"flagged_input", "unsupported_country_region_territory"})
"""With 403: OpenRouter's moderation, and OpenAI's list of countries."""
_THROTTLED = frozenset({"throttlingexception", "throttledexception"})
"""AWS, with 400."""
_BAD_KEY_WORDS = re.compile(r"(?:incorrect|invalid) api key|api key not valid", re.I)
_NEVER_WORDS = re.compile(
    # llama.cpp (500), vLLM, SGLang, Ollama: what the model or its template can't read at all
    r"(?:image|audio|video|vision|multimodal|file)s? inputs? (?:is|are) not supported"
    r"|(?:image|audio|video|vision|multimodal|(?:tool|function)s?(?: use| calling)?)s? (?:is|are) not supported"
    r"|at most 0 (?:image|audio|video)|unsupported content(?:\[\]\.| )type|only supports? text|text-only"
    r"|(?:does not|doesn't|not) support(?: for)? (?:image|audio|video|vision|multimodal|tool|function|chat)"
    r"|is not a multimodal model|missing data required for image input|requires --jinja"
    # Chat templates of Mistral, Gemma and Llama, which llama.cpp and vLLM run
    r"|conversation roles must alternate|only user and assistant roles are supported|raise_exception"
    r"|failed to (?:parse|initialize) (?:the )?(?:grammar|samplers?)|unable to generate parser",
    re.I,
)
"""What servers say with a status of 500 that no retry can mend: the request would be refused again."""
_SLIP = frozenset({"tool_use_failed", "output_parse_failed", "json_validate_failed"})
_STATUS_OF = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "resource_exhausted": 429,
    "overloaded_error": 529,
    "api_error": 500,
    "timeout_error": 504,
    "request_too_large": 413,
    "model_context_window_exceeded": 413,
    "billing_error": 402,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "data_residency_mismatch": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
}
_STATUS_OF |= dict.fromkeys(
    (
        *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "invalid_image_mode"),
        *("image_too_large", "image_too_small", "image_parse_error", "image_content_policy_violation"),
        *("image_file_too_large", "image_file_not_found", "unsupported_image_media_type", "empty_image_file"),
        "failed_to_download_image",
    ),
    400,
)
_ITEM_WORDS = re.compile(r"items are not persisted when `?store|^item with id .{0,200} not found", re.I)
"""OpenAI's Responses, with 404: an item of the input names something that was never stored."""
_THOUGHTS = frozenset({"invalid_encrypted_content"})
_THOUGHTS_WORDS = re.compile(
    r"signature`? in `?thinking`? block|bound to a different conversation"  # Anthropic, 2026-08
    r"|thinking`? blocks in the latest assistant message cannot be modified"
    r"|encrypted content .{0,200}could not be (?:verified|decrypted)"  # OpenAI
    r"|(?:corrupted|invalid) thought.?signature|thought.?signature is not valid"  # Gemini
    r"|of type 'reasoning' was provided without its required",
    re.I,
)
"""What providers, and the gateways that quote them, say of a thought that they don't take back."""
_REQUEST_IDS = (
    *("x-request-id", "request-id", "apim-request-id", "mistral-correlation-id", "inference-id", "x-amzn-requestid"),
    # Gateways' own: OpenRouter's, LiteLLM's, Portkey's, Cloudflare's
    *("x-generation-id", "x-litellm-call-id", "x-portkey-trace-id", "cf-aig-log-id", "cf-ray"),
)


def of_response(
    endpoint: ModelEndpoint, *, status: int, headers: Mapping[str, str], body: bytes | object
) -> ProviderError:
    """The error for an answer that is not a reply.

    `headers` by lower-case names, or httpx's own. `body`: the bytes as received, or what ErrorInReply carries.
    """
    error_body = _read_error(body)
    if named := read_header(headers, "x-amzn-errortype"):  # `ThrottlingException:http://...`
        error_body = replace(error_body, codes=error_body.codes | {_plain_code(named)})
    if status < 300:
        status = error_body.status or next((_STATUS_OF[code] for code in error_body.codes if code in _STATUS_OF), 500)
    kind = _error_class(status, error_body)
    given_ids = (read_header(headers, name) for name in _REQUEST_IDS)
    request_id = next(filter(None, given_ids), error_body.request_id)
    if request_id:
        request_id = _quotable_line(request_id, endpoint)[:128]
    wait = seconds_to_wait(headers)
    if wait is None:
        wait = error_body.retry_after
    if wait is None and status == 429:
        wait = limit_reset(headers)
    if wait is None and kind in {RateLimited, Unavailable}:
        wait = wait_in_words(error_body.message)
    error = kind(
        _error_message(endpoint, status, error_body, request_id),
        cure=_cure_for(kind, endpoint, status),
        provider=endpoint.provider,
        status=status,
        retry_after=wait,
        request_id=request_id or None,
    )
    error.refuses_thoughts = 400 <= status < 429 and bool(
        error_body.codes & _THOUGHTS
        or _THOUGHTS_WORDS.search(error_body.message)
        or _ITEM_WORDS.search(error_body.message)
    )
    error.refuses_grammars = status in {400, 422} and bool(refused_grammars.WORDS.search(error_body.message))
    if 400 <= status < 500 and (limit := output_limits.named_in(error_body.message)):
        output_limits.remember_limit(endpoint.base_url, endpoint.model, limit)
        error.most_output_tokens = limit.most
    verdict = read_header(headers, "x-should-retry").strip().lower()
    if verdict in {"true", "false"} and kind not in {QuotaExhausted, ContextTooLong}:
        error.retry = verdict == "true"
    return error


def of_exception(endpoint: ModelEndpoint, error: httpx.HTTPError | httpx.InvalidURL) -> ProviderError:
    """The error for a request that got no answer, or only a part of one."""
    import httpx  # not at the top: also who reads a header's date imports this module

    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        what = "did not accept a connection in time"
    elif isinstance(error, httpx.TimeoutException):
        what = "stopped answering"
    elif isinstance(error, httpx.ConnectError):
        what = "can't be reached"
    else:
        what = "broke the connection"
    detail = type(error).__name__
    if text := _quotable_line(str(error), endpoint):
        detail += f": {text}"
    to_check = "the network"
    if endpoint.base_url_from:
        to_check += f", and {endpoint.base_url_from}"
    return ConnectionFailed(
        f"{endpoint.model}: {_quoted_address(endpoint)} {what} ({detail}).",
        cure=f"Check {to_check}.",
        provider=endpoint.provider,
    )


def not_the_protocol(
    endpoint: ModelEndpoint, what: str, *, status: int | None = None, body: bytes = b""
) -> InvalidReply:
    """The error for an answer that can't be read. `what` says why; the beginning of `body` is quoted."""
    if begins := _quotable_line(body[: 4 * MAX_SENTENCE_CHARS].decode("utf-8", "replace"), endpoint)[:100]:
        what += f"; it begins {begins!r}"
    given_by = endpoint.base_url_from or "the network"
    return InvalidReply(
        f"The reply of {endpoint.model!r} is unusable: {what}.",
        cure=f"If this goes on, check {given_by}: is {_quoted_address(endpoint)} the address of a model API?",
        provider=endpoint.provider,
        status=status,
    )


def _error_class(status: int, error_body: _ErrorBody) -> type[ProviderError]:
    refused = status in {400, 413, 422, 429, 500}
    if error_body.codes & _CONTEXT or (refused and _CONTEXT_WORDS.search(error_body.message)):
        return ContextTooLong
    if status == 402 or error_body.codes & _QUOTA or (status < 500 and _QUOTA_WORDS.search(error_body.message)):
        return QuotaExhausted
    if _ITEM_WORDS.search(error_body.message):
        return RequestRefused
    if error_body.codes & _SLIP:
        return InvalidReply  # Groq: the model's call or output did not fit the schema; asked again, it mostly does
    if status < 500 and error_body.codes & _THROTTLED:
        return RateLimited
    if status == 403 and error_body.codes & _NOT_THE_KEY:
        return RequestRefused
    if status < 500 and status != 429:
        if status == 404 or error_body.codes & _NO_MODEL or _NO_MODEL_WORDS.search(error_body.message):
            return ModelNotFound
        if status in {401, 403} or error_body.codes & _BAD_KEY or _BAD_KEY_WORDS.search(error_body.message):
            return KeyRefused
    if status == 429:
        return RateLimited
    if status >= 500 and _NEVER_WORDS.search(error_body.message):
        return RequestRefused
    if status in {408, 409, 425, 498, 499} or status >= 500:
        return Unavailable
    return RequestRefused


def _error_message(endpoint: ModelEndpoint, status: int, error_body: _ErrorBody, request_id: str | None) -> str:
    sentence = _quotable_line(error_body.message, endpoint) or "no explanation"
    if not sentence.endswith((".", "!", "?")):
        sentence += "."
    named = f" (request {request_id})" if request_id else ""
    return f"{endpoint.model} answered {status}{named}: {sentence}"


def _cure_for(kind: type[ProviderError], endpoint: ModelEndpoint, status: int) -> str:
    variable = endpoint.key_env or "its key"
    given_by = endpoint.base_url_from
    if kind is RequestRefused and status < 400:
        source = given_by or "a proxy on the way"
        return f"It answered with a redirect: check {source}. It was asked at {_quoted_address(endpoint)}."
    asked_at = f", and {given_by}: it was asked at {_quoted_address(endpoint)}" if given_by else ""
    return {
        KeyRefused: f"Check {variable} in the worker's environment, and whether the key may use this model.",
        ModelNotFound: f"Check the model's name, and whether the key may use it{asked_at}.",
        QuotaExhausted: f"Top up the account behind {variable}, or use another model; then resume.",
        ContextTooLong: "Shorten the transcript, or use a model with a longer context.",
        RequestRefused: "Change what the provider rejects: the same request will fail again.",
        RateLimited: "Wait, send fewer or smaller requests, or raise the account's limits.",
        Unavailable: "Try again later: only the provider can fix this.",
    }.get(kind, "")


def _read_error(body: object) -> _ErrorBody:
    """What the body says, in any shape that providers, gateways and proxies give to errors."""
    if isinstance(body, bytes):
        text = body[: 64 * 1024].decode("utf-8", "replace")
        try:
            value = parse_json(body)
        except ValueError:
            return _ErrorBody(_out_of_html(text))
    else:
        value = body
    outer = a_dict(value[0] if isinstance(value, list) and value else value)
    listed = (item for name in ("error", "errors") for item in map(a_dict, a_list(outer.get(name))))  # Cloudflare
    inner = a_dict(outer.get("error")) or next(listed, {}) or a_dict(outer.get("base_resp"))
    fields = inner or outer
    in_fields = (fields.get("message"), outer.get("error"), outer.get("message"), outer.get("detail"))
    places = (*in_fields, fields.get("status_msg"), outer.get("error_msg"), outer.get("msg"), outer.get("Message"))
    message = next(
        (_in_words(given) for given in places if given and not (given is outer.get("error") and inner)),
        _in_words(value) if value else "",
    )
    codes = _codes_within(message)
    if raw := a_dict(fields.get("metadata")).get("raw"):
        codes |= _codes_within(_in_words(raw))
        message = f"{message}: {_in_words(raw)}"  # OpenRouter: what the provider behind it said
    details, wait = _google_details(a_list(inner.get("details")))
    if wait is None:  # Cloudflare's own errors, as JSON (2026-03); Hugging Face, while a model is loaded
        waits = (place.get(name) for place in (inner, outer) for name in ("retry_after", "estimated_time"))
        wait = next((read_number(str(given)) for given in waits if isinstance(given, int | float)), None)
    if wait is None:  # OpenRouter: the headers of the provider behind it
        passed_on = a_dict(a_dict(fields.get("metadata")).get("headers"))
        given = {str(name).lower(): str(text) for name, text in passed_on.items()}
        wait = seconds_to_wait(given)
        if wait is None:
            wait = limit_reset(given)
    return _ErrorBody(
        message,
        _error_codes(outer, inner) | details | codes,
        _error_status(outer, inner),
        wait,
        a_str(outer.get("request_id")) or None,
    )


def _error_codes(outer: dict[str, Any], inner: dict[str, Any]) -> frozenset[str]:
    details = a_dict(inner.get("details"))
    given = [
        *(part.get(name) for part in (outer, inner) for name in ("type", "code", "status", "__type")),
        *(details.get("error_code"), outer.get("error")),
    ]
    if "flagged_input" in a_dict(inner.get("metadata")):
        given.append("flagged_input")
    return frozenset(_plain_code(code) for code in given if isinstance(code, str))


def _plain_code(given: str) -> str:
    """In lower case, without what AWS puts around it: `com.amazon.coral#ThrottlingException`, `...:http://internal`."""
    return given.rpartition("#")[2].partition(":")[0].strip().lower()


def _codes_within(text: str) -> frozenset[str]:
    """The codes of an error that a gateway quotes as JSON, somewhere in its own."""
    begins = text.find("{")
    if begins < 0:
        return frozenset()
    try:
        quoted = a_dict(parse_json(text[begins : text.rfind("}") + 1]))
    except ValueError:
        return frozenset()
    return _error_codes(quoted, a_dict(quoted.get("error")))


_STATUSES = ("status_code", "statusCode", "http_code", "code", "status")


def _error_status(outer: dict[str, Any], inner: dict[str, Any]) -> int | None:
    given = (part.get(name) for part in (inner, outer) for name in _STATUSES)
    # LiteLLM's are texts.
    numbers = (int(code) if isinstance(code, str) and code.isdecimal() and len(code) == 3 else code for code in given)
    return next((code for code in numbers if isinstance(code, int) and 400 <= code < 600), None)


def _google_details(details: list[Any]) -> tuple[frozenset[str], float | None]:
    """What Google's details say: codes, and seconds to wait ("34.4s"). A day's quota gets a code of its own: it does
    not come back after the wait that a RetryInfo asks for."""
    fields = [a_dict(detail) for detail in details]
    codes = {a_str(detail.get("reason")).lower() for detail in fields} - {""}
    violations = [a_dict(item) for detail in fields for item in a_list(detail.get("violations"))]
    if any("PerDay" in a_str(violation.get("quotaId")) for violation in violations):
        codes.add("quota_per_day")
    waits = (read_number(a_str(detail.get("retryDelay")).removesuffix("s")) for detail in fields)
    return frozenset(codes), next((wait for wait in waits if wait is not None), None)


def _in_words(value: object) -> str:
    if isinstance(value, str):
        return value
    first = a_dict(next(iter(a_list(value)), None))
    return a_str(first.get("msg")) or write_json(value).decode()


def _out_of_html(text: str) -> str:
    """A page's title, or the text itself if it is no page."""
    if "<html" not in text[:1024].lower() and not text.lstrip().lower().startswith("<!doctype"):
        return text
    title = re.search(r"<title[^>]{0,200}>(.{0,500}?)</title>", text, re.I | re.S)
    if title is None:
        return "an HTML page"
    return f"an HTML page, {' '.join(title.group(1).split())!r}"


def _quotable_line(text: str, endpoint: ModelEndpoint) -> str:
    """`text` on one line, without the key, and no longer than MAX_SENTENCE_CHARS."""
    if len(secret := endpoint.secret) >= MIN_SECRET_CHARS:
        text = text.replace(secret, "[key]")  # before it is cut, or half of the key might stay
    elif len(secret) >= MIN_KEY_CHARS:
        text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", "[key]", text)
    line = " ".join(
        "".join(char if char.isprintable() else " " for char in mend(text)[: 8 * MAX_SENTENCE_CHARS]).split()
    )
    return clipped(line, MAX_SENTENCE_CHARS)


def _quoted_address(endpoint: ModelEndpoint) -> str:
    return repr(_quotable_line(endpoint.address, endpoint))
