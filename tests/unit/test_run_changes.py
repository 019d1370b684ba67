"""When a run ends for a next one, and what that one begins with: the bounds of both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from everturn import names
from everturn.carryover import CarryOver, PackedTranscript, StoredInRun, WorkerFacts
from everturn.packed_messages import pack
from everturn.payloads import Start
from everturn.records import Message, Text, ToolResult
from everturn.sizes import MAX_HANDED_BYTES, MAX_PACKED_BYTES, RUN_BYTES, size_of
from everturn.state import State
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.workflows import continue_as_new
from everturn.workflows.activity_results import ActivityResults
from everturn.workflows.recent_messages import RecentMessages
from tests.support.bounds import Bounds
from tests.support.played_runs import BEGAN, PlayedConversation


class Run:
    """Of which only its size, its length and its times matter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_id = "r"
        self.size = self.length = 0
        self.suggested = False
        self.task_timeout = TASK_TIMEOUT
        self.workflow_start_time = datetime(2026, 1, 1, tzinfo=UTC)
        self.seconds = 0.0
        self.logged: list[dict[str, Any]] = []
        monkeypatch.setattr(workflow, "info", lambda: self)
        monkeypatch.setattr(workflow, "time", lambda: self.workflow_start_time.timestamp() + self.seconds)
        monkeypatch.setattr(continue_as_new, "workflow_log", lambda *_, **facts: self.logged.append(facts))

    def get_current_history_size(self) -> int:
        return self.size

    def get_current_history_length(self) -> int:
        return self.length

    def is_continue_as_new_suggested(self) -> bool:
        return self.suggested


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def state(**carried: Any) -> State:
    return State(Start(agent="clerk", carry=CarryOver(**carried)), run_began=0.0)


@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_run_is_due_from_the_bound_on(beside: int, run: Run, bounds: Bounds) -> None:
    bounds(events=20, updates=5, history_bytes=1_000)
    due = []
    run.length = 20 + beside
    due.append(continue_as_new.is_due(updates=0, full=False))
    run.length, run.size = 0, 1_000 + beside
    due.append(continue_as_new.is_due(updates=0, full=False))
    run.size = 0
    due.append(continue_as_new.is_due(updates=5 + beside, full=False))
    assert due == [beside >= 0] * 3


@pytest.mark.parametrize(
    ("longer", "seconds", "due"), [(1, 1.0, True), (1, 0.999, False), (0, 5.0, False), (-1, 5.0, False)]
)
def test_a_run_with_a_longer_timeout_of_its_tasks_ends_after_a_second(
    longer: int, seconds: float, run: Run, *, due: bool
) -> None:
    run.task_timeout = TASK_TIMEOUT + timedelta(seconds=longer)
    run.seconds = seconds
    assert continue_as_new.is_due(updates=0, full=False) is due


@pytest.mark.parametrize("beside", [0, 1])
def test_what_is_packed_small_enough_travels_on(beside: int, run: Run) -> None:
    packed = PackedTranscript(data="x" * (MAX_PACKED_BYTES + beside))
    assert continue_as_new.hold_earlier(packed) == (StoredInRun(run_id="r") if beside else packed)
    elsewhere = StoredInRun(run_id="x" * 2 * MAX_PACKED_BYTES)
    assert continue_as_new.hold_earlier(elsewhere) == elsewhere


@pytest.mark.parametrize("beside", [0, 1])
def test_a_prefix_travels_on_if_it_packs_small_enough(beside: int, run: Run, bounds: Bounds) -> None:
    recent = RecentMessages("")
    one = State(Start(agent="clerk"), run_began=0.0, on_prefix=recent.add)
    messages = [Message.user("Hello"), Message.user("again")]
    one.prefix.extend(messages, digest="")
    packed = pack(messages)
    bounds(packed_bytes=len(packed) - beside)
    handed = continue_as_new._earlier_messages(one, recent)
    assert handed == (StoredInRun(run_id="r") if beside else PackedTranscript(data=packed))


