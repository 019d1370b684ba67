"""How many tokens a reply may have at a server that refuses more: what its errors name.

Messages wants a max_tokens in each request, and ours suits Claude. A server of one's own may have a window smaller
than that: then each request is a 400, for ever. It is sent once more, with the number that the error names. Who counts
input and output together says so; the window is then remembered, and what is left of it is asked for from the
beginning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from everturn.providers.json_values import a_dict

MIN_OUTPUT_TOKENS: Final = 256
"""With less room than this, the input is what is too long."""

_FIELDS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
_MIN_BUDGET: Final = 1024
_MOST_WINDOWS: Final = 256
_BYTES_PER_TOKEN: Final = 4

# Texts, since hardly a worker meets one of these errors: compiled when one is met.
_NAMED: Final = (
    # OpenRouter with tools; vLLM 0.9 and later; OpenAI, OpenRouter and older vLLM; vLLM 0.20 and later
    r"context length is (?P<window>\d+) tokens.{0,80}\((?P<input>\d+) of text input, (?P<tools>\d+) of tool input",
    r"context length is (?P<window>\d+) tokens and your request has (?P<input>\d+) input tokens",
    r"context length is (?P<window>\d+) tokens\. however, you requested (?:about )?\d+ tokens \((?P<input>\d+) ",
    r"passed (?P<input>\d+) input tokens and requested \d+ output.{0,80}context length is only (?P<window>\d+)",
    # SGLang; TGI and Together; Anthropic
    r"context length of (?P<window>\d+) tokens\. you requested a total of \d+ tokens: (?P<input>\d+) ",
    r"`inputs` tokens \+ `max_new_tokens` must be <= (?P<window>\d+)\. given: (?P<input>\d+) `inputs`",
    r"`max_tokens` exceed context limit: (?P<input>\d+) \+ \d+ > (?P<window>\d+)",
    # vLLM 0.32 (renderers/params.py), which then asks for what is left of the window by itself
    r"max_(?:completion_|output_)?tokens=\d+ cannot be greater than max_model_len=(?P<most>\d+)",
    # Gemini on Vertex; Anthropic; OpenAI; DeepSeek; Groq; DashScope; Bedrock
    r"maxoutputtokens value of \d+ but the supported range is from 1 \(inclusive\) to (?P<below>\d+) \(exclusive\)",
    r"max_tokens: \d+ > (?P<most>\d+), which is the maximum",
    r"supports at most (?P<most>\d+) completion tokens",
    r"valid range of max_tokens is \[1, ?(?P<most>\d+)\]",
    r"max_(?:completion_)?tokens`? must be less than or equal to `?(?P<most>\d+)",
    r"range of max_tokens should be \[1, ?(?P<most>\d+)\]",
    r"maximum tokens you requested exceeds the model limit of (?P<most>\d+)",
)


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """The most that this request may ask for; `window`: what input and output have together, if the error says it."""

    most: int
    window: int | None = None


_windows: dict[tuple[str, str], int] = {}
"""By base URL and model."""
_most: dict[tuple[str, str], int] = {}


def named_in(message: str) -> OutputLimit | None:
    """What an error's message says; None if it names no limit, or if the input alone is too long."""
    for pattern in _NAMED:
        if match := re.search(pattern, message, re.I | re.S):
            numbers = {name: int(digits[:12]) for name, digits in match.groupdict().items()}
            window = numbers.get("window")
            most = numbers.get("most") or numbers.get("below", 1) - 1
            if window is not None:
                most = window - numbers["input"] - numbers.get("tools", 0)
            if most < MIN_OUTPUT_TOKENS:
                return None
            return OutputLimit(most, window)
    return None


def remember_limit(base_url: str, model: str, limit: OutputLimit) -> None:
    if limit.window is None:
        _remember_in(_most, (base_url, model), limit.most)
    else:
        _remember_in(_windows, (base_url, model), limit.window)


def _remember_in(kept: dict[tuple[str, str], int], key: tuple[str, str], tokens: int) -> None:
    kept.pop(key, None)
    kept[key] = tokens
    if len(kept) > _MOST_WINDOWS:
        del kept[next(iter(kept))]


def known_limit(base_url: str, model: str, *, body_bytes: int) -> int | None:
    """The most that a request of this length can ask for, as far as this process has learned; None if it has not."""
    limits: list[int] = []
    if (window := _windows.get((base_url, model))) is not None:
        limits.append(max(window - body_bytes // _BYTES_PER_TOKEN, MIN_OUTPUT_TOKENS))
    if (most := _most.get((base_url, model))) is not None:
        limits.append(most)
    return min(limits, default=None)


def asked_for(body: dict[str, Any]) -> int | None:
    """How many tokens the body asks for at most."""
    limits = (place.get(name) for place in (body, a_dict(body.get("generationConfig"))) for name in _FIELDS)
    return next((value for value in limits if isinstance(value, int)), None)


def lower_limits(body: dict[str, Any], most_tokens: int) -> dict[str, Any]:
    """The body, asking for no more than so many tokens."""
    lower = {name: most_tokens for name in _FIELDS if isinstance(value := body.get(name), int) and value > most_tokens}
    config = a_dict(body.get("generationConfig"))
    if isinstance(value := config.get("maxOutputTokens"), int) and value > most_tokens:
        lower["generationConfig"] = config | {"maxOutputTokens": most_tokens}  # type: ignore[assignment]
    body = body | lower
    budget = a_dict(body.get("thinking")).get("budget_tokens")
    if isinstance(budget, int) and budget >= most_tokens:  # Claude's has to be the smaller one
        thinking = body["thinking"] | {"budget_tokens": most_tokens - 1}
        body = {name: value for name, value in body.items() if name != "thinking"}
        if most_tokens > _MIN_BUDGET:
            body["thinking"] = thinking
    return body
