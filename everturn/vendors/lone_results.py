"""Tool results without a call: no provider takes them."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.records import Message


def find_unanswerable(messages: Sequence[Message]) -> tuple[int, str, str] | None:
    """The first result whose call is in no message before it: the place, the call's id and the tool's name."""
    called: set[str] = set()
    for place, message in enumerate(messages):
        called.update(call.call_id for call in message.tool_calls)
        for result in message.tool_results:
            if result.call_id not in called:
                return place, result.call_id, result.name
    return None
