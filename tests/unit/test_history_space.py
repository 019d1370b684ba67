"""How the room of a run's history is shared: who gets how much of it, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from everturn.sizes import (
    FAIR_BYTES,
    LEAST_RESULT_BYTES,
    LOCAL_BYTES,
    MAX_RESULT_BYTES,
    MOST_LOCAL,
    RUN_BYTES,
    SMALL_DECISION_BYTES,
    TASK_BYTES,
    TEMPORAL_PAYLOAD_BYTES,
)
from everturn.workflows.history_space import HistorySpace, left_in_run, too_full_for


class Run:
    """Workflow tasks follow each other whenever somebody sleeps; a wait that is not over ends the test's own wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = 0
        self.length = 10
        self.slept = 0
        self.before_wait: Callable[[], None] = lambda: None
        self.waited: list[bool] = []
        monkeypatch.setattr(workflow, "info", lambda: self)
        monkeypatch.setattr(workflow, "sleep", self._sleep)
        monkeypatch.setattr(workflow, "wait_condition", self._wait)
        monkeypatch.setattr(workflow, "current_update_info", lambda: SimpleNamespace(id="u"))

    def get_current_history_size(self) -> int:
        return self.size

    def get_current_history_length(self) -> int:
        return self.length

    async def _sleep(self, *_: Any, **__: Any) -> None:
        self.slept += 1
        self.length += 5

    async def _wait(self, over: Callable[[], bool]) -> None:
        self.waited.append(over())
        self.before_wait()
        self.waited.append(over())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def test_nothing_is_left_of_a_run_that_is_too_large(run: Run) -> None:
    left = []
    for size in (0, RUN_BYTES - 1, RUN_BYTES, RUN_BYTES + 1):
        run.size = size
        left.append(left_in_run())
    assert left == [RUN_BYTES, 1, 0, 0]


