"""A Qwen2 that says what it is built to say, for model servers that read Hugging Face's format, or a GGUF.

`python tiny_model.py FOLDER` writes config.json, a tokenizer with a chat template, and weights; it needs numpy and
safetensors. `python tiny_model.py FOLDER gguf` writes tiny.gguf and Modelfiles for Ollama; it needs numpy and gguf.
The attention and the MLP are zero, a token's embedding is one-hot, so the head is a table: the next token follows
from the last one. The template says how a reply begins: with a call if tools are offered and no result is there, with
an output if a schema is mentioned, else with an answer. Under a grammar that forbids the next token, it takes
whatever ends soonest.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

SIZE, HEADS, WINDOW = 512, 8, 4096
END, BEGIN, REPLY = "<|im_end|>", "<|im_start|>", "<|im_start|>assistant\n"
CALL, ANSWER, OUTPUT = f"<|call|>{REPLY}", f"<|answer|>{REPLY}", f"<|output|>{REPLY}"
TALK, THINK, REPEAT, TWICE = (f"<|{does}|>{REPLY}" for does in ("talk", "think", "repeat", "twice"))
MARKS = [END, BEGIN, CALL, ANSWER, OUTPUT, TALK, THINK, REPEAT, TWICE]
"""Special tokens. Seven of them end a prompt: each is one token with all that comes before a reply."""
WAYS = (
    (
        CALL,
        "<tool_call>",
        '\n{"name":',
        ' "get_weather",',
        ' "arguments":',
        ' {"city":',
        ' "Paris"}}\n',
        "</tool_call>",
    ),
    (ANSWER, "Hello", " there."),
    (OUTPUT, '{"degrees":', " 21}"),
    (
        TWICE,
        "<tool_call>\n",
        '{"name": "get_weather", ',
        '"arguments": {"city": "Paris"}}',
        "\n</tool_call>",
        "\n<tool_call>",
        '\n{"name": "get_weather",',
        ' "arguments": {"city": "Rome"}}',
        "</tool_call>\n",
    ),
)
"""What follows each beginning, up to the end; no piece is in two of them, nor twice."""
LEADS = (
    (TALK, "I look", " it up.", "<tool_call>"),
    (THINK, "<think>", "Hm.", "</think>", "<tool_call>"),
    (REPEAT, " ha", " ha"),
)
"""What leads into one of them, or nowhere."""

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }})"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% if add_generation_prompt %}{% if tools and messages[-1].role != 'tool' %}<|call|>"
    "{% elif 'degrees' in (messages[0].content | string) %}<|output|>{% else %}<|answer|>{% endif %}"
    "<|im_start|>assistant\n{% endif %}"
)

MODELFILE = """FROM ./tiny.gguf
PARAMETER num_ctx 4096
TEMPLATE \"\"\"{{- $last := "" }}{{ range .Messages }}{{ $last = .Role }}<|im_start|>{{ .Role }}
{{ .Content }}{{ if .ToolCalls }}<tool_call>
{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}{{ end }}
</tool_call>{{ end }}<|im_end|>
{{ end }}{{ if .Tools }}<|im_start|>tools
{{ .Tools }}<|im_end|>
{{ end }}{{ if and .Tools (ne $last "tool") }}<|call|>{{ else if .System }}<|output|>{{ else }}<|answer|>{{ end }}\
<|im_start|>assistant
\"\"\"
"""
"""Go's templates can't look for a word in a text: a system message is there only if it mentions a schema."""
MODELFILES = {
    "tiny": MODELFILE,
    "talks": MODELFILE.replace("<|call|>", "<|talk|>"),
    "thinks": MODELFILE.replace("<|call|>", "<|think|>").replace(
        "{{ .Content }}", "{{ if and $.Think .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}"
    ),
    "calls-twice": MODELFILE.replace("<|call|>", "<|twice|>"),
    "repeats": MODELFILE.replace("<|answer|>", "<|repeat|>"),
}
"""The same weights each time: one says something before its call, one thinks, one calls twice, one says ha for ever."""


def letters() -> dict[int, str]:
    """GPT-2's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {byte: chr(byte if byte in plain else next(others)) for byte in range(256)}


def vocabulary() -> list[str]:
    """By token: the bytes, the pieces, and the marks."""
    by_byte = letters()
    pieces = dict.fromkeys(piece for way in (*WAYS, *LEADS) for piece in way[1:])
    return [*by_byte.values(), *("".join(by_byte[byte] for byte in piece.encode()) for piece in pieces), *MARKS]


