"""Calls and their results: which results are written after which message."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.providers.base import Request
from everturn.records import Message, ToolCall, results_in


class Pairing:
    """The calls and results in the messages of one request."""

    def __init__(self, request: Request) -> None:
        self.results = results_in(request.messages)
        """Results by call_id."""
        self.as_given = request.as_given
        messages = request.messages if request.as_given else ()
        self._called = {call.call_id for message in messages for call in message.tool_calls}

    def after(self, message: Message) -> Sequence[ToolCall]:
        """The calls whose results are written after a message: all calls of a reply, since servers refuse one without.
        If the request is `as_given`: the reply's calls that have a result; after any other message, for each result
        whose call is missing, a call with the result's name."""
        if message.tool_calls or not self.as_given:
            return [call for call in message.tool_calls if not self.as_given or call.call_id in self.results]
        lone = [result for result in message.tool_results if result.call_id not in self._called]
        return [ToolCall(call_id=result.call_id, name=result.name or "tool", arguments={}) for result in lone]
