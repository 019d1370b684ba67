"""Why a reply ended, in the words of all vendors, servers and gateways.

One table for all protocols: gateways pass on what the server behind them said, in its own words and spelling, under the
names of another protocol. A reason that is not in the table is never taken for success.

Sources: the SDKs' types (openai 3.52.0, anthropic 2.11.0, google-genai 3.4.0, mistralai 3.7.0), LiteLLM 1.108.7
(`map_finish_reason`), Portkey 1.15.2, and what vLLM, SGLang, TGI, Cohere, Bedrock, Zhipu, DeepSeek, watsonx,
OpenRouter and Baidu's Qianfan (`normal`: v2/chat/completions, 2025-12) document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from everturn.models import Model
from everturn.providers.failures import ErrorInReply
from everturn.providers.reading import unusable_reply
from everturn.records import Stop

Ending = Literal["end", "length", "filtered", "refused", "paused", "slip", "window", "broken", "unknown"]
"""What a reason means. `end`: the model was done, or wants tools. `slip`: the model got the reply wrong; asked again,
it mostly gets it right. `window`: the context was full. `broken`: the server broke the reply off."""

WINDOW_FULL: Final = "model_context_window_exceeded"

_WORDS: Final[Mapping[Ending, str]] = {
    "end": """
        stop end end_turn stop_sequence stop_sequences stop_token eos eos_token complete completed done finished normal
        tool_calls tool_call tool_use function_call function_calls
    """,
    "length": """
        length max_tokens max_output_tokens max_completion_tokens max_new_tokens max_length max_len model_length
        token_limit length_limit max_messages continuation repetition truncated
    """,
    "window": """
        model_context_window_exceeded context_window_exceeded context_length_exceeded max_context max_context_length
        error_limit
    """,
    "filtered": """
        content_filter content_filtered safety recitation language other blocklist prohibited_content spii model_armor
        escalation pup_limited_disabled image_safety image_prohibited_content image_recitation image_other no_image
        guardrail_intervened error_toxic sensitive
    """,
    "refused": "refusal refused",
    "paused": "pause_turn compaction",
    "slip": """
        malformed_function_call malformed_tool_call malformed_tool_use malformed_model_output malformed_response
        unexpected_tool_call too_many_tool_calls missing_thought_signature function_call_filter tool_use_failed
    """,
    "broken": """
        error abort aborted cancelled canceled user_cancel timeout time_limit failed network_error overloaded
        insufficient_system_resource unavailable
    """,
}
_ENDINGS: Final[Mapping[str, Ending]] = {word: ending for ending, words in _WORDS.items() for word in words.split()}

_STOP_TEXTS: Final = frozenset({"stop_sequence", "stop_sequences"})
"""Reasons that say that a text of `ModelSettings(stop=)` came up. Most servers say only that the model was done."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PREFIX = re.compile(r"^(?:finish_|stop_)?reason[._]")


def plain_reason(reason: str) -> str:
    """The reason in one spelling: MAX_TOKENS, max-tokens, maxTokens, FinishReason.MAX_TOKENS are all max_tokens."""
    words = _HUMP.sub("_", reason.strip()).lower().replace("-", "_").replace(" ", "_")
    return _PREFIX.sub("", words)


def later_reason(known: str, reason: str) -> str:
    """The reason that counts after a further chunk, which may have none: protobuf's zero value says the same."""
    if not reason or (known and plain_reason(reason) == "unspecified"):
        return known
    return reason


def ending_of(reason: str) -> Ending:
    """What a reason means; of `content_filter: SAFETY`, as Gemini's compatible endpoint writes it, its first word."""
    for word in reason.split(":"):
        if ending := _ENDINGS.get(plain_reason(word)):
            return ending
    # Gateways write the type of the error that their upstream failed with.
    return "broken" if plain_reason(reason).endswith("_error") else "unknown"


def is_stop_text(reason: str) -> bool:
    """Whether the reason says that the reply was cut at a stop text."""
    return plain_reason(reason) in _STOP_TEXTS


def stop_of(reason: str, model: Model) -> Stop:
    """The Stop for a reason. Raises ErrorInReply or InvalidReply if the reply can't be used."""
    match ending_of(reason):
        case "slip":
            raise unusable_reply(model, f"the model stopped with an error ({reason:.200})")
        case "window":
            # Half a reply, and no room for what follows: to go on would only meet the same wall.
            raise ErrorInReply({"error": {"type": WINDOW_FULL, "message": "the reply filled the context window"}})
        case "broken":
            raise ErrorInReply(
                {"error": {"type": plain_reason(reason), "message": f"the reply broke off ({reason:.200})"}}
            )
        case "unknown":
            raise unusable_reply(model, f"it ended for a reason that everturn does not know ({reason:.200})")
        case known:
            return known
