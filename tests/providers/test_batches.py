"""Batches: lines are live requests to the byte, and the vendors' own SDKs read what the tests' server says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from everturn import Agent, Message, Model, ModelSettings
from everturn.errors import InvalidAgent, InvalidSetting
from everturn.prices import cost_of_reply
from everturn.providers.base import Request, ToolSpec
from everturn.providers.batching.api import BatchRequest
from everturn.providers.batching.turns import api_of, line_of
from everturn.providers.http import prepare_request
from tests.support.batch_server import MODELS, VENDORS, BatchServer, Vendor

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-test")


def question(provider: BatchServer, vendor: Vendor) -> Request:
    messages = [Message.user('Two\nlines, "quoted", é')]
    return Request(provider.model(vendor), messages, "Be brief.", [WEATHER], settings=ModelSettings(batch=True))


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_line_is_a_live_request_to_the_byte_and_its_reply_has_the_price_of_a_batch(vendor: Vendor) -> None:
    with BatchServer() as provider:
        batched = question(provider, vendor)
        line = line_of(batched)
        content = line.prepared.content
        api = api_of(line.prepared)
        batch_id = await api.create("everturn-1", [BatchRequest("run-1", content), BatchRequest("run-2", content)])
        assert not await api.is_over(batch_id)
        provider.finish()
        assert await api.is_over(batch_id)
        assert await api.find("everturn-1", ["run-1", "run-2"], since=0.0) == batch_id
        assert await api.find("everturn-2", ["run-1", "run-3"], since=0.0) == ""
        result = api.read((await api.results(batch_id)).raw["run-2"])
        reply = line.read_reply(result.body)
    live = replace(batched, settings=ModelSettings(stream=False))
    assert provider.bodies["run-1"] == prepare_request(live).content
    assert reply.text == "Done."
    own = Model(f"{'openai' if vendor == 'openai-chat' else vendor}:{MODELS[vendor]}")
    whole = cost_of_reply(own, reply.model_copy(update={"details": {}}))
    assert whole
    assert cost_of_reply(own, reply) == pytest.approx(whole / 2)


def test_openais_own_client_reads_the_server() -> None:
    import openai

    with BatchServer() as provider:
        client = openai.OpenAI(api_key="sk-test", base_url=provider.base_url)
        body = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hi"}]}
        line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
        uploaded = client.files.create(file=("x.jsonl", json.dumps(line).encode()), purpose="batch")
        batch = client.batches.create(
            input_file_id=uploaded.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"everturn_batch": "everturn-1"},
        )
        assert batch.status == "in_progress"
        assert [listed.metadata for listed in client.batches.list()] == [{"everturn_batch": "everturn-1"}]
        provider.finish()
        ended = client.batches.retrieve(batch.id)
        assert ended.status == "completed"
        results = client.files.content(ended.output_file_id or "").text
    assert json.loads(results)["response"]["body"]["choices"][0]["message"]["content"] == "Done."


def test_anthropics_own_client_reads_the_server() -> None:
    import anthropic

    with BatchServer() as provider:
        client = anthropic.Anthropic(api_key="sk-test", base_url=provider.base_url)
        params = {"model": "claude-sonnet-4-5", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
        batch = client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])  # type: ignore[typeddict-item]
        assert (batch.processing_status, batch.request_counts.processing) == ("in_progress", 1)
        assert [listed.id for listed in client.messages.batches.list()] == [batch.id]
        provider.finish()
        [line] = client.messages.batches.results(batch.id)
        assert line.result.type == "succeeded"
        assert line.result.message.content[0].type == "text"


def test_googles_own_client_reads_the_server() -> None:
    from google import genai

    with BatchServer() as provider:
        client = genai.Client(api_key="sk-test", http_options={"base_url": provider.base_url, "api_version": "v1beta"})
        request = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "metadata": {"key": "a"}}
        batch = client.batches.create(model="gemini-2.5-flash", src=[request], config={"display_name": "everturn-1"})
        assert [listed.display_name for listed in client.batches.list()] == ["everturn-1"]
        provider.finish()
        ended = client.batches.get(name=batch.name or "")
        assert ended.done
        [reply] = (ended.dest and ended.dest.inlined_responses) or []
        assert reply.response
        assert reply.response.text == "Done."


@pytest.mark.parametrize("name", ["groq:llama-3.3-70b-versatile", "openai:gpt-4o-realtime-preview", "scripted:demo"])
def test_a_model_without_batches_is_refused_with_those_that_have_them(name: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Agent("clerk", model="openai:gpt-5.5", fallback_models=[name], settings=ModelSettings(batch=True))
    assert name in caught.value.message
    assert "openai" in caught.value.cure


def test_a_turn_does_not_wait_in_two_ways() -> None:
    with pytest.raises(InvalidAgent, match="background"):
        Agent("clerk", model="openai:gpt-5.5", settings=ModelSettings(batch=True, background=True))
