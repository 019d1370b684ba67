"""A Qwen2 that says what it is built to say, for model servers that read Hugging Face's format.

`python tiny_model.py FOLDER` writes config.json, a tokenizer with a chat template, and weights; it needs numpy and
safetensors. The attention and the MLP are zero, a token's embedding is one-hot, so the head is a table: the next token
follows from the last one. The template says how a reply begins: with a call if tools are offered and no result is
there, with an output if a schema is mentioned, else with an answer. Under a grammar that forbids the next token, it
takes whatever ends soonest.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path

SIZE, HEADS, WINDOW = 512, 8, 4096
END, BEGIN, REPLY = "<|im_end|>", "<|im_start|>", "<|im_start|>assistant\n"
CALL, ANSWER, OUTPUT = f"<|call|>{REPLY}", f"<|answer|>{REPLY}", f"<|output|>{REPLY}"
MARKS = [END, BEGIN, CALL, ANSWER, OUTPUT]
"""Special tokens. Three of them end a prompt: each is one token with all that comes before a reply."""
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
)
"""What follows each beginning; no piece is in two of them, nor twice."""

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }})"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% if add_generation_prompt %}{% if tools and messages[-1].role != 'tool' %}<|call|>"
    "{% elif 'degrees' in (messages[0].content | string) %}<|output|>{% else %}<|answer|>{% endif %}"
    "<|im_start|>assistant\n{% endif %}"
)


def letters() -> dict[int, str]:
    """GPT-2's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {byte: chr(byte if byte in plain else next(others)) for byte in range(256)}


def vocabulary() -> list[str]:
    """By token: the bytes, the pieces, and the marks."""
    by_byte = letters()
    pieces = ["".join(by_byte[byte] for byte in piece.encode()) for way in WAYS for piece in way[1:]]
    return [*by_byte.values(), *pieces, *MARKS]


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


def write_weights(folder: Path) -> None:
    import numpy
    from safetensors.numpy import save_file

    words = vocabulary()
    head = numpy.zeros((SIZE, SIZE), numpy.float32)  # head[next, last]
    head[len(words) :] = -9.0
    for word, wish in {END: 0.8, '"': 0.6, "}": 0.5, "]": 0.5, "{": 0.4, "1": 0.3}.items():
        head[words.index(word)] = wish  # what ends soonest, if a grammar forbids the rest
    by_byte = letters()
    for way in WAYS:
        numbers = [words.index("".join(by_byte[byte] for byte in piece.encode()) if piece not in MARKS else piece)
                   for piece in (*way, END)]  # fmt: skip
        for last, following in pairwise(numbers):
            head[following, last] = 3.0
    inner, ones = 64, numpy.ones(SIZE, numpy.float32)

    def zeros(*shape: int) -> "numpy.ndarray":
        return numpy.zeros(shape, numpy.float32)

    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": numpy.eye(SIZE, dtype=numpy.float32), "lm_head.weight": head}
    tensors |= {f"{layer}self_attn.{name}_proj.weight": zeros(SIZE, SIZE) for name in "qkvo"}
    tensors |= {f"{layer}self_attn.{name}_proj.bias": zeros(SIZE) for name in "qkv"}
    tensors |= {f"{layer}mlp.{name}_proj.weight": zeros(inner, SIZE) for name in ("gate", "up")}
    tensors |= {f"{layer}mlp.down_proj.weight": zeros(SIZE, inner), "model.norm.weight": ones}
    tensors |= {f"{layer}{name}_layernorm.weight": ones for name in ("input", "post_attention")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_tokenizer(target)
    write_config(target)
    write_weights(target)
