"""What the model is shown of a transcript that nears its window. Pure functions.

The transcript itself stays whole: a view only says how it is shown. First old tool results become notices; then what is
old becomes a summary, which a model turn writes and which is in the transcript as a message of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from everturn.agent_settings import Compaction
from everturn.carryover import TranscriptView
from everturn.providers.encoded_messages import TranscriptBeginning
from everturn.records import OWN_AUTHOR, Message, Part, Text, ToolCall, ToolResult, Usage

TRIMMED_OVER_CHARS = 200
"""A shorter result costs hardly more than the notice in its place."""

ASK = (
    "The conversation has grown long, and what stands above will be replaced by a summary that you write now. "
    "Write it for yourself: what was asked, what was found and decided, exact names, ids and numbers that are still "
    "needed, what is open. Do not answer anything yet, and call no tools."
)

HEADING = "[Summary of the conversation before this point]\n"


def summary_of(text: str) -> Message:
    """A summary as it is in the transcript."""
    return Message.user(HEADING + text).model_copy(update={"author": OWN_AUTHOR, "summary": True})


def messages_shown(messages: Sequence[Message], view: TranscriptView | None) -> Sequence[Message]:
    """The messages as the model sees them."""
    if view is None:
        return messages
    seen = _placed_messages(messages, view)
    trimmed = [(place, _trimmed_message(message) if place < view.trim_before else message) for place, message in seen]
    return [message for _, message in _without_tools(trimmed, end=view.tools_from)]


def unchanged_from(messages: TranscriptBeginning, view: TranscriptView | None, *, after_summaries: int) -> int | None:
    """The place from which on each message is shown as it is, whatever follows; None if that is after all of these."""
    if view is None:
        return 0
    place = max(view.trim_before, view.tools_from, view.keep_from, after_summaries)
    while place < len(messages) and messages[place].role == "tool":  # there may be results of calls that are not shown
        place += 1
    return place if place < len(messages) else None


def _placed_messages(messages: Sequence[Message], view: TranscriptView) -> list[tuple[int, Message]]:
    """The messages with their places: the summary first, then those that it does not replace. No older summaries."""
    rest = enumerate(messages[view.keep_from :], view.keep_from)
    kept = [(place, message) for place, message in rest if not message.summary]
    if view.summary_at is None:
        return kept
    return [(len(messages), messages[view.summary_at]), *kept]


def _without_tools(placed: Sequence[tuple[int, Message]], *, end: int) -> list[tuple[int, Message]]:
    """The messages without the calls before that place, and without their results. Handoffs stay: without them, nobody
    could say whose words are whose. Texts stay, too, without anything that only their provider could have written."""
    if not end:
        return list(placed)
    handed = {result.call_id for _, message in placed for result in message.tool_results if result.successor}
    hidden: set[str] = set()
    kept = list[tuple[int, Message]]()
    for place, message in placed:
        stripped_message = message
        if place < end and message.role == "assistant":
            hidden |= {call.call_id for call in message.tool_calls} - handed
            plain = (_plain_part(part, handed) for part in message.parts)
            stripped_message = message.model_copy(
                update={"parts": tuple(part for part in plain if part), "provider": ""}
            )
        elif message.role == "tool" and any(result.call_id in hidden for result in message.tool_results):
            kept_results = tuple(result for result in message.tool_results if result.call_id not in hidden)
            stripped_message = message.model_copy(update={"parts": kept_results})
        if stripped_message.parts or not message.parts:  # an empty reply is shown as it is without a view
            kept.append((place, stripped_message))
    return kept


def _plain_part(part: Part, handed: Collection[str]) -> Part | None:
    match part:
        case Text():
            return Text(text=part.text)
        case ToolCall() if part.call_id in handed:
            return part.model_copy(update={"extra": {}})
        case _:
            return None


def next_view(
    wanted: Compaction | None, view: TranscriptView | None, messages: Sequence[Message], usage: Usage
) -> tuple[TranscriptView | None, bool]:
    """How the transcript is to be shown next, if that changes; and whether only a summary would help."""
    if wanted is None or not is_due(usage, wanted):
        return None, False
    messages = tuple(messages)  # a worker that remembers them reads them anew each time
    if trimmed := trimmed_view(messages, view, wanted):
        return trimmed, False
    return None, bool(to_summarise(messages, view, wanted)[0])


def is_due(usage: Usage, wanted: Compaction | None) -> bool:
    """Whether the next turn should be shown less."""
    return wanted is not None and usage.total_tokens >= wanted.at * wanted.window_tokens


def trimmed_view(messages: Sequence[Message], view: TranscriptView | None, wanted: Compaction) -> TranscriptView | None:
    """A view with more results trimmed; None if that would not change what is shown."""
    view = view or TranscriptView()
    keep_from = _where_kept_begin(messages, wanted)
    longer = view.model_copy(update={"trim_before": max(view.trim_before, keep_from)})
    before = sum(map(_message_chars, messages_shown(messages, view)))
    after = sum(map(_message_chars, messages_shown(messages, longer)))
    if before - after <= before * wanted.worthwhile:
        return None
    return longer


def to_summarise(
    messages: Sequence[Message], view: TranscriptView | None, wanted: Compaction
) -> tuple[list[Message], int]:
    """The messages to summarise, and the place at which those that stay begin; no messages if all are to stay."""
    messages = tuple(messages)
    view = view or TranscriptView()
    keep_from = _where_kept_begin(messages, wanted)
    seen = _without_tools(_placed_messages(messages, view), end=view.tools_from)
    old = [(place, message) for place, message in seen if not keep_from <= place < len(messages)]
    if not any(place < len(messages) for place, _ in old):
        return [], keep_from
    # Trimmed in any case: what is summarised has to fit the window that it has just outgrown.
    return [_trimmed_message(message) for _, message in old], keep_from


def _where_kept_begin(messages: Sequence[Message], wanted: Compaction) -> int:
    """Where the last messages begin that stay as they are; never between calls and their results."""
    places = [place for place, message in enumerate(messages) if not message.summary]
    first = max(0, len(places) - wanted.keep_messages)
    # Calls and their results can have a summary between them: in `places`, they are side by side.
    while first > 0 and messages[places[first]].role == "tool":
        first -= 1
    return places[first] if places else 0


def _trimmed_message(message: Message) -> Message:
    if message.role != "tool":
        return message
    return message.model_copy(update={"parts": tuple(map(_trimmed_part, message.parts))})


def _trimmed_part(part: Part) -> Part:
    if not isinstance(part, ToolResult) or (size := _result_chars(part)) <= TRIMMED_OVER_CHARS:
        return part
    return part.model_copy(
        update={"content": (Text(text=f"[Trimmed: a result of {size:,} characters, seen before.]"),)}
    )


def _result_chars(result: ToolResult) -> int:
    return sum(len(part.text) if isinstance(part, Text) else len(part.model_dump_json()) for part in result.content)


def _message_chars(message: Message) -> int:
    return sum(
        _result_chars(part) if isinstance(part, ToolResult) else len(part.model_dump_json()) for part in message.parts
    )
