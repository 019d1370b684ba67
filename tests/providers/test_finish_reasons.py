"""Why a reply ended, by one table for all protocols; and calls that are not whole, on each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest

from everturn.errors import ContextTooLong, InvalidReply, ProviderError, RateLimited, RequestRefused, Unavailable
from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.providers import anthropic_messages, failures, gemini, openai_chat, openai_responses
from everturn.providers.base import Request, ToolSpec
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.finish_reasons import Ending, ending_of
from everturn.records import Message, Reply

USER = Message.user("?")
KEYS = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k", "OPENROUTER_API_KEY": "k"}
ARCHIVE = ToolSpec("archive", parameters={"type": "object", "properties": {"days": {"type": "integer", "default": 0}}})
NOTHING_TO_SAY = ToolSpec("ping", parameters={"type": "object", "properties": {}, "additionalProperties": False})


def asked(model: str, **options: Any) -> Request:
    return Request(model=Model(model, base_url=options.pop("base_url", None)), messages=(USER,), **options)


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("stop", "end"),
        ("STOP", "end"),
        ("FinishReason.STOP", "end"),
        ("FINISH_REASON_STOP", "end"),
        ("endTurn", "end"),
        ("tool-calls", "end"),  # the AI SDK's spelling
        ("eos_token", "end"),  # TGI
        ("COMPLETE", "end"),  # Cohere
        ("normal", "end"),  # Baidu's Qianfan
        ("MAX_TOKENS", "length"),
        ("FinishReason.MAX_TOKENS", "length"),
        ("REASON_MAX_LEN", "length"),  # xAI
        ("max_output_tokens", "length"),
        ("model_length", "length"),  # Mistral
        ("repetition", "length"),  # vLLM
        ("SAFETY", "filtered"),
        ("content-filter", "filtered"),
        ("content_filter: PROHIBITED_CONTENT", "filtered"),  # Gemini's compatible endpoint
        ("guardrail_intervened", "filtered"),  # Bedrock
        ("sensitive", "filtered"),  # Zhipu
        ("refusal", "refused"),
        ("pause_turn", "paused"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "slip"),  # Gemini's compatible endpoint
        ("malformed_tool_use", "slip"),  # Bedrock
        ("model_context_window_exceeded", "window"),
        ("ERROR_LIMIT", "window"),  # Cohere
        ("REASON_MAX_CONTEXT", "window"),  # xAI
        ("overloaded_error", "broken"),
        ("api_error", "broken"),
        ("network_error", "broken"),  # Zhipu
        ("abort", "broken"),  # vLLM, SGLang
        ("insufficient_system_resource", "broken"),  # DeepSeek
        ("USER_CANCEL", "broken"),  # Cohere
        ("something_new", "unknown"),
        ("FINISH_REASON_UNSPECIFIED", "unknown"),
    ],
)
def test_a_reason_means_the_same_in_every_spelling(reason: str, ending: Ending) -> None:
    assert ending_of(reason) == ending


def test_every_reason_of_the_vendors_sdks_is_in_the_table() -> None:
    from anthropic.types.beta import BetaStopReason
    from google.genai.types import FinishReason
    from openai.types.chat.chat_completion import Choice

    reasons = {*get_args(BetaStopReason), *get_args(Choice.model_fields["finish_reason"].annotation)}
    reasons |= {reason.value for reason in FinishReason} - {"FINISH_REASON_UNSPECIFIED"}
    assert [reason for reason in sorted(reasons) if ending_of(reason) == "unknown"] == []


# ---------------------------------------------------------------- the four protocols


def chat(reason: str | None, content: Any = "Half a sen", **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content} if isinstance(content, str) else content
    return {"id": "r1", "choices": [{"index": 0, "message": message, "finish_reason": reason, **choice}]}


def responses(reason: str | None) -> dict[str, Any]:
    output = [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Half", "annotations": []}]}]
    return {"id": "r1", "status": "incomplete", "incomplete_details": {"reason": reason}, "output": output}


def messages(reason: str | None) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "text", "text": "Half"}], "stop_reason": reason}


def generated(reason: str | None) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"text": "Half"}]}, "finishReason": reason}]}


PROTOCOLS: list[tuple[str, Any, Callable[..., dict[str, Any]]]] = [
    ("openai-chat:m", openai_chat, chat),
    ("openai:gpt-6", openai_responses, responses),
    ("anthropic:claude-opus-5-5", anthropic_messages, messages),
    ("google:gemini-3-flash", gemini, generated),
]


def error_of(model: str, protocol: Any, body: Any) -> ProviderError:
    """What the transport makes of the body."""
    endpoint = resolve_endpoint(Model(model), environ=KEYS)
    try:
        protocol.decode(body, asked(model))
    except failures.ErrorInReply as error:
        return failures.of_response(endpoint, status=200, headers={}, body=error.body)
    except InvalidReply as error:
        return error
    raise AssertionError("it counts as a reply")


@pytest.mark.parametrize(("model", "protocol", "body"), PROTOCOLS)
@pytest.mark.parametrize(
    ("reason", "kind", "retry"),
    [
        ("overloaded_error", Unavailable, True),
        ("rate_limit_error", RateLimited, True),
        ("invalid_request_error", RequestRefused, False),
        ("error", Unavailable, True),
        ("MALFORMED_FUNCTION_CALL", InvalidReply, True),
        ("model_context_window_exceeded", ContextTooLong, False),
    ],
)
def test_a_reply_that_broke_off_is_no_reply(
    model: str, protocol: Any, body: Callable[..., dict[str, Any]], reason: str, kind: type, retry: bool
) -> None:
    error = error_of(model, protocol, body(reason))
    assert (type(error), error.retry) == (kind, retry)


@pytest.mark.parametrize(("model", "protocol", "body"), [row for row in PROTOCOLS if row[1] is not openai_responses])
def test_a_reason_that_nobody_knows_is_no_success(
    model: str, protocol: Any, body: Callable[..., dict[str, Any]]
) -> None:
    error = error_of(model, protocol, body("something_new"))
    assert isinstance(error, InvalidReply)
    assert "something_new" in str(error)


def test_a_reason_that_is_a_number_is_no_success() -> None:
    """As of servers that print protobuf's enums, where 2 was MAX_TOKENS."""
    body = chat("stop") | {"choices": [chat("stop")["choices"][0] | {"finish_reason": 2}]}
    assert isinstance(error_of("openai-chat:m", openai_chat, body), InvalidReply)


