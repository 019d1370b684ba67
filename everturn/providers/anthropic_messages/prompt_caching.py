"""Anthropic's prompt cache: where a request marks what the next one shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def mark_cached(body: dict[str, Any], *, marked: int = 0) -> None:
    """Sets breakpoints, so that the stable prefix is read from the cache. The API allows four at most.

    One after tools and system. One after each of the last two user messages: the last one writes the cache, and the one
    before is where the last request wrote it. The API looks back no more than 20 blocks from a breakpoint.

    `marked`: how many there are in messages that the body has only as bytes. The last two user messages are not among
    those.
    """
    tools: list[dict[str, Any]] = body.get("tools", [])
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    users: list[list[dict[str, Any]]] = [message["content"] for message in messages if message["role"] == "user"]
    blocks = [*tools, *(block for message in messages for block in message["content"])]
    remaining = 4 - marked - marks_in(blocks)
    prefix: list[dict[str, Any]] = []
    if "system" in body:
        body["system"] = prefix = [{"type": "text", "text": body["system"]}]
    elif tools and not tools[-1].get("defer_loading"):  # what is not there can't be cached
        prefix = tools
    for place in [*users[-1:], prefix, *users[-2:-1]]:
        if place and remaining > 0 and "cache_control" not in place[-1]:
            place[-1] = place[-1] | {"cache_control": {"type": "ephemeral"}}
            remaining -= 1


def marks_in(blocks: Sequence[Mapping[str, Any]]) -> int:
    """How many breakpoints are on these blocks, and on the blocks of their contents."""
    inner = [part for block in blocks if isinstance(parts := block.get("content"), list) for part in parts]
    return sum(isinstance(block, dict) and "cache_control" in block for block in [*blocks, *inner])