@pytest.mark.parametrize("beside", [0, 1])
def test_a_text_of_twenty_times_that_is_packed_still(beside: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    message = Message.user("x" * (continue_as_new.LIKELY_TOO_LONG - len(Message.user("").model_dump_json()) + beside))
    monkeypatch.setattr(continue_as_new, "whole_prefix", lambda *_: (message,))
    handed = continue_as_new._earlier_messages(state(), RecentMessages(""))
    assert isinstance(handed, StoredInRun if beside else PackedTranscript)


def test_a_prefix_that_is_not_in_memory_is_where_it_is(run: Run) -> None:
    one = state(earlier=StoredInRun(run_id="before"), length=2)
    assert continue_as_new._earlier_messages(one, RecentMessages("")) == StoredInRun(run_id="r")


@pytest.mark.parametrize(
    ("facts", "keep_by"), [(None, None), (WorkerFacts(), None), (WorkerFacts(retention=100.0), 57.0)]
)
def test_how_long_histories_are_kept_may_not_be_known(
    facts: WorkerFacts | None, keep_by: float | None, run: Run
) -> None:
    run.seconds = 7.0 - run.workflow_start_time.timestamp()
    assert continue_as_new._keep_by(state(facts=facts)) == keep_by


@pytest.mark.parametrize(("beside", "extended"), [(0, False), (1, True)])
async def test_small_results_are_handed_over(beside: int, monkeypatch: pytest.MonkeyPatch, *, extended: bool) -> None:
    asked: list[str] = []

    async def extend_prefix(*_: Any) -> None:
        asked.append("to extend it")

    monkeypatch.setattr(continue_as_new, "extend_prefix", extend_prefix)

    def results(text: str) -> list[Message]:
        parts = (ToolResult(call_id="a", name="look", content=(Text(text=text),)),)
        return [Message(role="tool", parts=parts)]

    one = state()
    one.take_results((), recorded=["a"])
    room = MAX_HANDED_BYTES - size_of(results("")) - size_of(["a"])
    one.unseen.messages = results("x" * (room + beside))
    assert one.unseen.in_events == ("a",)
    await continue_as_new.fit_unseen(one, ActivityResults())
    assert bool(asked) is extended


def inbox(texts: Sequence[str]) -> State:
    one = state()
    one.inbox.messages = [Message.user(text) for text in texts]
    return one


def test_only_the_inbox_of_a_full_run_is_cut(run: Run) -> None:
    room = 3_000
    fitting = inbox(["small"])
    run.size = RUN_BYTES
    assert continue_as_new.fit_inbox(fitting, room)
    assert run.logged == []
    large = inbox(["first", "x" * 5_000])
    run.size = RUN_BYTES - 1
    assert not continue_as_new.fit_inbox(large, room)
    assert large.inbox.messages[1].text == "x" * 5_000
    run.size = RUN_BYTES
    assert continue_as_new.fit_inbox(large, room)
    assert [large.inbox.messages[0].text, len(large.inbox.messages)] == ["first", 2]
    assert size_of(large.inbox.messages) <= room
    assert run.logged == [{"level": "warning", "messages": 2, "kept_bytes": room}]


def test_an_inbox_of_too_many_messages_has_to_be_answered_first(run: Run) -> None:
    run.size = RUN_BYTES
    many = inbox(["x" * 100] * 100)
    assert not continue_as_new.fit_inbox(many, 3_000)
    assert run.logged == []


def test_messages_that_are_due_are_brought_along_at_once() -> None:
    carry = CarryOver(length=2, earlier=StoredInRun(run_id="r"), keep_by=7.0, started_at=1.0)
    run = PlayedConversation(message=(), keep_open=600.0, carry=carry).begin()
    assert [timer.seconds for timer in run.timers if timer.seconds < 600.0] in ([], [0.0])
    assert run.of_kind("schedule_activity") or run.timers


@pytest.mark.parametrize(
    "carried",
    [
        {"keep_by": None, "earlier": StoredInRun(run_id="r")},
        {"keep_by": 7.0, "earlier": PackedTranscript(data="")},
        {"keep_by": 7.0},
    ],
)
def test_messages_that_are_here_or_are_kept_are_not_brought_along(carried: dict[str, Any]) -> None:
    run = PlayedConversation(message=(), keep_open=600.0, carry=CarryOver(length=2, started_at=1.0, **carried)).begin()
    assert (run.scheduled, [timer.seconds for timer in run.timers]) == ([], [600.0])


def test_messages_that_were_brought_along_are_handed_on() -> None:
    """And are not where they were."""
    before = [Message.user("before"), Message.user("and")]
    carry = CarryOver(length=2, earlier=StoredInRun(run_id="r"), keep_by=BEGAN.timestamp() + 50, started_at=1.0)
    run = PlayedConversation(message=(), keep_open=600.0, carry=carry).begin()
    run.fire(*(timer for timer in run.timers if timer.seconds < 600.0))
    run.complete(names.KEEP_TRANSCRIPT, PackedTranscript(data=pack(before)))
    run.signal(names.MESSAGE, text="Next")
    run.suggested = True
    run.signal(names.MESSAGE, text="More").reply("Yes.")
    handed = (run.next_start or {})["carry"]
    assert (handed["earlier"]["kind"], handed.get("keep_by"), handed["length"]) == ("packed", None, 4)


def test_a_run_that_ends_has_the_next_ones_tasks_time_out_soon() -> None:
    run = PlayedConversation(keep_open=60.0, task_timeout=timedelta(hours=1)).begin()
    (moved,) = run.of_kind("continue_as_new_workflow_execution")
    assert moved.attributes.workflow_task_timeout.ToTimedelta() == TASK_TIMEOUT


def test_the_next_run_is_of_the_same_chain() -> None:
    one = SimpleNamespace(id="chain", reset_run="reset")
    with pytest.MonkeyPatch.context() as patch:
        Run(patch)
        carried: Any = continue_as_new.carry_over(state(length=2), RecentMessages(""), one)  # type: ignore[arg-type]
    assert (carried.chain_id, carried.reset_run) == ("chain", "reset")