@pytest.mark.parametrize("left", [0, SMALL_DECISION_BYTES, SMALL_DECISION_BYTES + 1_000])
def test_what_is_small_or_has_room_is_taken(left: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.size = RUN_BYTES - left
    most = max(left, SMALL_DECISION_BYTES)
    assert too_full_for(most) == ""
    assert too_full_for(most + 1).startswith(f"It has {most + 1:,} bytes")
    monkeypatch.setattr(workflow, "current_update_info", lambda: None)
    assert too_full_for(most + 1) == ""


async def test_a_call_gets_what_is_left_without_what_others_need(run: Run) -> None:
    space = HistorySpace()
    assert await space.allot_share(request=0, other_calls=0) == MAX_RESULT_BYTES
    assert await space.allot_share(request=0, other_calls=0, max_bytes=77_000) == 77_000
    run.size = RUN_BYTES - FAIR_BYTES - 20_000
    with space.promised("x", 3_000):
        share = await space.allot_share(request=1_000, other_calls=2)
    assert share == FAIR_BYTES + 20_000 - 3_000 - 1_000 - 2 * LEAST_RESULT_BYTES
    run.size = RUN_BYTES
    assert await space.allot_share(request=1_000, other_calls=2) == LEAST_RESULT_BYTES
    assert await space.allot_share(request=1_000, other_calls=2, max_bytes=1) == LEAST_RESULT_BYTES
    assert run.waited == []


@pytest.mark.parametrize("ends", ["all of it", "enough of it", "too little of it"])
async def test_a_call_waits_until_what_was_promised_is_there_or_suffices(ends: str, run: Run) -> None:
    space = HistorySpace()
    space._promised = {"a": RUN_BYTES - 1_000, "b": FAIR_BYTES}
    run.size = 1_000

    def end() -> None:
        if ends == "all of it":
            space._promised.clear()
            run.size = RUN_BYTES
        if ends == "enough of it":
            del space._promised["a"]
            run.size = RUN_BYTES - 2 * FAIR_BYTES

    run.before_wait = end
    await space.allot_share(request=0, other_calls=0)
    assert run.waited == [False, ends != "too little of it"]


async def test_local_calls_keep_room_for_the_others_of_their_task(run: Run) -> None:
    space = HistorySpace()
    first = await space.allot_share(request=1_000, other_calls=3, max_bytes=50_000, local=True)
    assert first == 50_000
    second = await space.allot_share(request=1_000, other_calls=2, max_bytes=TASK_BYTES, local=True)
    assert second == TASK_BYTES - 2 * 1_000 - 50_000 - 2 * LOCAL_BYTES
    third = await space.allot_share(request=1_000, other_calls=1, max_bytes=TASK_BYTES, local=True)
    assert (third, run.slept) == (2 * LOCAL_BYTES - 1_000 - LOCAL_BYTES, 0)
    fourth = await space.allot_share(request=LOCAL_BYTES, other_calls=0, max_bytes=TASK_BYTES, local=True)
    assert (fourth, run.slept) == (LEAST_RESULT_BYTES, 0)
    fifth = await space.allot_share(request=1_000, other_calls=0, max_bytes=TASK_BYTES, local=True)
    assert (fifth, run.slept) == (TASK_BYTES - 1_000, 1)


async def test_many_local_calls_keep_a_little_for_each(run: Run) -> None:
    shares = []
    for others in (MOST_LOCAL - 1, MOST_LOCAL, MOST_LOCAL + 1):
        space = HistorySpace()
        shares.append(await space.allot_share(request=0, other_calls=others, max_bytes=TASK_BYTES, local=True))
    kept = (MOST_LOCAL - 1) * LOCAL_BYTES, MOST_LOCAL * LEAST_RESULT_BYTES, (MOST_LOCAL + 1) * LEAST_RESULT_BYTES
    assert shares == [TASK_BYTES - each for each in kept]


async def test_a_local_call_gets_no_more_than_its_share_of_the_run(run: Run) -> None:
    run.size = RUN_BYTES - 100_000
    share = await HistorySpace().allot_share(request=1_000, other_calls=1, max_bytes=TASK_BYTES, local=True)
    assert share == 100_000 - 1_000 - LEAST_RESULT_BYTES


@pytest.mark.parametrize(("beside", "whole"), [(-1, False), (0, True), (1, True)])
async def test_a_result_that_nobody_cuts_needs_a_whole_payload(beside: int, run: Run, *, whole: bool) -> None:
    space = HistorySpace()
    run.size = RUN_BYTES - TEMPORAL_PAYLOAD_BYTES - 1_000 - 3 * LEAST_RESULT_BYTES - beside
    assert await space.allot_whole(request=1_000, other_calls=3) == (TEMPORAL_PAYLOAD_BYTES if whole else 0)


async def test_what_has_just_come_is_counted_until_the_next_task(run: Run) -> None:
    space = HistorySpace()
    run.size = RUN_BYTES - TEMPORAL_PAYLOAD_BYTES - 1_500
    for call_id in ("a", "b"):
        with space.promised(call_id, 1_000):
            pass
    assert await space.allot_whole(request=0, other_calls=0) == TEMPORAL_PAYLOAD_BYTES
    assert run.slept == 1


def test_what_a_stopped_worker_left_is_not_counted(run: Run) -> None:
    async def begin() -> tuple[HistorySpace, Any]:
        space = HistorySpace()
        promised = space.promised("a", TEMPORAL_PAYLOAD_BYTES)
        promised.__enter__()
        return space, promised

    space, promised = asyncio.run(begin())
    promised.__exit__(None, None, None)  # no loop runs
    run.size = RUN_BYTES - TEMPORAL_PAYLOAD_BYTES

    assert asyncio.run(space.allot_whole(request=0, other_calls=0)) == TEMPORAL_PAYLOAD_BYTES
    assert run.slept == 0


async def test_a_task_carries_so_much_and_the_next_one_the_rest(run: Run) -> None:
    space = HistorySpace()
    await space.wait_to_carry(2 * TASK_BYTES)  # the first one always, however large
    assert run.slept == 0
    await space.wait_to_carry(TASK_BYTES - 1)
    assert run.slept == 1
    await space.wait_to_carry(1)
    assert run.slept == 1
    await space.wait_to_carry(1)
    assert run.slept == 2


async def test_nothing_to_carry_waits_for_nothing(run: Run) -> None:
    space = HistorySpace()
    await space.wait_to_carry(TASK_BYTES)
    await space.wait_to_carry(0)
    assert run.slept == 0
    run.length += 1
    await space.wait_to_carry(TASK_BYTES)
    assert run.slept == 0
