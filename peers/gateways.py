"""Gateways and model servers: Portkey, LiteLLM, llama.cpp's server

A small server plays the provider behind the gateways: a call of a tool, an answer, and errors by the model's name.
llama.cpp's server has a model with random weights, made on the spot: what it says is noise, what it obeys is not.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel

from everturn import Image, Message, Model, ModelSettings, Text, generate, tool
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

MINUTES = 20

PORTKEY = "@portkey-ai/gateway@1.15.2"
LITELLM = "litellm[proxy]==1.108.7"
LLAMA = ("xllamacpp==2026.10.11549", "gguf==0.19.0")
"""xllamacpp is llama.cpp's own server in a wheel; the last part of its version is llama.cpp's build."""

KEY = "sk-not-a-real-key-0000"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Weather(BaseModel):
    degrees: int


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"21 degrees in {city}"


async def run(bench: Bench) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENRESPONSES_API_KEY"):
        os.environ[name] = KEY
    for part in (_portkey, _litellm, _llama):
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


async def _conversation(model: Model, settings: ModelSettings) -> None:
    """A call, its result, an answer."""
    question = Message.user("How is the weather in Paris?")
    reply = await generate(model, [question], tools=[get_weather], settings=settings)
    calls = [(call.name, dict(call.arguments)) for call in reply.tool_calls]
    assert calls == [("get_weather", {"city": "Paris"})], f"the calls are {calls}, the text {reply.text!r}"
    answer = await generate(
        model, [question, reply, (reply.tool_calls[0], "21 degrees")], tools=[get_weather], settings=settings
    )
    assert answer.text == "Hello there.", f"the answer is {answer.text!r}"
    assert answer.usage.output_tokens == 2, f"the usage is {answer.usage}"


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
                await _conversation(Model(f"{prefix}:any", base_url=base), settings)
        for word, (_, _, kind, _) in ERRORS.items():
            what = f"{protocol}: the error {word!r} is {kind.__name__}"
            with bench.check(peer, version, what, differs=differs.get(what, "")):
                error = await _fails(Model(f"{prefix}:{word}-model", base_url=base), Message.user("Go."), kind, extra)
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

MAKE_MODEL = r"""
import sys, numpy, gguf
path = sys.argv[1]
random = numpy.random.default_rng(7)
words = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{byte:02X}>".encode() for byte in range(256)]
types = [2, 3, 3] + [6] * 256
letters = [b"\xe2\x96\x81"] + [bytes([code]) for code in range(33, 127)]
words, types = words + letters, types + [1] * len(letters)
size, layers, heads, inner = 64, 2, 4, 128
writer = gguf.GGUFWriter(path, "llama")
writer.add_context_length(4096); writer.add_embedding_length(size); writer.add_block_count(layers)
writer.add_feed_forward_length(inner); writer.add_head_count(heads); writer.add_head_count_kv(heads)
writer.add_layer_norm_rms_eps(1e-5); writer.add_rope_dimension_count(size // heads); writer.add_vocab_size(len(words))
writer.add_tokenizer_model("llama"); writer.add_token_list(words); writer.add_token_scores([0.0] * len(words))
writer.add_token_types(types); writer.add_bos_token_id(1); writer.add_eos_token_id(2); writer.add_unk_token_id(0)
writer.add_chat_template("{% for said in messages %}{{ said.role }}: {{ said.content }}\n{% endfor %}assistant:")
def tensor(*shape): return (random.standard_normal(shape) * 0.05).astype(numpy.float32)
ones = numpy.ones(size, numpy.float32)
writer.add_tensor("token_embd.weight", tensor(len(words), size)); writer.add_tensor("output_norm.weight", ones)
writer.add_tensor("output.weight", tensor(len(words), size))
for layer in range(layers):
    for name in ("attn_norm", "ffn_norm"): writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        writer.add_tensor(f"blk.{layer}.{name}.weight", tensor(size, size))
    for name in ("ffn_gate", "ffn_up"): writer.add_tensor(f"blk.{layer}.{name}.weight", tensor(inner, size))
    writer.add_tensor(f"blk.{layer}.ffn_down.weight", tensor(size, inner))
writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
"""
"""A Llama of two layers with random weights, whose tokens are bytes."""

SERVE = """
import sys, time, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path, settings.port = sys.argv[1], int(sys.argv[2])
settings.n_ctx, settings.cpuparams.n_threads = 4096, 1
server = xllamacpp.Server(settings)
time.sleep(1e6)
"""


async def _llama(bench: Bench) -> None:
    python, port = bench.python(*LLAMA), free_port()
    build = bench.version(python, "xllamacpp").rpartition(".")[2]
    weights = bench.folder / "tiny.gguf"
    subprocess.run([python, "-c", MAKE_MODEL, weights], check=True, timeout=60)
    await bench.start([python, "-c", SERVE, weights, str(port)], port=port)
    url, peer, version = f"http://{HOST}:{port}/v1", "llama.cpp", f"build {build}"
    for protocol, prefix in {"Chat": "openai-chat", "Responses": "openresponses", "Messages": "anthropic"}.items():
        model = Model(f"{prefix}:tiny", base_url=url if prefix != "anthropic" else url.removesuffix("/v1"))
        for stream in (False, True):
            with bench.check(
                peer, version, f"{protocol}, {'streamed' if stream else 'whole'}: a reply up to its limit"
            ):
                settings = ModelSettings(stream=stream, max_output_tokens=8)
                reply = await generate(model, "Say something.", settings=settings)
                assert reply.usage.output_tokens == 8, f"the usage is {reply.usage}"
                assert reply.stop == "length", f"it stopped with {reply.stop!r}"
        differs = (
            "" if protocol == "Chat" else "it does not read the schema of these protocols; everturn mends the reply"
        )
        with bench.check(peer, version, f"{protocol}: an output's schema", differs=differs):
            settings = ModelSettings(stream=False, max_output_tokens=200)
            reply = await generate(model, "How warm?", output=Weather, settings=settings)
            assert isinstance(json.loads(reply.text)["degrees"], int), f"the output is {reply.text!r}"
        with bench.check(peer, version, f"{protocol}: an output's schema beside tools leaves them callable"):
            settings = ModelSettings(stream=False, max_output_tokens=40)
            reply = await generate(model, "How warm?", tools=[get_weather], output=Weather, settings=settings)
            assert not reply.text.strip().startswith("{"), "the whole reply is under the schema"
        with bench.check(peer, version, f"{protocol}: a picture for a text model is refused for good"):
            picture = Message(role="user", parts=[Text(text="What is it?"), Image(data=PIXEL, media_type="image/png")])
            await _fails(model, picture, RequestRefused)
        with bench.check(peer, version, f"{protocol}: a prompt that is too long"):
            await _fails(model, Message.user("a" * 9000), ContextTooLong)


async def _fails(
    model: Model, message: Message, kind: type[ProviderError], extra: dict[str, Any] | None = None
) -> ProviderError:
    """The error for the message, which has to be of this kind."""
    error: ProviderError | None = None
    try:
        settings = ModelSettings(stream=False, max_output_tokens=8, extra=extra or {})
        await generate(model, [message], settings=settings)
    except ProviderError as caught:
        error = caught
    assert error is not None, "it is a reply"
    assert type(error) is kind, f"it is {type(error).__name__}: {error}"
    return error
