"""Gateways: Portkey, LiteLLM

A small server plays the provider behind them: a call of a tool, an answer, and errors by the model's name.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from everturn import Message, Model, ModelSettings, generate
from everturn.errors import (
    ContextTooLong,
    KeyRefused,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    Unavailable,
)
from peers.bench import HOST, Bench, NotInstalled, free_port
from peers.questions import KEY, Weather, ask_with_a_call, error_of, set_keys

MINUTES = 20

PORTKEY = "@portkey-ai/gateway@1.15.2"
LITELLM = "litellm[proxy]==1.108.7"


async def run(bench: Bench) -> None:
    set_keys()
    for part in (_portkey, _litellm):
        try:
            await part(bench)
        except NotInstalled as error:
            bench.row(part.__name__.removeprefix("_"), "", "all of it", "not installed", str(error))


# ---------------------------------------------------------------- the provider behind the gateways

ERRORS: dict[str, tuple[int, dict[str, Any], type[ProviderError], str]] = {
    "quota": (429, {"message": "You exceeded your current quota, please check your plan and billing details.",
                    "type": "insufficient_quota", "code": "insufficient_quota"}, QuotaExhausted, ""),
    "key": (401, {"message": "Incorrect API key provided.", "type": "invalid_request_error",
                  "code": "invalid_api_key"}, KeyRefused, ""),
    "rate": (429, {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}, RateLimited, ""),
    "context": (400, {"message": "This model's maximum context length is 4096 tokens. However, your messages "
                      "resulted in 9000 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"},
                ContextTooLong, ""),
    "picture": (500, {"message": "image input is not supported", "type": "server_error"}, RequestRefused, ""),
    "down": (503, {"message": "The engine is overloaded", "type": "server_error"}, Unavailable, ""),
}  # fmt: skip
"""By a word in the model's name: the status, the error, and what it is to us."""


def _completion(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("tools") and body["messages"][-1]["role"] != "tool":
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
        }
        message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    elif body.get("response_format"):
        message = {"role": "assistant", "content": '{"degrees": 21}'}
    else:
        message = {"role": "assistant", "content": "Hello there."}
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _chunks(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head = {**whole, "object": "chat.completion.chunk"}
    message = whole["choices"][0]["message"]
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in (message["content"] or "").partition(" ") if piece]
    deltas += [{"tool_calls": [{"index": 0, **call}]} for call in message.get("tool_calls", [])]
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": whole["choices"][0]["finish_reason"]}]}


def _response(body: dict[str, Any]) -> dict[str, Any]:
    """The same for Responses, which LiteLLM asks OpenAI by."""
    last = body["input"][-1] if isinstance(body["input"], list) else {}
    common = {"id": "i_1", "status": "completed"}
    if body.get("tools") and last.get("type") != "function_call_output":
        arguments = '{"city":"Paris"}'
        item = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": arguments, **common}
    else:
        content = [{"type": "output_text", "text": "Hello there.", "annotations": []}]
        item = {"type": "message", "role": "assistant", "content": content, **common}
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True}
    return {**head, "tools": [], "tool_choice": "auto", "status": "completed", "output": [item], "usage": usage}


