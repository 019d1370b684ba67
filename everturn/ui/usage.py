"""What an answer has used, in the words of each protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from everturn.events import Event, Replied
from everturn.records import Usage, cost_with


@dataclass
class AnswerUsage:
    """Counts the turns of one answer, from its beginning."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """None as soon as one turn's price is not known."""
    turns: int = 0

    def count(self, event: Event) -> None:
        if isinstance(event, Replied):
            self.usage += event.usage
            self.cost_usd = cost_with(self.cost_usd, event.cost_usd)
            self.turns += 1

    def for_ai_sdk(self) -> dict[str, Any]:
        """The AI SDK's LanguageModelUsage: the fields of `ai` 5, and the details of 6 and 7."""
        usage = self.usage
        return {
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
            "totalTokens": usage.total_tokens,
            "reasoningTokens": usage.reasoning_tokens,
            "cachedInputTokens": usage.cached_tokens,
            "inputTokenDetails": {
                "noCacheTokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
                "cacheReadTokens": usage.cached_tokens,
                "cacheWriteTokens": usage.cache_write_tokens,
            },
            "outputTokenDetails": {
                "textTokens": usage.output_tokens - usage.reasoning_tokens,
                "reasoningTokens": usage.reasoning_tokens,
            },
        }

    def for_ag_ui(self) -> list[dict[str, Any]]:
        """AG-UI's TokenUsage (0.0.58 and later), one entry for all models. Its `cacheWriteInputTokens` is of 1.0; older
        clients leave it alone."""
        usage = self.usage
        if not self.turns:
            return []
        return [
            {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "totalTokens": usage.total_tokens,
                "reasoningTokens": usage.reasoning_tokens,
                "cachedInputTokens": usage.cached_tokens,
                "cacheWriteInputTokens": usage.cache_write_tokens,
            }
        ]
