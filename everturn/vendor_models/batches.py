"""Which models can be asked in batches: the providers that have them here, and the models of theirs that don't take
them. A model that is not named is taken to: the provider says otherwise, line by line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from everturn.errors import InvalidSetting
from everturn.models import Model


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A provider that has batches."""

    models: str
    """Which of its models take them, for people."""
    without: re.Pattern[str] | None
    """Matches the beginning of the names of models that don't."""
    source: str
    """Where this was read, and when."""


_OPENAI: Final = BatchRow(
    "all but those of live sound and pictures, of search, and the ones that ChatGPT uses",
    re.compile(
        r"[\w.-]*(?:realtime|-audio|-tts|-transcribe|-search|-live)|gpt-audio|whisper|tts|chatgpt-|gpt-[\d.]+-chat"
        r"|computer-use|codex-mini",
        re.I,
    ),
    "developers.openai.com, pages of the models: v1/batch (2026-11)",
)
BATCHES: Final[Mapping[str, BatchRow]] = {
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "anthropic": BatchRow("all", None, "platform.claude.com, batch processing: all active models (2026-11)"),
    "google": BatchRow(
        "all Gemini models but those of live sound",
        re.compile(r"[\w.-]*(?:-live|native-audio|-tts)|lyria|veo|imagen", re.I),
        "ai.google.dev, pages of the models: Batch API (2026-11)",
    ),
}
"""By provider. Others have batches, too (Groq, Mistral, xAI, Azure); these are the ones that everturn can use."""


def check_batches(model: Model) -> None:
    """Raises InvalidSetting if it is known that the model can't be asked in batches, with those that can."""
    row = BATCHES.get(model.provider)
    if row is None:
        raise InvalidSetting(
            f"{model.name} can't be asked in batches: everturn has none of {model.provider!r}.",
            cure=f"Leave out batch=True, or take a model of {', '.join(BATCHES)}.",
        )
    if row.without and row.without.match(model.model):
        raise InvalidSetting(
            f"{model.name} can't be asked in batches.",
            cure=f"Leave out batch=True, or take another model. Of {model.provider!r}: {row.models}.",
        )
