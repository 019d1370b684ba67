"""What is counted of a reply, so that limits, budgets and costs are right: every token that is paid, and once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn import prices
from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.prices import cost_of_reply, cost_usd
from everturn.providers import Request, anthropic_messages, gemini, openai_chat, openai_responses
from everturn.providers.catalog import row_of
from everturn.records import Message, Reply, Usage


def request(model: str) -> Request:
    return Request(model=Model(model), messages=[Message.user("?")], settings=ModelSettings(stream=False))


def chat(usage: dict[str, Any]) -> Usage:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    return openai_chat.decode({"id": "c", "choices": [choice], "usage": usage}, request("openai-chat:m")).usage


def claude(usage: dict[str, Any], model: str = "claude-sonnet-5-5") -> Reply:
    content = [{"type": "text", "text": "Hi."}]
    body = {"id": "m", "type": "message", "content": content, "stop_reason": "end_turn", "usage": usage}
    return anthropic_messages.decode(body, request(f"anthropic:{model}"))


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        # To be counted: input, output, read from the cache, written to it.
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}, (9, 2, 0, 0)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 18}, (9, 9, 0, 0)),  # reasoning is left out
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 16,
                "prompt_tokens_details": {"cached_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            (9, 7, 5, 0),  # of two that fit, the one that is always left out somewhere
        ),
        (
            {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 60_018, "cache_read_input_tokens": 50_000}
            | {"cache_creation_input_tokens": 10_000},
            (60_011, 7, 50_000, 10_000),
        ),
        (
            {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 60_023, "cache_read_input_tokens": 50_000}
            | {"cache_creation_input_tokens": 10_000, "completion_tokens_details": {"reasoning_tokens": 5}},
            (60_011, 12, 50_000, 10_000),
        ),
        (
            {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "cache_read_input_tokens": 500},
            (511, 7, 500, 0),  # nor does the total have them
        ),
        ({"prompt_tokens": 11, "completion_tokens": 7, "cache_read_input_tokens": 500}, (511, 7, 500, 0)),
        (
            {"prompt_tokens": 600, "completion_tokens": 7, "total_tokens": 607}
            | {"prompt_tokens_details": {"cached_tokens": 500, "created_cache_tokens": 90}},
            (600, 7, 500, 90),
        ),
        ({"prompt_tokens": 600, "completion_tokens": 7, "created_cache_tokens": 90}, (600, 7, 0, 90)),
        ({"prompt_tokens": 600, "completion_tokens": 7, "prompt_cache_hit_tokens": 500}, (600, 7, 500, 0)),
        ({"input_tokens": 600, "output_tokens": 7, "total_tokens": 607}, (600, 7, 0, 0)),  # names of another protocol
        ({"input_tokens": 11, "output_tokens": 7, "cache_read_input_tokens": 500}, (511, 7, 500, 0)),
    ],
)
def test_each_token_of_a_gateway_is_counted_once(usage: dict[str, Any], read: tuple[int, ...]) -> None:
    found = chat(usage)
    assert (found.input_tokens, found.output_tokens, found.cached_tokens, found.cache_write_tokens) == read
    words = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    words |= {f"{old}_details": f"{new}_details" for old, new in words.items()}
    same = {words.get(name, name): value for name, value in usage.items()}
    body = {"id": "r", "status": "completed", "output": [], "usage": same}
    reply = openai_responses.decode(body, request("openai:m"))
    assert reply.usage == found


def iteration(kind: str, read: int, wrote: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "input_tokens": read, "output_tokens": wrote, **more}


@pytest.mark.parametrize(
    ("iterations", "tokens", "others"),
    [
        ([iteration("message", 100, 10)], (100, 10), []),
        ([iteration("message", 100, 10), iteration("compaction", 5, 2)], (105, 12), []),
        (
            [iteration("message", 100, 10), iteration("advisor_message", 50, 20, model="claude-opus-5-5")],
            (150, 30),
            [("claude-opus-5-5", 50, 20)],
        ),
        (
            [iteration("message", 60, 4), iteration("fallback_message", 40, 6, model="claude-haiku-5-5")],
            (100, 10),
            [("claude-haiku-5-5", 40, 6)],
        ),
        ([iteration("fallback_message", 7, 7, model="claude-haiku-5-5")], (100, 10), []),  # it does not add up
        ([iteration("message", 100, 10, model="claude-sonnet-5-5-20261001")], (100, 10), []),
    ],
)
def test_what_an_advisor_a_summary_and_a_fallback_used(
    iterations: list[Any], tokens: tuple[int, int], others: list[Any]
) -> None:
    reply = claude({"input_tokens": 100, "output_tokens": 10, "iterations": iterations})
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == tokens
    told = [(part.model, part.usage.input_tokens, part.usage.output_tokens) for part in reply.by_others]
    assert told == others


def test_an_advisor_is_paid_at_its_own_price() -> None:
    asked = {"input_tokens": 1_000, "output_tokens": 100}
    advised = claude(asked | {"iterations": [iteration("advisor_message", 1_000, 100, model="claude-opus-5-5")]})
    cost = prices.cost_of_reply(Model("anthropic:claude-sonnet-5-5"), advised)
    used = Usage(**asked)
    both = [prices.cost_usd(Model(f"anthropic:claude-{name}"), used) for name in ("sonnet-5-5", "opus-5-5")]
    assert cost == pytest.approx(sum(one or 0 for one in both))
    assert both[0] != both[1]


@pytest.mark.parametrize(
    ("model", "details", "times"),
    [
        ("openai:gpt-5.5", {"service_tier": "default"}, 1),
        ("openai:gpt-5.5", {"service_tier": "flex"}, 0.5),
        ("openai:gpt-5.5", {"service_tier": "priority"}, 2.5),
        ("openai:gpt-5.5", {"service_tier": "batch"}, 0.5),
        ("openai-chat:gpt-5.5", {"service_tier": "flex"}, 0.5),
        ("anthropic:claude-opus-5-5", {"service_tier": "standard"}, 1),
        ("anthropic:claude-opus-5-5", {"service_tier": "batch"}, 0.5),
        ("anthropic:claude-opus-5-5", {"speed": "fast"}, 2),
        ("anthropic:claude-opus-5-5", {"inference_geo": "us"}, 1.1),
        ("google:gemini-3.8-flash", {"service_tier": "flex"}, 0.5),
        ("google:gemini-3.8-flash", {"service_tier": "ON_DEMAND_FLEX"}, 0.5),
        ("google:gemini-3.8-flash", {"service_tier": "priority"}, 1.8),
        ("google:gemini-3.8-flash", {"service_tier": "ON_DEMAND"}, 1),
        ("groq:openai/gpt-oss-120b", {"service_tier": "flex"}, 1),
    ],
)
def test_a_tier_has_its_price(model: str, details: dict[str, Any], times: float) -> None:
    used = Usage(input_tokens=1_000, output_tokens=100)
    base = prices.cost_usd(Model(model), used)
    assert base is not None
    assert prices.cost_usd(Model(model), used, details=details) == pytest.approx(base * times)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        # Claude Opus 4.8, for a million tokens: 5 dollars in, 25 out; 6.25 to write to the cache, 10 for an hour.
        ({"input_tokens": 1_000, "output_tokens": 100}, 0.0075),
        ({"input_tokens": 1_000, "output_tokens": 100, "cache_creation_input_tokens": 100_000}, 0.6325),
        (
            {
                "input_tokens": 1_000,
                "output_tokens": 100,
                "cache_creation_input_tokens": 100_000,
                "cache_creation": {"ephemeral_5m_input_tokens": 40_000, "ephemeral_1h_input_tokens": 60_000},
            },
            0.8575,
        ),
        ({"input_tokens": 1_000, "output_tokens": 100, "server_tool_use": {"web_search_requests": 2}}, 0.0275),
    ],
)
def test_what_is_written_for_an_hour_and_searches_have_their_prices(usage: dict[str, Any], dollars: float) -> None:
    reply = claude(usage, "claude-opus-4-8")
    assert prices.cost_of_reply(Model("anthropic:claude-opus-4-8"), reply) == pytest.approx(dollars)


def test_sound_has_its_price_where_the_list_has_one() -> None:
    usage = {"promptTokenCount": 1_000, "candidatesTokenCount": 100}
    usage |= {
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 500}, {"modality": "AUDIO", "tokenCount": 500}]
    }  # type: ignore[dict-item]
    candidate = {"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}
    reply = gemini.decode({"candidates": [candidate], "usageMetadata": usage}, request("google:gemini-2.5-flash"))
    assert reply.usage.input_audio_tokens == 500
    assert prices.cost_of_reply(Model("google:gemini-2.5-flash"), reply) == pytest.approx(0.0009)
    assert prices.cost_usd(Model("openai:gpt-5.5"), reply.usage) == prices.cost_usd(
        Model("openai:gpt-5.5"), Usage(input_tokens=1_000, output_tokens=100)
    )
    usage |= {"cachedContentTokenCount": 600, "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 400}]}  # type: ignore[dict-item]
    reply = gemini.decode({"candidates": [candidate], "usageMetadata": usage}, request("google:gemini-2.5-flash"))
    cached = 200 * 0.03e-6 + 400 * 0.1e-6
    assert prices.cost_of_reply(Model("google:gemini-2.5-flash"), reply) == pytest.approx(
        300 * 0.3e-6 + 100 * 1e-6 + cached + 100 * 2.5e-6
    )


def test_a_reply_that_was_cut_short_is_counted_in_the_tier_that_was_asked_for() -> None:
    assert prices.asked_tier(ModelSettings(extra={"service_tier": "flex", "store": True})) == {"service_tier": "flex"}


RESPONSES = [
    ({"cost_in_usd_ticks": 1399000}, "xai:grok-3-mini", 1.399e-4),
    ({"cost_in_usd_ticks": 0}, "xai:grok-3-mini", None),
    ({"cost": 0.0031}, "openrouter:openai/gpt-6", 0.0031),
    ({"cost": 0}, "openrouter:openai/gpt-oss-20b:free", 0.0),
    ({"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}}, "openrouter:m", 0.021),
    ({"cost": 0.001, "is_byok": True}, "openrouter:m", None),
    ({"cost": 0.001, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}, "openrouter:m", 0.001),
    ({"cost": "0.1"}, "openrouter:m", None),
    ({"cost": True}, "openrouter:m", None),
    ({"cost": -1}, "openrouter:m", None),
    ({"cost": {"total": 0.1}}, "openrouter:m", None),
    ({"cost": 0.5, "cost_in_usd_ticks": 5}, "openai-chat:gpt-6", None),  # whatever another server means by it
]


@pytest.mark.parametrize(("extra", "model", "cost"), RESPONSES)
def test_what_the_provider_says_that_a_reply_cost_is_what_it_cost(
    extra: dict[str, Any], model: str, cost: float | None
) -> None:
    request = Request(Model(model), [Message.user("?")])
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "input_tokens": 1000, "output_tokens": 10, **extra}
    choice = {"index": 0, "finish_reason": "stop"}
    if row_of(request.model.provider).protocol == "openai_responses":
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
        response = {"id": "r", "status": "completed", "output": [item], "usage": usage}
        whole = openai_responses.decode(response, request)
        stream: list[Any] = [{"type": "response.completed", "response": response}]
        assembler: Any = openai_responses.Assembler(request)
    else:
        message = {"role": "assistant", "content": "a"}
        whole = openai_chat.decode({"id": "r", "choices": [{**choice, "message": message}], "usage": usage}, request)
        stream = [{"id": "r", "choices": [{**choice, "delta": message}]}, {"id": "r", "choices": [], "usage": usage}]
        assembler = openai_chat.Assembler(request)
    for event in stream:
        assembler.feed(Event(json.dumps(event)))
    streamed = assembler.finish()
    assert whole.cost_usd == streamed.cost_usd == (None if cost is None else pytest.approx(cost))
    if cost is not None:
        assert cost_of_reply(request.model, whole) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("model", "queries", "searches"),
    [
        ("gemini-3.5-flash", ["a", "b", "a", ""], 2),
        ("gemini-4-argon", ["a"], 1),
        ("gemini-2.5-pro", ["a", "b"], 1),
        ("gemini-2.5-pro", [], 0),
        ("gemini-flash-latest", ["a", "b"], 2),
    ],
)
def test_searches_of_gemini_are_counted_as_they_are_paid(model: str, queries: list[str], searches: int) -> None:
    candidate = {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}
    candidate["groundingMetadata"] = {"webSearchQueries": queries, "groundingChunks": []}
    request = Request(Model(f"google:{model}"), [Message.user("?")])
    usage = {"promptTokenCount": 1000, "candidatesTokenCount": 10}
    reply = gemini.decode({"candidates": [candidate], "usageMetadata": usage}, request)
    assert reply.usage.web_searches == searches
    if searches and model in {"gemini-3.5-flash", "gemini-2.5-pro"}:
        without = cost_usd(request.model, Usage(input_tokens=1000, output_tokens=10))
        assert without is not None
        assert (cost_of_reply(request.model, reply) or 0) - without == pytest.approx(
            searches * (0.035 if model == "gemini-2.5-pro" else 0.014)
        )


@pytest.mark.parametrize(
    ("model", "actions", "searches"),
    [
        ("openai:gpt-5.5", [{"type": "search", "query": "a"}, {"type": "open_page", "url": "u"}, None], 2),
        ("openai:gpt-5.5", [{"type": "find_in_page", "pattern": "p"}], 0),
        ("xai:grok-4.5", [{"type": "search", "query": "a"}], 0),  # it says what it all cost
        ("ollama:qwen3", [{"type": "search", "query": "a"}], 0),
    ],
)
def test_searches_of_openai_are_counted_and_pages_are_not(model: str, actions: list[Any], searches: int) -> None:
    items: list[Any] = [
        {"type": "web_search_call", "id": f"ws_{place}", "status": "completed", "action": action}
        for place, action in enumerate(actions)
    ]
    items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]})
    request = Request(Model(model), [Message.user("?")])
    usage = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}
    reply = openai_responses.decode({"id": "r", "status": "completed", "output": items, "usage": usage}, request)
    assert reply.usage.web_searches == searches
    if searches:
        without = cost_usd(request.model, Usage(input_tokens=1000, output_tokens=10))
        assert without is not None
        assert (cost_of_reply(request.model, reply) or 0) - without == pytest.approx(searches * 0.01)


IMAGE_TOOL = {"type": "image_generation", "model": "gpt-image-1.5"}


def test_what_openais_own_tools_used_is_counted_as_its_response_says() -> None:
    """Searches without a charge are none, and pictures are paid by the tokens of the model that made them."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    drawing = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30, "model": "gpt-5.5", "reasoning_tokens": 5}
    picture = {"type": "image_generation_call", "id": "ig_1", "result": "aGk=", "svg_usage": drawing}
    pictures = {"input_tokens": 1000, "output_tokens": 4000, "total_tokens": 5000}
    pictures |= {"output_tokens_details": {"image_tokens": 4000, "text_tokens": 0}}
    body = {
        "id": "r",
        "status": "completed",
        "output": [search, picture],
        "usage": {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110},
        "tools": [IMAGE_TOOL],
        "tool_usage": {"image_gen": pictures, "web_search": {"num_requests": 0}},
    }
    whole = openai_responses.decode(body, request("openai:gpt-5.5"))
    assembler = openai_responses.Assembler(request("openai:gpt-5.5"))
    assembler.feed(Event(json.dumps({"type": "response.completed", "response": body})))
    assert assembler.finish() == whole
    made = Usage(input_tokens=1000, output_tokens=4000, output_image_tokens=4000)
    drawn = Usage(input_tokens=10, output_tokens=20, reasoning_tokens=5)
    own = Usage(input_tokens=100, output_tokens=10)
    assert whole.usage == own + made + drawn
    costs = [
        cost_usd(Model(f"openai:{name}"), used) for name, used in (("gpt-5.5", own + drawn), ("gpt-image-1.5", made))
    ]
    assert cost_of_reply(Model("openai:gpt-5.5"), whole) == pytest.approx(sum(filter(None, costs)))
    assert costs[1] == pytest.approx(0.005 + 4000 * 32e-6)
    unnamed = openai_responses.decode({**body, "tools": []}, request("openai:gpt-5.5"))
    assert [part.model for part in unnamed.by_others] == ["gpt-image-2.6-sunburst", "gpt-5.5"]
    # The list has no price of it; without one, no limit in US dollars would hold any more.
    assert cost_of_reply(Model("openai:gpt-5.5"), unnamed) == cost_usd(Model("openai:gpt-5.5"), unnamed.usage)


@pytest.mark.parametrize(("model", "dollars"), [("gemini-2.5-flash-image", 30e-6), ("gemini-3-pro-image", 120e-6)])
def test_a_picture_of_gemini_has_a_pictures_price(model: str, dollars: float) -> None:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 1290, "totalTokenCount": 1300}
    usage |= {"candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}]}
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    body = {"candidates": [{"content": {"parts": [picture]}, "finishReason": "STOP"}], "usageMetadata": usage}
    reply = gemini.decode(body, request(f"google:{model}"))
    asked = cost_usd(Model(f"google:{model}"), Usage(input_tokens=10))
    assert cost_of_reply(Model(f"google:{model}"), reply) == pytest.approx((asked or 0) + 1290 * dollars)
