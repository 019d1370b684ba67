"""Which messages a compacted transcript shows, however often it is compacted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.activities import compaction
from everturn.agent_settings import Compaction
from everturn.carryover import TranscriptView
from everturn.records import Message, Text, ToolCall, ToolResult

TURNS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40)


def turn(number: int, calls: int) -> tuple[Message, Message]:
    """A reply with so many calls, and what comes behind it: their results, or what the user says next."""
    ids = [f"{number}.{one}" for one in range(calls)]
    reply = Message(role="assistant", parts=(Text(text="…"), *(ToolCall(call_id=id_, name="t") for id_ in ids)))
    if not calls:
        return reply, Message.user(f"{number}")
    return reply, Message(role="tool", parts=tuple(ToolResult(call_id=id_) for id_ in ids))


def summary(number: int) -> Message:
    return compaction.summary_of(f"{number}")


@settings(max_examples=300, deadline=None)
@given(TURNS, st.integers(2, 8))
def test_the_last_messages_are_always_shown_with_one_summary_and_calls_beside_their_results(
    turns: list[tuple[int, bool]], keep: int
) -> None:
    wanted = Compaction(window_tokens=1_000, keep_messages=keep)
    messages, said, view = [Message.user("Go")], [Message.user("Go")], None
    for number, (calls, sums_up) in enumerate(turns):
        reply, behind = turn(number, calls)
        messages.append(reply)
        said.append(reply)
        if sums_up:
            # As the conversation does it: behind what the model has seen, before what it has not.
            old, keep_from = compaction.to_summarise(messages, view, wanted)
            if old:
                view = TranscriptView(summary_at=len(messages), keep_from=keep_from)
                messages.append(summary(number))
        messages.append(behind)
        said.append(behind)
        visible = list(compaction.messages_shown(messages, view))
        summaries = [message for message in visible if message.summary]
        assert len(summaries) == (view is not None)
        rest = [message for message in visible if message not in summaries]
        assert rest == said[-len(rest) :], "the end of what was said, without a gap"
        assert len(rest) >= min(keep, len(said))
        called = [call.call_id for message in visible for call in message.tool_calls]
        assert [result.call_id for message in visible for result in message.tool_results] == called[: len(called)]


def test_nothing_is_summed_up_twice() -> None:
    wanted = Compaction(window_tokens=1_000, keep_messages=2)
    messages = [Message.user("a"), Message.user("b"), Message.user("c")]
    old, keep_from = compaction.to_summarise(messages, None, wanted)
    assert ([message.text for message in old], keep_from) == (["a"], 1)
    view = TranscriptView(summary_at=3, keep_from=1)
    messages.append(summary(1))
    assert compaction.to_summarise(messages, view, wanted)[0] == []
    messages.append(Message.user("d"))
    old, keep_from = compaction.to_summarise(messages, view, wanted)
    assert [message.text for message in old] == [f"{compaction.HEADING}1", "b"]
    assert keep_from == 2
