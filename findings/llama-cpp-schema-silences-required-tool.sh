#!/usr/bin/env bash
# LLAMA.CPP'S SERVER DROPS A REQUIRED TOOL CALL BESIDE A SCHEMA: tool_choice "required" and a response_format in one
# request give JSON of that schema, status 200, finish_reason "stop", and no call. strict: true changes nothing.
#
# Software:  llama.cpp's server, build 11549 (xllamacpp 2026.10.11549, PyPI), gguf 0.19.0 (PyPI)
# Expected:  a call, since it is required; or an error that the two do not go together, as for `grammar` beside tools
# Seen:      {"degrees": ...} as content, no tool_calls, no error
# It matters to: agents with tools and a structured output: the tools are never called, and the output is made up. Send
#            the schema only in requests that may call no tool
set -euo pipefail
folder=$(mktemp -d)
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
server=0
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "xllamacpp==2026.10.11549" "gguf==0.19.0" || exit 2
cat > "$folder/model.py" <<'PY'
import sys, numpy, gguf  # a Llama of two layers with random weights, whose tokens are bytes
random = numpy.random.default_rng(7)
letters = [b"\xe2\x96\x81"] + [bytes([code]) for code in range(33, 127)]
words = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{byte:02X}>".encode() for byte in range(256)] + letters
types = [2, 3, 3] + [6] * 256 + [1] * len(letters)
w = gguf.GGUFWriter(sys.argv[1], "llama")
w.add_context_length(4096); w.add_embedding_length(64); w.add_block_count(2); w.add_feed_forward_length(128)
w.add_head_count(4); w.add_head_count_kv(4); w.add_layer_norm_rms_eps(1e-5); w.add_rope_dimension_count(16)
w.add_vocab_size(len(words)); w.add_tokenizer_model("llama"); w.add_token_list(words); w.add_token_types(types)
w.add_token_scores([0.0] * len(words)); w.add_bos_token_id(1); w.add_eos_token_id(2); w.add_unk_token_id(0)
w.add_chat_template(
    "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
def t(*shape): return (random.standard_normal(shape) * 0.05).astype(numpy.float32)
one = numpy.ones(64, numpy.float32)
w.add_tensor("token_embd.weight", t(len(words), 64)); w.add_tensor("output_norm.weight", one)
w.add_tensor("output.weight", t(len(words), 64))
for i in range(2):
    for name in ("attn_norm", "ffn_norm"): w.add_tensor(f"blk.{i}.{name}.weight", one)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"): w.add_tensor(f"blk.{i}.{name}.weight", t(64, 64))
    for name in ("ffn_gate", "ffn_up"): w.add_tensor(f"blk.{i}.{name}.weight", t(128, 64))
    w.add_tensor(f"blk.{i}.ffn_down.weight", t(64, 128))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
PY
"$folder/venv/bin/python" "$folder/model.py" "$folder/tiny.gguf"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$folder/venv/bin/python" -c "
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_ctx, p.cpuparams.n_threads = sys.argv[1], int(sys.argv[2]), 4096, 1
server = xllamacpp.Server(p)
time.sleep(600)" "$folder/tiny.gguf" "$port" > "$folder/log" 2>&1 &
server=$!
python3 - "$port" <<'PY'
import json, sys, time, urllib.request
def ask(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}{path}", json.dumps(body).encode())
    for _ in range(100):
        try:
            return json.load(urllib.request.urlopen(request, timeout=60))
        except (ConnectionError, urllib.error.URLError) as error:
            if isinstance(error, urllib.error.HTTPError): raise
            time.sleep(0.2)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
SCHEMA = {"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}
for strict in (False, True):
    function = {"name": "get_weather", "parameters": CITY, "strict": strict}
    reply = ask("/v1/chat/completions", {
        "model": "m", "max_tokens": 300, "tools": [{"type": "function", "function": function}], "tool_choice": "required",
        "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": SCHEMA}},
        "messages": [{"role": "user", "content": "How warm is it in Paris?"}],
    })
    choice = reply["choices"][0]
    seen = (sorted(json.loads(choice["message"]["content"])), choice["message"].get("tool_calls"), choice["finish_reason"])
    print(f"strict={strict}: keys of the content {seen[0]}, tool_calls {seen[1]}, finish_reason {seen[2]!r}")
    assert seen == (["degrees"], None, "stop"), f"it has changed: {seen}"
PY
# Output of 2026-11-27:
# strict=False: keys of the content ['degrees'], tool_calls None, finish_reason 'stop'
# strict=True: keys of the content ['degrees'], tool_calls None, finish_reason 'stop'
