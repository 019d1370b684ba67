"""Responses, over real connections on loopback."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.errors import InvalidReply, ProviderError, RateLimited
from everturn.models import Model, ModelSettings
from everturn.providers import ask, connections
from everturn.providers.base import Delta, Request
from everturn.records import Message
from tests.providers.sockets import head, sends, server

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{}"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi \u2028."}]}
RESPONSE = {"id": "resp_1", "status": "completed", "output": [SAID, CALL]}
EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": SAID | {"content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi \u2028."},
    {"type": "response.output_item.done", "output_index": 0, "item": SAID},
    {"type": "response.output_item.done", "output_index": 1, "item": CALL},
    {"type": "response.completed", "response": RESPONSE},
]


def sse(*events: dict[str, Any]) -> bytes:
    pieces = (f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events)
    return "".join(pieces).encode()


async def reply_to(*pieces: bytes, deltas: list[Delta] | None = None, stream: bool = True) -> Any:
    try:
        async with server(sends(*pieces)) as base_url:
            model = Model("openresponses:m", base_url=base_url)
            request = Request(model=model, messages=[Message.user("hi")], settings=ModelSettings(stream=stream))
            return await ask(request, on_delta=deltas.append if deltas is not None else None)
    finally:
        await connections.aclose()


async def test_a_streamed_reply_arrives_and_so_does_a_whole_one() -> None:
    deltas: list[Delta] = []
    streamed = await reply_to(head("text/event-stream"), sse(*EVENTS), deltas=deltas)
    assert (streamed.text, [call.name for call in streamed.tool_calls]) == ("Hi \u2028.", ["weather"])
    assert deltas == [Delta("text", "Hi \u2028.")]
    whole = await reply_to(head("application/json"), json.dumps(RESPONSE).encode(), stream=False)
    assert whole == streamed


@pytest.mark.parametrize("count", range(len(EVENTS)))
async def test_a_stream_that_stops_early_is_to_be_asked_again(count: int) -> None:
    with pytest.raises(InvalidReply) as raised:
        await reply_to(head("text/event-stream"), sse(*EVENTS[:count]))
    assert raised.value.retry


FAULT = {"code": "rate_limit_exceeded", "message": "Slow down."}


@pytest.mark.parametrize(
    "answer",
    [
        (head("application/json"), json.dumps({"status": "failed", "error": FAULT, "output": []}).encode()),
        (head("text/event-stream"), sse(EVENTS[0], {"type": "error", **FAULT})),
        (head("text/event-stream"), sse({"type": "response.failed", "response": {"status": "failed", "error": FAULT}})),
    ],
)
async def test_a_failure_behind_status_200_is_the_error_that_it_is(answer: tuple[bytes, bytes]) -> None:
    with pytest.raises(ProviderError) as raised:
        await reply_to(*answer)
    assert type(raised.value) is RateLimited
    assert "Slow down." in str(raised.value)
