#!/usr/bin/env bash
# OLLAMA'S RESPONSES LOSE WHAT A MODEL SAYS BEFORE IT CALLS A TOOL: the words are paid for and not in the reply. Streamed, they come,
# then each call comes under their index, which OpenAI's own SDK takes for an error, and response.completed does not have them.
#
# Software:  Ollama 0.17.4 (github.com/ollama/ollama, the newest of Go's module proxy; the source of August 2026
#            reads the same here), openai 3.57.0, gguf 0.19.0, three headers of llama-cpp-python 0.3.36 (PyPI), Go, gcc. The first run
#            builds Ollama: ten minutes
# Expected:  for words and two calls, a message and two calls at output_index 0, 1 and 2, as the protocol has them; at the least
#            what Ollama's own Chat Completions and Messages give for the same reply: the text beside the calls
# Seen:      whole: only the calls. Streamed: all three are added at output_index 0, the message has deltas and no `done`, and the
#            last event has only the calls. The SDK's responses.stream() raises "Duplicate response output index 0." Two
#            calls without words share an index, too
# It matters to: who shows a stream (it breaks, or the words vanish when it ends) and who sends the output back, as the protocol
#            wants it: the model never reads what it said. Read the events yourself, by item_id, or use Chat Completions
set -euo pipefail
folder=$(mktemp -d)
server=0
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" --quiet --disable-pip-version-check)
"${pip[@]}" install "gguf==0.19.0" "openai==3.57.0" || exit 2
# Go modules leave folders named `vendor` out: nlohmann's JSON, miniaudio and stb are missing.
"${pip[@]}" download --no-deps --no-binary :all: --dest "$folder/sources" "llama-cpp-python==0.3.36" || exit 2
tar xzf "$folder"/sources/*.tar.gz -C "$folder/sources" --strip-components=1
export CPATH="$folder/sources/vendor/llama.cpp/vendor" CGO_CFLAGS=-O1 CGO_CXXFLAGS=-O1 GOBIN="$folder"
go install -p 1 github.com/ollama/ollama@v0.17.4 || exit 2
cat > "$folder/model.py" <<'PY'
import itertools, sys, gguf, numpy  # a Qwen2 whose head is a table: the next token follows from the last one
SIZE, END, BEGIN = 512, "<|im_end|>", "<|im_start|>"
SAYS = [BEGIN, "I look", " it up.", "<tool_call>", '{"name": "get_weather",', ' "arguments": {"city": "Paris"}}', "</tool_call>",
        "\n<tool_call>", '\n{"name": "get_weather", ', '"arguments": {"city": "Rome"}}', END]
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = itertools.count(256)
letters = {byte: chr(byte if byte in plain else next(others)) for byte in range(256)}
spelled = ["".join(letters[byte] for byte in piece.encode()) for piece in SAYS]
words = [*letters.values(), *spelled[1:-1], BEGIN, END]
table = numpy.zeros((len(words), SIZE))
for last, following in itertools.pairwise(spelled):
    table[words.index(following), words.index(last)] = 3
w = gguf.GGUFWriter(sys.argv[1], "qwen2")
w.add_context_length(4096); w.add_embedding_length(SIZE); w.add_block_count(1); w.add_feed_forward_length(64)
w.add_head_count(8); w.add_head_count_kv(8); w.add_layer_norm_rms_eps(1e-6); w.add_tokenizer_model("gpt2")
w.add_tokenizer_pre("qwen2"); w.add_token_list(words); w.add_token_merges(["a b"]); w.add_add_bos_token(False)
w.add_token_types([3 if word in (BEGIN, END) else 1 for word in words]); w.add_eos_token_id(words.index(END))
shapes = {"attn_q.weight": (SIZE, SIZE), "attn_k.weight": (SIZE, SIZE), "attn_v.weight": (SIZE, SIZE),
          "attn_output.weight": (SIZE, SIZE), "attn_q.bias": SIZE, "attn_k.bias": SIZE, "attn_v.bias": SIZE,
          "ffn_gate.weight": (64, SIZE), "ffn_up.weight": (64, SIZE), "ffn_down.weight": (SIZE, 64)}
tensors = {f"blk.0.{name}": numpy.zeros(shape) for name, shape in shapes.items()}
tensors |= {f"{name}.weight": numpy.ones(SIZE) for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")}
tensors |= {"token_embd.weight": numpy.eye(len(words), SIZE), "output.weight": table}
for name, tensor in tensors.items():
    w.add_tensor(name, tensor.astype(numpy.float32))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
PY
"$folder/venv/bin/python" "$folder/model.py" "$folder/tiny.gguf"
cat > "$folder/Modelfile" <<'EOF'
FROM ./tiny.gguf
TEMPLATE """{{ range .Messages }}{{ .Role }}: {{ .Content }}{{ if .ToolCalls }}<tool_call>{{ json .ToolCalls }}{{ end }}
{{ end }}{{ .Tools }}<|im_start|>"""
EOF
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export HOME="$folder" OLLAMA_HOST="127.0.0.1:$port"
timeout 300 "$folder/ollama" serve > "$folder/log" 2>&1 &
server=$!
until python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null; do sleep 0.2; done
timeout 60 "$folder/ollama" create tiny -f "$folder/Modelfile" > "$folder/created" 2>&1
timeout 100 "$folder/venv/bin/python" - "$port" <<'PY'
import sys
from openai import OpenAI

client = OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="none")
schema = {"type": "object", "properties": {"city": {"type": "string"}}}
function = {"name": "get_weather", "description": "The weather in a city.", "parameters": schema}
asked = {"model": "tiny", "input": "How warm is it in Paris?", "tools": [{"type": "function", **function}]}
message = {"role": "user", "content": asked["input"]}
chat = client.chat.completions.create(model="tiny", messages=[message], tools=[{"type": "function", "function": function}])
chat = (chat.choices[0].message.content, len(chat.choices[0].message.tool_calls))
whole = client.responses.create(**asked)
added, ended, words, output = [], [], "", []
for event in client.responses.create(**asked, stream=True):
    match event.type:
        case "response.output_item.added":
            added.append((event.output_index, event.item.type))
        case "response.output_item.done":
            ended.append(event.item.type)
        case "response.output_text.delta":
            words += event.delta
        case "response.completed":
            output = [item.type for item in event.response.output]
try:
    with client.responses.stream(**asked) as stream:
        helper = [item.type for item in stream.get_final_response().output]
except RuntimeError as error:
    helper = str(error)
print(f"chat: {chat}; responses, whole: {[item.type for item in whole.output]}, {whole.usage.output_tokens} tokens")
print(f"streamed: {words!r}, added {added}, ended {ended}, in the end {output}; the SDK's helper: {helper!r}")
calls = ["function_call"] * 2
assert chat == ("I look it up.", 2) and [item.type for item in whole.output] == calls, "it has changed"
assert words == "I look it up." and added == [(0, "message")] + [(0, "function_call")] * 2, "it has changed"
assert ended == calls == output and helper == "Duplicate response output index 0.", "it has changed"
PY
# Output of 2026-11-28:
# chat: ('I look it up.', 2); responses, whole: ['function_call', 'function_call'], 10 tokens
# streamed: 'I look it up.', added [(0, 'message'), (0, 'function_call'), (0, 'function_call')], ended ['function_call',
# 'function_call'], in the end ['function_call', 'function_call']; the SDK's helper: 'Duplicate response output index 0.'
