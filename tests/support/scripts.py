"""What scripted models reply."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from everturn.testing import call, fail, say

ONE = [call("refund", {"order_id": "81", "cents": 5}, id="a"), "Done."]


def in_turn(*replies: Any) -> Callable[[Any], Any]:
    """One after the other, whatever is asked."""
    left = list(replies)
    return lambda _: left.pop(0)


def by_turn(*replies: Any) -> Callable[[list[dict[str, Any]]], Any]:
    """In their order, by how many the transcript has: the same for every conversation, and if one is asked again."""
    return lambda messages: replies[sum(message["role"] == "assistant" for message in messages)]


def pages(turns: int) -> Callable[[list[dict[str, Any]]], Any]:
    def script(messages: list[dict[str, Any]]) -> Any:
        turn = sum(message["role"] == "assistant" for message in messages)
        return call("read_page", {"number": turn}) if turn < turns else say("Read.")

    return script


def page(number: int, size: int = 4096) -> str:
    return (f"page {number:04}: " + "é…x" * size)[:size]


def reader(turns: int, *, wordy: bool = False, window: int = 10**9) -> Callable[[list[dict[str, Any]]], Any]:
    """Reads page after page; summarises when it is asked to; says how many pages it read so far."""

    def script(messages: list[dict[str, Any]]) -> Any:
        usage = {"prompt_tokens": tokens_of(messages), "completion_tokens": 10, "total_tokens": 0}
        if tokens_of(messages) > window:
            return fail(400, body={"error": {"message": "too long", "code": "context_length_exceeded"}})
        if "replaced by a summary" in str(messages[-1]["content"]):
            return say(f"SUMMARY after page {last_page(messages)}.", usage=usage)
        page = last_page(messages) + 1
        if page >= turns:
            return say("Read.", usage=usage)
        text = "so I go on " * 100 if wordy else ""
        return [say(text, usage=usage), call("note" if wordy else "read_page", {"number": page}, id=f"c{page}")]

    return script


def tokens_of(messages: list[dict[str, Any]]) -> int:
    return sum(len(str(message)) for message in messages) // 4


def last_page(messages: list[dict[str, Any]]) -> int:
    numbers = [
        int(found)
        for message in messages
        for found in re.findall(
            r"\"number\": ?(\d+)|after page (\d+)",
            str(
                [call["function"]["arguments"] for call in message.get("tool_calls") or ()] + [message.get("content")]
            ).replace("\\", ""),
        )
        for found in found
        if found
    ]
    return max(numbers, default=-1)
