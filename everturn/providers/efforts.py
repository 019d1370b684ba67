"""Which reasoning efforts a model takes. An unknown level is a 400, in this request and every later one.

By provider, then by the model's name: the first row that matches counts. For a model without a row, the level is sent
as it was set. Sources, 2026: models.dev (`reasoning_options`), the vendors' pages on reasoning, and their errors, like
"Unsupported value: 'minimal' is not supported with the 'gpt-5.1' model". Anthropic's levels are in
`anthropic_messages/options.py`, beside the budgets of its older models; those of Gemini 2.5 are in `gemini/request.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from everturn.models import Model
from everturn.providers.base import warn_unsupported

_RANKS: Final = {"none": 0, "minimal": 1, "low": 2, "medium": 3, "default": 3, "high": 4, "xhigh": 5, "max": 6}
_Rows = tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]


def _rows(*rows: tuple[str, str]) -> _Rows:
    """Patterns of names, each with its levels in one text; an empty text means that the model takes no effort."""
    return tuple((re.compile(pattern), tuple(levels.split())) for pattern, levels in rows)


_OPENAI = _rows(
    (r"gpt-3|gpt-4|chatgpt|gpt-5[\w.-]*-chat|[\w.-]+-deep-research", ""),
    (r"gpt-5-pro", "high"),
    (r"gpt-[\w.]+-pro", "medium high xhigh"),
    (r"gpt-5-codex|gpt-5\.1-codex(?!-max)|codex", "low medium high"),
    (r"gpt-[\w.]+-codex", "low medium high xhigh"),
    (r"gpt-5\.1(?!\d)", "none low medium high"),
    (r"gpt-5\.[2-5](?!\d)", "none low medium high xhigh"),
    (r"gpt-5(?!\.)", "minimal low medium high"),
    (r"gpt-oss|o\d", "low medium high"),
    (r"gpt-\d", "none low medium high xhigh max"),
)
_GOOGLE = _rows(
    (r"gemini-[\w.]+-pro-image", ""),
    (r"gemini-[\w.]+-flash-image", "minimal high"),
    (r"gemini-3(?:\.0)?-pro", "low high"),
    (r"gemini-(?:[\w.]+-)?pro", "low medium high"),
    (r"gemini-(?:[\w.]+-)?flash-lite|gemini-3(?:\.[0-6])?-flash", "minimal low medium high"),
    (r"gemini-flash|gemini-[\w.]+-flash", "low medium high"),
    (r"gemini", "minimal low medium high"),
)
_XAI = _rows(
    (r"grok-3-mini", "low high"),
    (r"grok-[23]|grok-4(?![.\d])|grok-code|grok-build|grok-4\.20(?:-\d+)?-(?:non-)?reasoning", ""),
    (r"grok-4\.3", "none low medium high"),
    (r"grok-4\.20|grok-4\.6", "low medium high xhigh"),
    (r"grok", "low medium high"),
)
_LEVELS: Final[Mapping[str, _Rows]] = {
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "azure": _OPENAI,
    "google": _GOOGLE,
    "xai": _XAI,
    "groq": _rows((r"gpt-oss", "low medium high"), (r"qwen", "none default"), (r"llama|kimi|compound|allam", "")),
    "huggingface": _rows((r"gpt-oss", "low medium high")),
    "mistral": _rows(
        (r"magistral|codestral|devstral|ministral|pixtral|voxtral|open-|mistral-large|mistral-tiny", ""),
        (r"", "none high"),
    ),
    "deepseek": _rows((r"", "high max")),
    "ollama": _rows((r"", "none low medium high")),
    "vllm": _rows((r"", "none low medium high")),
}


def nearest_effort(model: Model, effort: str) -> str | None:
    """The level to ask for: the model's nearest; if two are equally near, the higher. Only 'none' becomes 'none'.

    None, with a warning (UnsupportedParameter), if the model takes no effort at all.
    """
    levels = _levels(model)
    if levels is None or effort in levels:
        return effort
    if not levels:
        warn_unsupported(model, f"reasoning_effort={effort!r}")
        return None
    if effort == "none":
        warn_unsupported(model, "reasoning_effort='none'", "It is asked for its lowest effort instead.")
    wanted = _RANKS[effort]
    thinking = [level for level in levels if level != "none"]
    return min(thinking, key=lambda level: (abs(_RANKS[level] - wanted), -_RANKS[level]))


def _levels(model: Model) -> tuple[str, ...] | None:
    name = model.model.lower().removeprefix("ft:").rpartition("/")[2]
    rows = _LEVELS.get(model.provider, ())
    return next((levels for pattern, levels in rows if pattern.match(name)), None)
