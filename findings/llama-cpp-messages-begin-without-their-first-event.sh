#!/usr/bin/env bash
# LLAMA.CPP'S MESSAGES STREAM LACKS ITS FIRST EVENT if the reply's first token is half a letter: message_start goes out with
# token number one, and for half a letter nothing goes out. Anthropic's own SDK then gives up on a whole reply.
#
# Software:  llama.cpp's server, build 11549 (xllamacpp 2026.10.11549, PyPI), gguf 0.19.0, anthropic 2.11.0 (PyPI)
# Expected:  message_start first, as the protocol says, whatever the first token is
# Seen:      the stream begins with content_block_start, and has all others; with a first token that is a whole letter, all
#            is there. The SDK raises RuntimeError
# It matters to: who serves models whose replies begin with an emoji, Chinese or Arabic by /v1/messages: some of the replies
#            fail in clients, and again when they are asked again. Take a block for the start of a message
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
server=0
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "xllamacpp==2026.10.11549" "gguf==0.19.0" \
  "anthropic==2.11.0" || exit 2
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
"$folder/venv/bin/python" - "$port" <<'PY'
import json, sys, time, urllib.request
import anthropic

url = f"http://127.0.0.1:{sys.argv[1]}"
body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "Say something."}], "stream": True}

def kinds():
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body | {"temperature": 0.0}).encode())
    for _ in range(100):
        try:
            lines = urllib.request.urlopen(request, timeout=60).read().decode().splitlines()
            return [json.loads(line[6:])["type"] for line in lines if line.startswith("data: {")]
        except (ConnectionError, urllib.error.URLError) as error:
            if isinstance(error, urllib.error.HTTPError): raise
            time.sleep(0.2)

firsts = {}
for length in range(1, 61):  # the model's weights are random: its first token is one of 354, of which 128 are half letters
    body["messages"][0]["content"] = "a" * length
    firsts.setdefault((kinds() or ["nothing"])[0], "a" * length)
seen = {"first": sorted(firsts)}
client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
for first, question in sorted(firsts.items()):
    messages = [{"role": "user", "content": question}]
    try:
        with client.messages.stream(model="m", max_tokens=8, messages=messages, extra_body={"temperature": 0.0}) as stream:
            seen[first] = stream.get_final_message().stop_reason
    except Exception as error:
        seen[first] = type(error).__name__
print(seen)
kinds_of_first = ["content_block_start", "message_start"]
expected = {"first": kinds_of_first, "content_block_start": "RuntimeError", "message_start": "max_tokens"}
assert seen == expected, f"it has changed: {seen}"
PY
# Output of 2026-11-27:
