"""Notices that a provider's prompt cache has lost a conversation: what it had a turn before is not read from it any
more, though the same was sent again, and soon.

Bills rise tenfold then, and nothing else shows it. Usual causes: a gateway that spreads a conversation's requests over
several upstreams or accounts, more requests than the provider keeps on one machine, an outage of the cache.

It costs no event: what was seen is kept beside the prefix in the worker's memory, so another worker begins anew. Never
a false alarm: whatever may have changed what is cached (other instructions, tools, settings or model, a hook,
compaction, a first image, thoughts that are left out, time) only ends the comparison.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio import activity

from everturn.activities.prefix_cache import Prefix, PrefixCache
from everturn.logs import get_logger
from everturn.payloads import ModelRequest
from everturn.providers import Request
from everturn.providers.bound_thoughts import LEFT_OUT, beginning_of
from everturn.providers.catalog import row_of
from everturn.records import Message, Reply

KEPT_SECONDS: Final = 270.0
"""Anthropic and OpenAI keep what was used within the last five minutes; this is surely less."""
KEPT_FOR_AN_HOUR: Final = 3_480.0

LEAST_TOKENS: Final = 2_048
"""Less than this is not worth a warning, and some models cache no less."""
COLLAPSED_SHARE: Final = 0.1
"""Of what was in the cache, less than this is read."""

COLLAPSES: Final = "everturn_prompt_cache_collapses"
_KEY: Final = "prompt cache"
_BYTES: Final = 400

_CURES: Final = {
    "anthropic_messages": "See whether a gateway spreads these requests over several accounts or regions.",
    "openai_responses": "See whether a gateway, or more than some 15 requests a minute, spread them over machines; "
    "ModelSettings(extra={'prompt_cache_retention': '24h'}) keeps them for longer.",
    "gemini": "Gemini promises nothing for what it caches by itself: ModelSettings(extra={'cachedContent': ...}) does.",
}
_OTHER_CURE: Final = "See whether a gateway spreads these requests over several upstreams: pin one."

_log = get_logger("everturn.turn")


@dataclass(frozen=True, slots=True)
class _SeenCached:
    """What a reply of a conversation said of the provider's cache."""

    conversation: str
    sent: int
    """Names all that was sent beside the messages."""
    tokens: int
    """What the cache then held: read, or written."""
    asked_at: float
    kept_seconds: float
    collapsed: bool


class PromptCacheWatch:
    """Of one turn."""

    def __init__(self, request: ModelRequest, prefix: Sequence[Message], delta: Sequence[Message]) -> None:
        self._request = request
        self._conversation = activity.info().workflow_id or ""
        self._length = len(prefix) + len(delta)
        self._pictures = any(part.kind in ("image", "document") for part in _parts_in(delta))
        self._before: _SeenCached | None = prefix.kept(_KEY) if isinstance(prefix, Prefix) else None
        self._seen: _SeenCached | None = None
        self._asked_at = time.monotonic()

    def take_reply(self, question: Request, reply: Reply, *, changed: bool) -> None:
        """`changed`: a hook has changed the question."""
        usage = reply.usage
        tokens_in_cache = usage.cached_tokens + usage.cache_write_tokens
        previous = self._before
        if changed or LEFT_OUT in reply.details or question.settings.batch:
            return
        if previous is None and tokens_in_cache < LEAST_TOKENS:
            return
        sent = _sent_beside(question, self._request)
        collapsed = (
            previous is not None and usage.input_tokens > 0 and self._is_lost(previous, sent, usage.cached_tokens)
        )
        if previous and collapsed:
            self._tell(previous, question, reply)
        kept = KEPT_FOR_AN_HOUR if usage.cache_write_1h_tokens else KEPT_SECONDS
        self._seen = _SeenCached(self._conversation, sent, tokens_in_cache, self._asked_at, kept, collapsed)

    def keep(self, prefixes: PrefixCache, digest: str) -> None:
        """With the prefix that the next turn begins with."""
        remembered = prefixes.find(digest, self._length + 1)
        if isinstance(remembered, Prefix) and (self._seen or self._before):
            remembered.keep(_KEY, self._seen, _BYTES)

    def _is_lost(self, before: _SeenCached, sent: int, cached_tokens: int) -> bool:
        same = (before.conversation, before.sent) == (self._conversation, sent)
        in_time = time.monotonic() - before.asked_at < before.kept_seconds
        expected = before.tokens >= LEAST_TOKENS and not self._pictures
        return same and in_time and expected and cached_tokens < before.tokens * COLLAPSED_SHARE

    def _tell(self, previous: _SeenCached, question: Request, reply: Reply) -> None:
        provider = question.model.provider
        activity.metric_meter().create_counter(COLLAPSES, "Turns whose provider had lost their prompt.").add(
            1, {"provider": provider, "agent": self._request.agent}
        )
        if previous.collapsed:
            return  # it was told a turn ago
        _log.warning(
            "prompt_cache.collapsed",
            provider=provider,
            model=question.model.name,
            cached_tokens=reply.usage.cached_tokens,
            cached_before=previous.tokens,
            input_tokens=reply.usage.input_tokens,
            seconds=round(time.monotonic() - previous.asked_at, 1),
            cure=_CURES.get(str(row_of(provider).protocol), _OTHER_CURE),
        )


def _parts_in(messages: Sequence[Message]) -> list[Any]:
    parts: list[Any] = []
    for message in messages:
        for part in message.parts:
            parts += part.content if part.kind == "tool_result" else (part,)
    return parts


def _sent_beside(question: Request, request: ModelRequest) -> int:
    """Names all that is sent beside the messages, and how these are shown: any of it may change what is cached."""
    settings = question.settings.model_dump_json()
    others = (question.conclude, question.output_schema, question.model, request.view)
    return hash(f"{beginning_of(question)} {settings} {others}")