def write_tokenizer(folder: Path) -> None:
    words = vocabulary()
    added = [
        {"id": words.index(mark), "content": mark, "special": True, "normalized": False,
         "single_word": False, "lstrip": False, "rstrip": False}
        for mark in MARKS
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {word: number for number, word in enumerate(words)}, "merges": [],
             "byte_fallback": False, "fuse_unk": False, "ignore_merges": False}  # fmt: skip
    tokenizer = {"version": "1.0", "added_tokens": added, "model": model, "pre_tokenizer": level, "decoder": level}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END,
              "model_max_length": WINDOW, "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_config(folder: Path) -> None:
    end = vocabulary().index(END)
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": SIZE, "hidden_size": SIZE,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "max_position_embeddings": WINDOW, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
        "bos_token_id": None, "eos_token_id": end, "pad_token_id": end, "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    generation = {"eos_token_id": end, "pad_token_id": end, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation))


def table() -> Any:
    """The head: by the next token and the last one."""
    import numpy

    words = vocabulary()
    head = numpy.zeros((SIZE, SIZE), numpy.float32)  # head[next, last]
    head[len(words) :] = -9.0
    for word, wish in {END: 0.8, '"': 0.6, "}": 0.5, "]": 0.5, "{": 0.4, "1": 0.3}.items():
        head[words.index(word)] = wish  # what ends soonest, if a grammar forbids the rest
    by_byte = letters()
    for way in (*((*way, END) for way in WAYS), *LEADS):
        numbers = [words.index("".join(by_byte[byte] for byte in piece.encode()) if piece not in MARKS else piece)
                   for piece in way]  # fmt: skip
        for last, following in pairwise(numbers):
            head[following, last] = 3.0
    return head


def write_weights(folder: Path) -> None:
    import numpy
    from safetensors.numpy import save_file

    inner, ones = 64, numpy.ones(SIZE, numpy.float32)

    def zeros(*shape: int) -> Any:
        return numpy.zeros(shape, numpy.float32)

    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": numpy.eye(SIZE, dtype=numpy.float32), "lm_head.weight": table()}
    tensors |= {f"{layer}self_attn.{name}_proj.weight": zeros(SIZE, SIZE) for name in "qkvo"}
    tensors |= {f"{layer}self_attn.{name}_proj.bias": zeros(SIZE) for name in "qkv"}
    tensors |= {f"{layer}mlp.{name}_proj.weight": zeros(inner, SIZE) for name in ("gate", "up")}
    tensors |= {f"{layer}mlp.down_proj.weight": zeros(SIZE, inner), "model.norm.weight": ones}
    tensors |= {f"{layer}{name}_layernorm.weight": ones for name in ("input", "post_attention")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_gguf(folder: Path) -> None:
    import gguf
    import numpy

    words, inner = vocabulary(), 64
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "qwen2")
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(SIZE)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    kinds = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.NORMAL}
    writer.add_token_types([kinds[word in MARKS] for word in words])
    writer.add_token_merges(["a b"])  # one that makes no token: there has to be one
    writer.add_eos_token_id(words.index(END))
    writer.add_add_bos_token(False)

    def add(name: str, tensor: Any) -> None:
        writer.add_tensor(name, tensor.astype(numpy.float32))

    add("token_embd.weight", numpy.eye(len(words), SIZE))
    add("output.weight", table()[: len(words)])
    add("output_norm.weight", numpy.ones(SIZE))
    for name in ("attn_norm", "ffn_norm"):
        add(f"blk.0.{name}.weight", numpy.ones(SIZE))
    for name in ("q", "k", "v", "output"):
        add(f"blk.0.attn_{name}.weight", numpy.zeros((SIZE, SIZE)))
    for name in "qkv":
        add(f"blk.0.attn_{name}.bias", numpy.zeros(SIZE))
    for name in ("gate", "up"):
        add(f"blk.0.ffn_{name}.weight", numpy.zeros((inner, SIZE)))
    add("blk.0.ffn_down.weight", numpy.zeros((SIZE, inner)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    if sys.argv[2:] == ["gguf"]:
        write_gguf(target)
        for name, modelfile in MODELFILES.items():
            (target / name).write_text(modelfile)
    else:
        write_tokenizer(target)
        write_config(target)
        write_weights(target)