def test_an_incomplete_response_is_cut_short_whatever_the_reason_is_called() -> None:
    reply = openai_responses.decode(responses("something_new"), asked("openai:gpt-6"))
    assert (reply.stop, reply.details["incomplete_details"]) == ("length", {"reason": "something_new"})


def test_a_completed_response_that_is_as_long_as_it_may_be_was_cut_short() -> None:
    """llama.cpp's server (build 11549) says `completed` at the limit."""
    body = responses(None) | {"status": "completed", "incomplete_details": None, "usage": {"output_tokens": 8}}
    for most, stop in ((8, "length"), (9, "end"), (None, "end")):
        request = asked("openresponses:m", settings=ModelSettings(max_output_tokens=most))
        assert openai_responses.decode(body, request).stop == stop


@pytest.mark.parametrize("candidate", [{}, {"finishReason": None}, {"finishReason": ""}])
def test_a_whole_body_of_gemini_that_has_no_reason_has_not_ended(candidate: dict[str, Any]) -> None:
    body = {"candidates": [{"content": {"parts": [{"text": "Half a sen"}]}, **candidate}]}
    assert "why it stopped" in str(error_of("google:gemini-4", gemini, body))


def test_a_status_that_nobody_knows_is_no_success() -> None:
    body = responses(None) | {"status": "requires_something"}
    assert "requires_something" in str(error_of("openai:gpt-6", openai_responses, body))


@pytest.mark.parametrize(
    "choice",
    [
        {"native_finish_reason": "MALFORMED_FUNCTION_CALL"},  # OpenRouter
        {"provider_specific_fields": {"native_finish_reason": "MALFORMED_FUNCTION_CALL"}},  # LiteLLM
    ],
)
def test_the_provider_s_own_reason_beside_the_common_one_counts(choice: dict[str, Any]) -> None:
    assert isinstance(error_of("openrouter:m", openai_chat, chat("stop", **choice)), InvalidReply)


@pytest.mark.parametrize("native", ["STOP", "end_turn", "completed", "something_of_its_own", "", None])
def test_a_provider_s_own_word_for_the_end_changes_nothing(native: str | None) -> None:
    reply = openai_chat.decode(chat("stop", native_finish_reason=native), asked("openrouter:m"))
    assert (reply.stop, reply.text) == ("end", "Half a sen")


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        (
            {"x_groq": {"id": "req_1", "error": "over capacity"}, "choices": [{"delta": {}, "finish_reason": "stop"}]},
            "over",
        ),
        ({"choices": [{"delta": {}, "error": {"code": 502, "message": "idle"}, "finish_reason": "stop"}]}, "idle"),
        ({"choices": [{"delta": {"error": {"message": "in the delta"}}}]}, "in the delta"),
        ({"object": "error", "message": "engine died", "code": 500}, "engine died"),  # older vLLM, Mistral
        ({"base_resp": {"status_code": 1002, "status_msg": "too fast"}, "choices": None}, "too fast"),  # MiniMax
        ({"success": False, "errors": [{"code": 7009, "message": "upstream gone"}]}, "upstream gone"),  # Cloudflare
        ({"error_code": 18, "error_msg": "qps limit"}, "qps limit"),  # Baidu
        ({"detail": "worker died"}, "worker died"),  # FastAPI
    ],
)
def test_an_error_in_any_vendor_s_field_of_a_stream_is_raised_with_its_words(chunk: dict[str, Any], words: str) -> None:
    assembler = openai_chat.Assembler(asked("openai-chat:m"))
    assembler.feed(Event(json.dumps({"choices": [{"index": 0, "delta": {"content": "Half"}}]})))
    with pytest.raises(failures.ErrorInReply) as caught:
        assembler.feed(Event(json.dumps(chunk)))
    error = failures.of_response(
        resolve_endpoint(Model("openai-chat:m"), environ=KEYS), status=200, headers={}, body=caught.value.body
    )
    assert words in str(error)


