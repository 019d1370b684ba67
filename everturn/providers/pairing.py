"""Calls and their results: which results are written after which message."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.records import Message, ToolCall, results_in


class Pairing:
    """The calls and results in messages that refer to no others."""

    def __init__(self, messages: Sequence[Message], *, as_given: bool) -> None:
        self.results = results_in(messages)
        """Results by call_id."""
        self.as_given = as_given
        self._called = {call.call_id for message in messages for call in calls_in(message)}

    def calls_after(self, message: Message) -> Sequence[ToolCall]:
        """The calls whose results are written after a message: all calls of a reply, since servers refuse one without.
        If the messages are `as_given`: the reply's calls that have a result; after any other message, for each result
        whose call is missing, a call with the result's name."""
        calls = calls_in(message)
        if calls or not self.as_given:
            return [call for call in calls if not self.as_given or call.call_id in self.results]
        lone = [result for result in message.tool_results if result.call_id not in self._called]
        return [ToolCall(call_id=result.call_id, name=result.name or "tool", arguments={}) for result in lone]

    def has_answers(self, message: Message) -> bool:
        """Whether a message has results that are written, be it after it or after their calls."""
        return any(self.as_given or result.call_id in self._called for result in message.tool_results)


def calls_in(message: Message) -> Sequence[ToolCall]:
    """The calls that a model made. A user's message may have some in old transcripts: nobody made those."""
    return message.tool_calls if message.role == "assistant" else ()
