"""What a provider says of a reply as a whole: who answered, in which tier, why it was filtered, and logprobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.http import protocol_by_name
from everturn.records import Message, Reply

CHAT, RESPONSES, CLAUDE, GEMINI = "openai-chat:gpt-5.5", "openai:gpt-5.5", "anthropic:claude-5", "google:gemini-3-flash"


def read(model: str, body: dict[str, Any]) -> Reply:
    request = Request(model=Model(model), messages=[Message.user("?")])
    return protocol_by_name(row_of(request.model.provider).protocol).decode(body, request)


def streamed(model: str, *events: dict[str, Any]) -> Reply:
    request = Request(model=Model(model), messages=[Message.user("?")])
    assembler = protocol_by_name(row_of(request.model.provider).protocol).Assembler(request)
    for event in events:
        assembler.feed(Event(json.dumps(event)))
    if model == CHAT:
        assembler.feed(Event("[DONE]"))
    return assembler.finish()


def chat(**more: Any) -> Reply:
    choice = {"index": 0, "message": {"content": "Hi."}, "finish_reason": "stop", **more.pop("choice", {})}
    whole = read(CHAT, {"id": "r1", "choices": [choice], **more})
    beside = {name: value for name, value in choice.items() if name not in {"message", "finish_reason"}}
    first = {"id": "r1", "choices": [{**beside, "delta": {"content": "Hi."}}], **more}
    last = {"id": "r1", "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    assert streamed(CHAT, first, last) == whole
    return whole


def responses(**more: Any) -> Reply:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    response = {"id": "r1", "status": "completed", "output": [item], **more}
    whole = read(RESPONSES, response)
    assert streamed(RESPONSES, {"type": "response.completed", "response": response}) == whole
    return whole


def claude(content: list[dict[str, Any]] | None = None, usage: dict[str, Any] | None = None, **more: Any) -> Reply:
    blocks = [{"type": "text", "text": "Hi."}] if content is None else content
    start = {"id": "r1", "model": more.pop("model", "claude-5"), "usage": usage or {}}
    end = {"stop_reason": "end_turn", **more}
    whole = read(CLAUDE, {**start, **end, "content": blocks})
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**start, "content": []}}]
    events += [
        {"type": "content_block_start", "index": index, "content_block": block} for index, block in enumerate(blocks)
    ]
    assert streamed(CLAUDE, *events, {"type": "message_delta", "delta": end}, {"type": "message_stop"}) == whole
    return whole


def gemini(**more: Any) -> Reply:
    candidate = {"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP", **more.pop("candidate", {})}
    body = {"responseId": "r1", "candidates": [candidate], **more}
    whole = read(GEMINI, body)
    assert streamed(GEMINI, body) == whole
    return whole


@pytest.mark.parametrize(
    "reply",
    [
        chat(model="gpt-5.5-2026-04-23", service_tier="flex"),
        responses(model="gpt-5.5-2026-04-23", service_tier="flex"),
        claude(model="gpt-5.5-2026-04-23", usage={"service_tier": "flex", "input_tokens": 1}),
        gemini(modelVersion="gpt-5.5-2026-04-23", usageMetadata={"promptTokenCount": 1, "serviceTier": "flex"}),
    ],
    ids=["chat", "responses", "anthropic", "gemini"],
)
def test_who_answered_and_in_which_tier_has_one_name(reply: Reply) -> None:
    assert reply.details == {"model": "gpt-5.5-2026-04-23", "service_tier": "flex"}


@pytest.mark.parametrize(
    "reply",
    [chat(model="gpt-5.5"), responses(model="gpt-5.5", service_tier=None), claude(), gemini(modelVersion=GEMINI[7:])],
    ids=["chat", "responses", "anthropic", "gemini"],
)
def test_what_says_nothing_new_takes_no_byte_of_the_history(reply: Reply) -> None:
    assert "details" not in reply.model_dump()


def test_a_refusal_says_why() -> None:
    why = {"type": "refusal", "category": "bio", "explanation": "No."}
    reply = claude([], stop_reason="refusal", stop_details=why)
    assert (reply.stop, reply.details) == ("refused", {"stop_details": why})
    assert claude(stop_reason="stop_sequence", stop_sequence="END").details == {"stop_sequence": "END"}


def test_what_was_changed_in_the_request_is_said() -> None:
    """Thoughts that a provider kept from the model, and old results that it cleared."""
    dropped = [{"type": "reasoning", "id": "rs_1", "action": "removed", "reason": "prefix_mismatch"}] * 30
    assert responses(input_transformations=dropped).details == {"input_transformations": dropped[:20]}
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}]
    changes = {"input_transformations": dropped[:1], "context_management": {"applied_edits": edits}}
    events = [
        {"type": "message_start", "message": {"id": "m1", "content": [{"type": "text", "text": "Hi."}]}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **changes},
        {"type": "message_stop"},
    ]
    body = {"id": "m1", "content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn", **changes}
    for reply in (streamed(CLAUDE, *events), read(CLAUDE, body)):
        assert reply.details == {"input_transformations": dropped[:1], "applied_edits": edits}


def test_a_fallback_is_who_answered() -> None:
    took_over = {"type": "fallback", "from": {"model": "claude-5"}, "to": {"model": "claude-opus-4-8"}}
    assert claude([took_over, {"type": "text", "text": "Hi."}]).details == {"model": "claude-opus-4-8"}


def test_safety_ratings_say_what_was_filtered() -> None:
    ratings = [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": True}]
    reply = gemini(candidate={"finishReason": "SAFETY", "safetyRatings": ratings, "finishMessage": "Too rude."})
    assert (reply.stop, reply.details) == ("filtered", {"safetyRatings": ratings, "finishMessage": "Too rude."})
    feedback = {"blockReason": "SAFETY", "safetyRatings": ratings}
    blocked = read(GEMINI, {"promptFeedback": feedback})
    assert (blocked.stop, blocked.details) == ("filtered", {"promptFeedback": feedback})
    filters = {"hate": {"filtered": True, "severity": "high"}, "violence": {"filtered": False, "severity": "safe"}}
    azure = chat(choice={"finish_reason": "content_filter", "content_filter_results": filters})
    assert azure.details == {"content_filter_results": filters}
    clean = {"hate": {"filtered": False, "severity": "safe"}}
    assert chat(choice={"content_filter_results": clean}).details == {}


def test_why_a_response_is_incomplete_is_kept_where_stop_does_not_tell() -> None:
    assert responses(status="incomplete", incomplete_details={"reason": "max_messages"}).details == {
        "incomplete_details": {"reason": "max_messages"}
    }
    assert responses(status="incomplete", incomplete_details={"reason": "max_output_tokens"}).details == {}


def test_what_a_searching_model_read_is_said() -> None:
    """As of Perplexity: each chunk has all of it so far."""
    sources = {"citations": ["https://a.example"], "search_results": [{"title": "A", "url": "https://a.example"}]}
    assert chat(**sources).details == sources


def test_openrouter_names_the_provider_behind_it() -> None:
    assert chat(provider="Google AI Studio").details == {"provider": "Google AI Studio"}


def test_logprobs_come_together_from_their_pieces() -> None:
    one, two = {"token": "H", "logprob": -0.1}, {"token": "i", "logprob": -0.2}
    assert chat(choice={"logprobs": {"content": [one, two], "refusal": None}}).details == {
        "logprobs": {"content": [one, two]}
    }
    pieces = [
        {"choices": [{"index": 0, "delta": {"content": "H"}, "logprobs": {"content": [one]}}]},
        {"choices": [{"index": 0, "delta": {"content": "i"}, "logprobs": {"content": [two]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    assert streamed(CHAT, *pieces).details == {"logprobs": {"content": [one, two]}}

    def part(text: str, token: dict[str, Any], **more: Any) -> dict[str, Any]:
        found = {"topCandidates": [{"candidates": [token]}], "chosenCandidates": [token]}
        return {"candidates": [{"content": {"parts": [{"text": text}]}, "logprobsResult": found, **more}]}

    reply = streamed(GEMINI, part("H", one), part("i", two, finishReason="STOP", avgLogprobs=-0.15))
    assert reply.details == {
        "logprobsResult": {
            "topCandidates": [{"candidates": [one]}, {"candidates": [two]}],
            "chosenCandidates": [one, two],
        },
        "avgLogprobs": -0.15,
    }


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
HM = {"text": "Hm.", "thought": True}


@pytest.mark.parametrize(
    "reply",
    [
        read(CHAT, {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}),
        read(RESPONSES, {"status": "completed", "output": []}),
        read(RESPONSES, {"status": "completed", "output": [{"type": "reasoning", "summary": []}]}),
        read(CLAUDE, {"content": [], "stop_reason": "end_turn"}),
        read(
            CLAUDE, {"content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}], "stop_reason": "end_turn"}
        ),
        read(GEMINI, {"candidates": [{"content": {}, "finishReason": "STOP"}]}),
        read(
            GEMINI, {"candidates": [{"content": {"parts": [{"text": "Hm.", "thought": True}]}, "finishReason": "STOP"}]}
        ),
    ],
)
def test_an_empty_reply_means_the_same_with_all(reply: Reply) -> None:
    assert (reply.stop, reply.text, reply.is_empty) == ("end", "", True)


def test_what_is_cut_off_refused_or_paused_is_not_called_empty() -> None:
    assert not read(CLAUDE, {"content": [], "stop_reason": "refusal"}).is_empty
    assert not read(CLAUDE, {"content": [], "stop_reason": "max_tokens"}).is_empty
    assert not read(CLAUDE, {"content": [], "stop_reason": "pause_turn"}).is_empty


def test_a_thought_that_nothing_follows_does_not_go_back_to_anthropic() -> None:
    """It answers 400 to an assistant's message that ends with one."""
    empty = read(CLAUDE, {"content": [THOUGHT], "stop_reason": "end_turn"}).message
    said = [Message.user("?"), empty, Message.user("And?")]
    body = protocol_by_name("anthropic_messages").encode(Request(model=Model(CLAUDE), messages=said))[1]
    assert [message["role"] for message in body["messages"]] == ["user"]
