"""Tokens in OpenAI's words, as its servers and the gateways before other models count them."""

from __future__ import annotations

import re
from typing import Any

from everturn.providers.json_values import a_count, a_dict, a_list
from everturn.records import Usage

_READ = ("cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens", "cache_read_input_tokens")
"""OpenAI's name, DeepSeek's, Mistral's, and Anthropic's as gateways pass it on."""
_WRITTEN = ("cache_write_tokens", "created_cache_tokens", "cache_creation_tokens", "cache_creation_input_tokens")
"""OpenAI's name, vLLM's, and those of gateways."""

_NAME_OF_COUNT = re.compile("_tokens$|TokenCount$")

_OTHER_NAMES = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
}
"""The names of the other protocol: gateways pass a usage on as the server behind them wrote it."""


def count_tokens(usage: dict[str, Any], *, input_name: str, output_name: str) -> Usage:
    """The usage. `input_name` and `output_name`: of its counts, which have `_details` of their own.

    Some totals are larger than the two together. xAI and Gemini leave the reasoning out of the output; gateways before
    Claude leave out of the input what was read from its cache, or written to it.
    """
    if input_name not in usage:
        input_name = _OTHER_NAMES[input_name]
    if output_name not in usage:
        output_name = _OTHER_NAMES[output_name]
    of_input = a_dict(usage.get(f"{input_name}_details"))
    of_output = a_dict(usage.get(f"{output_name}_details"))
    read = _first_count(_READ, of_input, usage)
    written = _first_count(_WRITTEN, of_input, usage)
    reasoning = a_count(of_output.get("reasoning_tokens"))
    input_tokens = a_count(usage.get(input_name))
    output_tokens = a_count(usage.get(output_name))
    beyond = max(a_count(usage.get("total_tokens")) - input_tokens - output_tokens, 0)
    outside = _outside_tokens(input_tokens, beyond, read=read, written=written, reasoning=reasoning)
    for_an_hour = a_dict(of_input.get("cache_creation_token_details")).get("ephemeral_1h_input_tokens")
    for_an_hour = for_an_hour or a_dict(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")
    return Usage(
        input_tokens=input_tokens + outside,
        output_tokens=output_tokens + max(beyond - outside, 0),
        cached_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=min(a_count(for_an_hour), written),
        reasoning_tokens=reasoning,
        input_audio_tokens=a_count(of_input.get("audio_tokens")),
        output_audio_tokens=a_count(of_output.get("audio_tokens")),
        output_image_tokens=a_count(of_output.get("image_tokens")),
    )


def later_usage(known: dict[str, Any], given: object) -> dict[str, Any]:
    """What a later chunk says of the usage; some servers end with zeros for what they counted before."""
    usage = a_dict(given)
    if known and not any(a_count(count) for name, count in usage.items() if _NAME_OF_COUNT.search(name)):
        return known
    return usage or known


def _outside_tokens(input_tokens: int, beyond: int, *, read: int, written: int, reasoning: int) -> int:
    """How many tokens of the cache the count of the input leaves out."""
    sums = [read + written, written, read]
    for outside in sums:  # the total says it
        if outside and beyond in {outside, outside + reasoning}:
            return 0 if beyond == reasoning else outside
    # Without such a total: what was read and written can't be a part of a smaller count.
    if read + written > input_tokens:
        return read + written
    return 0


def _first_count(names: tuple[str, ...], *places: dict[str, Any]) -> int:
    counts = (a_count(place.get(name)) for name in names for place in places)
    return next(filter(None, counts), 0)


def of_modality(details: object, modality: str) -> int:
    """Gemini's count for one kind of content."""
    counts = map(a_dict, a_list(details))
    return sum(a_count(item.get("tokenCount")) for item in counts if item.get("modality") == modality)