def _events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    (item,) = whole["output"]
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    place = {"output_index": 0, "item_id": item["id"]}
    if item["type"] == "function_call":
        yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
    else:
        part = item["content"][0]
        yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
        yield {"type": "response.content_part.added", **place, "content_index": 0, "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", **place, "content_index": 0, "delta": part["text"]}
        yield {"type": "response.output_text.done", **place, "content_index": 0, "text": part["text"]}
        yield {"type": "response.content_part.done", **place, "content_index": 0, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": whole}


@contextmanager
def _provider() -> Iterator[str]:
    """Chat Completions on loopback; its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            error = next((ERRORS[word] for word in ERRORS if word in body.get("model", "")), None)
            headers = {"content-type": "application/json", "x-request-id": "req_7"}
            if error:
                status, data = error[0], json.dumps({"error": error[1]}).encode()
                headers |= {"retry-after": "7"} if status == 429 else {}
            elif body.get("stream"):
                events = _events(_response(body)) if "input" in body else _chunks(_completion(body))
                lines = [f"data: {json.dumps(event)}\n\n" for event in events]
                status, data = 200, "".join([*lines, "data: [DONE]\n\n"]).encode()
                headers["content-type"] = "text/event-stream"
            else:
                status, data = 200, json.dumps(_response(body) if "input" in body else _completion(body)).encode()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer((HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{HOST}:{server.server_port}/v1"
    finally:
        server.shutdown()


# ---------------------------------------------------------------- what is run with each


async def _behind(
    bench: Bench, peer: str, version: str, protocols: dict[str, str], url: str, differs: dict[str, str], **extra: Any
) -> None:
    """A gateway, by each of its protocols. `protocols`: a name for the row, and a prefix of ours."""
    for protocol, prefix in protocols.items():
        base = url if prefix != "anthropic" else url.removesuffix("/v1")
        for stream in (False, True):
            settings = ModelSettings(stream=stream, extra=extra)
            what = f"{protocol}, {'streamed' if stream else 'whole'}: a call, its result, an answer"
            with bench.check(peer, version, what, differs=differs.get(what, "")):
                await ask_with_a_call(Model(f"{prefix}:any", base_url=base), settings)
        for word, (_, _, kind, _) in ERRORS.items():
            what = f"{protocol}: the error {word!r} is {kind.__name__}"
            with bench.check(peer, version, what, differs=differs.get(what, "")):
                error = await error_of(Model(f"{prefix}:{word}-model", base_url=base), Message.user("Go."), kind, extra)
                assert kind is not RateLimited or error.retry_after == 7, f"it waits {error.retry_after}"
    with bench.check(peer, version, "Chat: an output's schema"):
        model = Model("openai-chat:gpt-6-any", base_url=url)
        reply = await generate(model, "How warm?", output=Weather, settings=ModelSettings(stream=False, extra=extra))
        assert json.loads(reply.text) == {"degrees": 21}, f"the output is {reply.text!r}"


async def _portkey(bench: Bench) -> None:
    folder, port = bench.node(PORTKEY), free_port()
    version = bench.version(folder, "@portkey-ai/gateway")
    server = folder / "node_modules/@portkey-ai/gateway/build/start-server.js"
    await bench.start([bench.program("node"), server, f"--port={port}", "--headless"], port=port)
    with _provider() as upstream:
        headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream}
        url = f"http://{HOST}:{port}/v1"
        await _behind(bench, "Portkey", version, {"Chat": "openai-chat"}, url, PORTKEY_DIFFERS, extra_headers=headers)


PORTKEY_DIFFERS = {
    "Chat, streamed: a call, its result, an answer": "on Node 20 it answers 500 to every stream (TypeError: immutable)"
}


async def _litellm(bench: Bench) -> None:
    python, port = bench.python(LITELLM), free_port()
    version = bench.version(python, "litellm")
    with _provider() as upstream:
        row = {"model": "openai/*", "api_base": upstream, "api_key": KEY}
        settings = {"model_list": [{"model_name": "*", "litellm_params": row}], "litellm_settings": {"num_retries": 0}}
        config = bench.folder / "litellm.yaml"
        config.write_text(json.dumps({**settings, "general_settings": {"master_key": KEY}}))
        command = [python.parent / "litellm", "--config", config, "--port", str(port), "--host", HOST]
        await bench.start(command, port=port, environ={"LITELLM_LOCAL_MODEL_COST_MAP": "True"}, seconds=180)
        protocols = {"Chat": "openai-chat", "Responses": "openresponses", "Messages": "anthropic"}
        await _behind(bench, "LiteLLM", version, protocols, f"http://{HOST}:{port}/v1", LITELLM_DIFFERS)


LITELLM_DIFFERS = {"Messages: the error 'rate' is RateLimited": "its Messages leave the provider's Retry-After out"}