def test_a_success_in_minimax_s_words_is_none() -> None:
    body = chat("stop") | {"base_resp": {"status_code": 0, "status_msg": ""}}
    assert openai_chat.decode(body, asked("openai-chat:m")).text == "Half a sen"


# ---------------------------------------------------------------- calls that are not whole


def bare_chat(finish: str | None, *, tool: str = "archive", stop: bool = True, **choice: Any) -> Reply:
    """A call without arguments, in a Chat reply of a server that was given a stop text."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": tool}}
    settings = ModelSettings(stop=["arguments"] if stop else [])
    request = asked("vllm:m", tools=[ARCHIVE, NOTHING_TO_SAY], settings=settings)
    assembler = openai_chat.Assembler(request)
    assembler.feed(Event(json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})))
    assembler.feed(Event(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish, **choice}]})))
    assembler.feed(Event("[DONE]"))
    return assembler.finish()


@pytest.mark.parametrize(
    ("reply", "whole"),
    [
        (lambda: bare_chat("tool_calls", stop_reason="arguments"), False),  # vLLM
        (lambda: bare_chat("tool_calls", matched_stop="arguments"), False),  # SGLang
        (lambda: bare_chat("tool_calls", native_finish_reason="stop_sequence"), False),  # OpenRouter before Claude
        (lambda: bare_chat("stop_sequence"), False),  # TGI
        (lambda: bare_chat("tool_calls"), False),  # llama.cpp: it does not say
        (lambda: bare_chat(None), False),  # a server that was stopped
        (lambda: bare_chat(None, stop=False), False),
        (lambda: bare_chat("length"), False),
        (lambda: bare_chat("content_filter"), False),
        (lambda: bare_chat("tool_calls", stop_reason=None), True),
        (lambda: bare_chat("tool_calls", stop_reason=128009), True),  # a token that ends a turn
        (lambda: bare_chat("tool_calls", matched_stop=151645), True),
        (lambda: bare_chat("tool_calls", stop=False), True),
        (lambda: bare_chat("tool_calls", tool="ping"), True),  # it takes no arguments
        (lambda: bare_chat("tool_calls", stop=False, stop_reason="end_turn"), True),  # Claude's word, by a gateway
    ],
)
def test_a_call_without_arguments_is_whole_only_if_nothing_cut_it_off(reply: Callable[[], Reply], whole: bool) -> None:
    (call,) = reply().tool_calls
    assert (call.unparsed is None) is whole
    assert call.arguments == {}


def test_an_unfinished_item_without_arguments_is_not_whole() -> None:
    item = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "archive", "arguments": ""}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    completed = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
    assembler = openai_responses.Assembler(asked("openresponses:m", tools=[ARCHIVE]))
    for event in (added, completed):
        assembler.feed(Event(json.dumps(event)))
    assert assembler.finish().tool_calls[0].unparsed == ""
    body = {"id": "r", "status": "completed", "output": [item | {"status": "in_progress"}]}
    assert openai_responses.decode(body, asked("openresponses:m", tools=[ARCHIVE])).tool_calls[0].unparsed == ""
    body["output"] = [item | {"status": "completed"}]
    assert openai_responses.decode(body, asked("openresponses:m", tools=[ARCHIVE])).tool_calls[0].unparsed is None


@pytest.mark.parametrize(
    ("reason", "stopped", "over", "options", "whole"),
    [
        ("tool_use", True, True, {}, True),
        ("tool_use", True, False, {}, False),  # the block's end never came
        ("stop_sequence", True, True, {"settings": ModelSettings(stop=["x"])}, False),
        ("tool_use", True, True, {"settings": ModelSettings(stop=["x"])}, True),  # Claude would say so
        ("tool_use", True, True, {"settings": ModelSettings(stop=["x"]), "base_url": "http://vllm"}, False),
        ("max_tokens", True, True, {}, False),
    ],
)
def test_a_block_without_input_is_whole_only_if_nothing_cut_it_off(
    reason: str, stopped: bool, over: bool, options: dict[str, Any], whole: bool
) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "archive", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *([{"type": "content_block_stop", "index": 0}] if over else []),
        {"type": "message_delta", "delta": {"stop_reason": reason}},
        {"type": "message_stop"},
    ]
    assembler = anthropic_messages.Assembler(asked("anthropic:m", tools=[ARCHIVE], **options))
    for event in events:
        assembler.feed(Event(json.dumps(event)))
    assert (assembler.finish().tool_calls[0].unparsed is None) is whole


@pytest.mark.parametrize(("reason", "whole"), [("STOP", True), ("MAX_TOKENS", False), ("SAFETY", False)])
def test_a_function_call_without_args_is_whole_only_if_nothing_cut_it_off(reason: str, whole: bool) -> None:
    body = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "archive"}}]}, "finishReason": reason}]}
    assert (gemini.decode(body, asked("google:gemini-3-flash")).tool_calls[0].unparsed is None) is whole
