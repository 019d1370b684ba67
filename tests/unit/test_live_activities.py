"""What is told between the steps of a history: in order, never too late, and nothing twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo

from everturn.client.missing_worker import MissingWorkerWatch
from everturn.events import Event, TextDelta, ThinkingDelta, TurnRetried
from everturn.heartbeats.details import StreamedText
from everturn.history import steps
from everturn.live.live_activities import HeartbeatDetails, LiveActivities, interleave_events
from everturn.payloads import ModelReply, ModelRequest, Start, ToolRequest
from everturn.records import Message, Text, Thinking, ToolResult

AT = datetime(2026, 11, 21, tzinfo=UTC)
STARTED = steps.RunStarted(1, AT, Start(agent="clerk"))


def turn_started(turn: int = 1, *, stream: bool = True, summarise: bool = False) -> steps.TurnScheduled:
    request = ModelRequest(agent="clerk", turn=turn, stream=stream, summarise=summarise)
    return steps.TurnScheduled(5, AT, request, f"a{turn}")


def turn_finished(text: str, *, thinking: str = "", turn: int = 1, attempt: int = 1) -> steps.TurnCompleted:
    message = Message(role="assistant", parts=(Thinking(text=thinking), Text(text=text)))
    request = ModelRequest(agent="clerk", turn=turn)
    return steps.TurnCompleted(7, AT, request, ModelReply(message=message), attempt)


def following(*steps: steps.Step, clock: Callable[[], float] = time.monotonic) -> LiveActivities:
    followed = LiveActivities(cast("Any", None), "order-81", clock=clock)
    for step in (STARTED, *steps):
        assert followed.take_step("run", step) == []
    return followed


def heard(
    followed: LiveActivities, *pieces: tuple[str, str], at: int = 0, attempt: int = 1, said_in: int = 0
) -> list[str]:
    """What is told after a look at turn 1 that finds these pieces."""
    details = StreamedText.model_validate({"attempt": said_in or attempt, "every": 0.2, "at": at, "pieces": pieces})
    info = PendingActivityInfo(activity_id="a1", attempt=attempt)
    glimpse = HeartbeatDetails("run", frozenset({"a1"}), {"a1": (info, details.model_dump(mode="json"))})
    return told(followed.take_heartbeats(glimpse))


def told(events: list[Event]) -> list[str]:
    marks = {TextDelta: "", ThinkingDelta: "~", TurnRetried: "retried"}
    return [marks[type(event)] + getattr(event, "text", "") for event in events]  # type: ignore[index]


def test_each_look_tells_what_is_new_in_the_order_in_which_it_was_said() -> None:
    followed = following(turn_started())
    assert heard(followed, ("thinking", "Hm."), ("text", "It")) == ["~Hm.", "It"]
    assert heard(followed, ("thinking", "Hm."), ("text", "It")) == []
    assert heard(followed, ("thinking", "Hm."), ("text", "It is"), ("thinking", "?")) == [" is", "~?"]
    assert heard(followed, ("text", "is"), ("thinking", "?"), ("text", " so"), at=6) == [" so"]
    assert told(followed.take_step("run", turn_finished("It is so.", thinking="Hm.?!"))) == ["~!", "."]


def test_a_window_that_begins_too_late_is_passed_over_and_the_reply_brings_the_rest() -> None:
    followed = following(turn_started())
    assert heard(followed, ("text", "One ")) == ["One "]
    assert heard(followed, ("text", "three "), at=8) == []
    assert told(followed.take_step("run", turn_finished("One two three four"))) == ["two three four"]


def test_nothing_is_told_before_the_reply_where_nothing_was_told_of_the_turn() -> None:
    assert following(turn_started()).take_step("run", turn_finished("All of it")) == []


def test_the_text_of_another_attempt_is_void() -> None:
    followed = following(turn_started())
    assert heard(followed, ("text", "Once")) == ["Once"]
    assert heard(followed, ("text", "Once"), attempt=2, said_in=1) == ["retried"], "the old details stay for a while"
    assert heard(followed, ("text", "One"), attempt=2) == ["One"]
    assert told(followed.take_step("run", turn_finished("One day", attempt=2))) == [" day"]


@pytest.mark.parametrize(
    ("reply", "attempt", "expected"),
    [
        ("Twice", 2, ["retried", "~...", "Twice"]),
        ("Once more", 2, ["retried", "~...", "Once more"]),
        ("Taken back", 1, ["retried", "~...", "Taken back"]),
        ("Once", 1, ["~.."]),
    ],
    ids=["another attempt", "another attempt that began alike", "the stream took it back", "all was told"],
)
def test_a_reply_that_nobody_saw_coming_starts_the_text_over(reply: str, attempt: int, expected: list[str]) -> None:
    followed = following(turn_started())
    heard(followed, ("thinking", "."), ("text", "Once"))
    assert told(followed.take_step("run", turn_finished(reply, thinking="...", attempt=attempt))) == expected


def test_who_comes_while_a_turn_is_tried_again_hears_so() -> None:
    assert heard(following(turn_started()), ("text", "Once"), attempt=3) == ["retried", "Once"]


def test_a_look_that_comes_back_after_the_reply_says_nothing() -> None:
    followed = following(turn_started())
    heard(followed, ("text", "Once"))
    followed.take_step("run", turn_finished("Once more"))
    assert heard(followed, ("text", "Once more")) == []
    assert followed.due is None


def test_a_look_that_is_older_than_a_turn_does_not_end_it() -> None:
    followed = following(turn_started())
    followed.take_heartbeats(HeartbeatDetails("run", frozenset()))
    assert followed.due is not None
    followed.take_heartbeats(HeartbeatDetails("an earlier run", frozenset({"a1"})))
    assert followed.due is not None


def test_what_runs_no_longer_is_not_looked_for_and_its_reply_still_brings_the_rest() -> None:
    followed = following(turn_started())
    heard(followed, ("text", "Once"))
    followed.take_heartbeats(HeartbeatDetails("run", frozenset({"a1"})))
    assert followed.due is None
    assert told(followed.take_step("run", turn_finished("Once more"))) == [" more"]


def test_a_summary_is_no_text_of_the_conversation() -> None:
    assert following(turn_started(summarise=True)).due is None


@pytest.mark.parametrize("details", [None, "half way", 7, {"every": 0.2, "pieces": [["song", "la"]]}, {"pieces": 3}])
def test_details_of_others_say_nothing(details: Any) -> None:
    followed = following(turn_started())
    info = PendingActivityInfo(activity_id="a1", attempt=1)
    assert followed.take_heartbeats(HeartbeatDetails("run", frozenset({"a1"}), {"a1": (info, details)})) == []


def test_a_waiting_conversation_is_not_looked_at() -> None:
    request = ToolRequest(agent="clerk", turn=1, call_id="c1")
    tool = steps.ToolScheduled(9, AT, "refund", request, "t1")
    followed = following(turn_started())
    followed.take_step("run", turn_finished("Let me see"))
    assert followed.due is None
    followed.take_step("run", tool)
    assert followed.due is not None
    followed.take_step("run", steps.ToolCompleted(11, AT, "refund", request, ToolResult(call_id="c1", content=())))
    assert followed.due is None


@pytest.mark.parametrize(
    ("stream", "told_ago", "least", "most"),
    [
        (True, 0.0, 0.1, 0.2),
        (True, 0.2, 0.0, 0.06),
        (True, 1.0, 0.09, 0.11),
        (True, 60.0, 0.4, 0.6),
        (False, 0.0, 1.0, 2.0),
    ],
    ids=["after a beat", "one is due", "it pauses", "it is silent", "nobody asked"],
)
def test_it_is_looked_for_when_there_may_be_more(stream: bool, told_ago: float, least: float, most: float) -> None:
    now = [1_000.0]
    followed = following(turn_started(stream=stream), clock=lambda: now[0])
    heard(followed, ("text", "Once"))
    now[0] += told_ago
    heard(followed, ("text", "Once"))
    assert followed.due is not None
    assert least <= round(followed.due - now[0], 6) <= most


class Slowly(LiveActivities):
    """Whose looks take until the test lets them come back."""

    def prepare(self) -> None:
        self.begun, self.answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def look_at_heartbeats(self) -> HeartbeatDetails:
        self.begun.set()
        glimpse: HeartbeatDetails = await asyncio.shield(self.answer)
        return glimpse


async def test_a_look_that_takes_long_holds_up_no_step() -> None:
    followed = Slowly(cast("Any", None), "order-81", awaiting_seconds=0.0)
    followed.prepare()

    async def happening() -> AsyncIterator[tuple[str, steps.Step]]:
        yield "run", STARTED
        yield "run", turn_started()
        await followed.begun.wait()
        yield "run", turn_finished("Once")
        info = PendingActivityInfo(activity_id="a1", attempt=1)
        said = {"every": 0.2, "pieces": [["text", "Once"]]}
        followed.answer.set_result(HeartbeatDetails("run", frozenset({"a1"}), {"a1": (info, said)}))
        yield "run", steps.RunClosed(9, AT, None)

    silence = MissingWorkerWatch(cast("Any", None), "order-81")
    async with asyncio.timeout(10):
        seen = [(step, events) async for _, step, events in interleave_events(happening(), followed, silence)]
    assert [type(step).__name__ for step, _ in seen] == ["RunStarted", "TurnScheduled", "TurnCompleted", "RunClosed"]
    assert [events for _, events in seen] == [[], [], [], []]
