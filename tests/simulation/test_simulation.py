"""Some conversations on a simulated Temporal, each checked after every step: see `make sim` for more."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from everturn.activities import planning
from everturn.state import State
from everturn.storage.data_converter import data_converter
from everturn.workflows import tool_calls
from everturn.workflows.conversation import ConversationWorkflow
from tests.simulation import many
from tests.simulation.chance import Chances
from tests.simulation.many import WORLDS_AT_A_TIME, Batch, live_through
from tests.simulation.rules.checks import Checks
from tests.simulation.show import story
from tests.simulation.shrink import shrunk
from tests.simulation.temporal import clock
from tests.simulation.temporal.history import NAMES
from tests.simulation.world import Draw, Result, bounds, run

FIRST_OF_MANY = 101
MANY = int(os.environ.get("SIMULATED_CONVERSATIONS", "60"))
"""How many are lived through here; `make sim` lives through ten thousand."""


@pytest.mark.timeout(1200)
def test_every_invariant_holds_in_many_conversations() -> None:
    report = live_through(Batch(seed=FIRST_OF_MANY, count=MANY, jobs=2))
    print(report)
    assert not report.broken, str(report)
    assert report.conversations >= MANY >= report.worlds - 2 * WORLDS_AT_A_TIME
    for what in ("kills", "network cuts", "drains", "activity retries", "local activities", "sticky timeouts"):
        assert report.counts[what], f"no world had {what}"


def test_a_rule_that_fails_breaks_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody awaits the worker's task that it is called in: its error was lost."""

    def fails(*_: object) -> None:
        raise AttributeError("no such field")

    monkeypatch.setattr(Checks, "_ruled", fails)
    broken = run(1).broken
    assert broken
    assert "a rule failed: AttributeError: no such field, in fails" in broken[0]


def test_a_world_that_goes_round_in_circles_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "LOGICAL_STEPS", 100)
    assert run(1).broken[0].startswith("it does not end: after 101 steps and")


def test_a_world_that_never_comes_to_its_next_step_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(clock, "MOST_SECONDS", 0.2)
    monkeypatch.setattr(Checks, "_ruled", hangs)
    assert run(1).broken[0].startswith("it does not end: a step took")


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_a_process_that_ends_breaks_its_world_and_no_other(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = many.Process()
    process.live_through([1, 2])
    if how == "killed":
        os.kill(process.pid, signal.SIGKILL)
    else:
        monkeypatch.setattr(many, "SILENT_SECONDS", 0.0)
        process.end_if_silent()
    try:
        first, second = process.next_result(), process.next_result()
    finally:
        process.end()
    assert (first.seed, second.seed) == (1, 2)
    assert first.broken[0].startswith("its process ended in the middle of it")
    assert second.broken == []


async def test_temporals_own_replayer_takes_the_histories() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(1_000, 1_025):
        result = run_beside(seed)
        for conversation_id, events in result.histories:
            kinds.update(NAMES[event.event_type] for event in events)
            await replay(result, conversation_id, events)
    for kind in (
        *("workflow_execution_signaled", "workflow_execution_update_accepted", "workflow_execution_continued_as_new"),
        *("activity_task_failed", "timer_started", "marker_recorded", "workflow_task_timed_out"),
    ):
        assert kinds[kind], f"no history had {kind}"


async def replay(result: Result, conversation_id: str, events: Sequence[HistoryEvent]) -> None:
    options: dict[str, Any] = {"workflow_runner": UnsandboxedWorkflowRunner(), "debug_mode": True}
    replayer = Replayer(workflows=[ConversationWorkflow], data_converter=data_converter, **options)
    with bounds(result.draw):
        await replayer.replay_workflow(WorkflowHistory(conversation_id, events))


def run_beside(seed: int) -> Result:
    """Beside pytest's own loop, which stands still meanwhile."""
    import asyncio

    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return run(seed, keep=True)
    finally:
        asyncio._set_running_loop(loop)
        asyncio.set_event_loop(loop)


def test_a_seed_is_the_same_world_each_time() -> None:
    first, second = run(16, keep=True), run(16, keep=True)
    assert first.counts == second.counts
    assert _written(first) == _written(second)


def test_each_workflow_task_starts_later_than_the_one_before() -> None:
    for seed in range(1, 12):
        for _, events in run(seed, keep=True).histories:
            times = [event.event_time.ToMicroseconds() for event in events]
            assert times == sorted(times)
            begun = [at for at, event in zip(times, events, strict=True) if _is_start(event)]
            assert len({*begun}) == len(begun)


def _is_start(event: HistoryEvent) -> bool:
    return NAMES[event.event_type] == "workflow_task_started"


def test_who_draws_more_often_moves_nobody_else() -> None:
    quiet, busy = (Chances("7/server") for _ in range(2))
    drawn = [busy.of("a reader").random() for _ in range(100)]
    assert len({*drawn}) == 100
    assert [quiet.of("talk-7 0").random() for _ in range(3)] == [busy.of("talk-7 0").random() for _ in range(3)]


def test_each_conversation_counts_that_was_begun() -> None:
    seed = next(seed for seed in range(1, 200) if Draw.of(seed).forks and run(seed).conversations > 1)
    report = live_through(Batch(seed=seed, count=2, jobs=1))
    assert (report.worlds, report.conversations) == (1, run(seed).conversations)


def _written(result: Result) -> list[bytes]:
    return [event.SerializeToString(deterministic=True) for _, events in result.histories for event in events]


def _loses_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    close = tool_calls.OpenCalls.close_reply
    monkeypatch.setattr(tool_calls.OpenCalls, "close_reply", lambda self, why: close(self, why)[:3])


def _asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no(*_: object) -> bool:
        return False

    monkeypatch.setattr(planning, "_needs_decision", no)


def _forgets_message_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = State.receive_message
    monkeypatch.setattr(State, "receive_message", lambda self, message, message_id=None: receive(self, message, None))


@pytest.mark.parametrize("mistake", [_loses_a_result, _asks_nobody, _forgets_message_ids])
def test_a_mistake_is_found(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert any(run(seed).broken for seed in range(1, 200))


@pytest.mark.long
def test_what_is_broken_is_shown_in_a_small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    _asks_nobody(monkeypatch)
    found = next(result for seed in range(1, 200) if (result := run(seed)).broken)
    draw = shrunk(found)
    small = run(draw.seed, draw=draw, keep=True)
    lines = list(story(small))
    assert small.broken
    assert len(lines) <= len(list(story(run(found.seed, keep=True))))
    assert lines[-1].startswith("BROKEN: ")
    assert any("without an approval" in line for line in lines)
