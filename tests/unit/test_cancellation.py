"""Tasks that are cancelled: what came together with the cancellation counts, and each part is waited for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from everturn.workflows import cancellation
from everturn.workflows.cancellation import result_or_cancellation, run_together, stop_if_cancelled, wait_for_turn
from tests.support.activity_errors import activity_error
from tests.support.fake_sdk import FakeSdk, Scheduled, settle


def waiting(scheduled: Scheduled) -> asyncio.Task[Any]:
    return asyncio.create_task(result_or_cancellation(scheduled.task))


async def test_a_result_that_comes_together_with_a_cancellation_counts(fake_sdk: FakeSdk) -> None:
    scheduled = Scheduled("pay", None, {})
    task = waiting(scheduled)
    await settle()
    task.cancel()
    await scheduled.finish("paid")
    assert (await task).payload.data == b'"paid"'


@pytest.mark.parametrize("waits", [False, True])
async def test_without_a_result_the_activity_is_cancelled_and_its_end_waited_for(
    waits: bool, fake_sdk: FakeSdk
) -> None:
    scheduled = Scheduled("pay", None, {})
    scheduled.waits_if_cancelled = waits
    task = waiting(scheduled)
    await settle()
    task.cancel()
    await settle()
    assert (scheduled.asked_to_cancel, task.done()) == (True, not waits)
    if waits:
        task.cancel()  # once more
        await settle()
        assert not task.done()
        await scheduled.finish("paid after all")
        assert (await task).payload.data == b'"paid after all"'
    else:
        assert task.cancelled()


async def test_an_error_that_comes_together_with_a_cancellation_is_a_cancellation(fake_sdk: FakeSdk) -> None:
    scheduled = Scheduled("pay", None, {})
    task = waiting(scheduled)
    await settle()
    task.cancel()
    await scheduled.fail(ApplicationError("broken"))
    assert task.cancelled()


async def test_an_error_that_is_a_result_counts_too(fake_sdk: FakeSdk) -> None:
    scheduled = Scheduled("pay", None, {})
    task = asyncio.create_task(result_or_cancellation(scheduled.task, is_result=lambda error: str(error) == "broken"))
    await settle()
    task.cancel()
    await scheduled.fail(ApplicationError("broken"))
    with pytest.raises(ApplicationError, match="broken"):
        await task


class Turn:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hurried: list[str] = []
        self.lost: list[BaseException] = []
        self.workflow_cancelled: str | None = None
        monkeypatch.setattr(workflow, "extern_functions", lambda: {cancellation.CANCELLING: self.hurried.append})
        monkeypatch.setattr(workflow, "cancellation_reason", lambda: self.workflow_cancelled)
        self.model = Scheduled("call_model", None, {})
        self.model.waits_if_cancelled = True
        self.task = asyncio.create_task(wait_for_turn(self.model.task, on_lost=self.lost.append))


@pytest.fixture
async def turn(fake_sdk: FakeSdk, monkeypatch: pytest.MonkeyPatch) -> Turn:
    return Turn(monkeypatch)


async def test_a_turn_that_nobody_cancels_is_waited_for(turn: Turn) -> None:
    await settle()
    assert not turn.task.done()
    await turn.model.finish("Hello")
    await turn.task
    assert (turn.hurried, turn.lost) == ([], [])


async def test_a_turn_that_fails_raises_what_it_failed_with(turn: Turn) -> None:
    await turn.model.fail(ApplicationError("broken"))
    with pytest.raises(ApplicationError, match="broken"):
        await turn.task
    assert turn.lost == [], "nobody cancelled it"


async def test_a_cancelled_turn_hands_over_what_it_has(turn: Turn) -> None:
    await settle()
    turn.task.cancel()
    await settle()
    assert (turn.hurried, turn.model.asked_to_cancel, turn.task.done()) == (["run"], True, False)
    turn.task.cancel()
    await settle()
    assert (turn.hurried, turn.task.done()) == (["run"], False), "asked once, and its end is waited for"
    await turn.model.finish("Hel")
    await turn.task
    assert turn.lost == []


async def test_the_error_of_a_cancelled_turn_is_told(turn: Turn) -> None:
    await settle()
    turn.task.cancel()
    await settle()
    error = ApplicationError("silent")
    await turn.model.fail(error)
    assert (turn.task.cancelled(), turn.lost) == (True, [error])


async def test_a_reply_that_comes_together_with_a_cancellation_counts(turn: Turn) -> None:
    await settle()
    turn.task.cancel()
    await turn.model.finish("Hello")
    await turn.task
    assert (turn.hurried, turn.model.asked_to_cancel) == ([], False)


@pytest.mark.parametrize("when", ["at once", "later"])
async def test_with_its_workflow_a_cancelled_turn_is_not_waited_for(turn: Turn, when: str) -> None:
    await settle()
    if when == "at once":
        turn.workflow_cancelled = "enough"
    turn.task.cancel()
    await settle()
    if when == "later":
        assert not turn.task.done()
        turn.workflow_cancelled = "enough"
        turn.task.cancel()
        await settle()
    assert (turn.task.cancelled(), turn.lost) == (True, [])


async def test_what_comes_in_with_the_cancellation_of_the_workflow_counts(turn: Turn) -> None:
    await settle()
    turn.task.cancel()
    await settle()
    turn.workflow_cancelled = "enough"
    turn.task.cancel()
    await turn.model.finish("Hel")
    await turn.task


async def test_an_activity_that_somebody_else_cancelled_is_a_cancelled_turn(turn: Turn) -> None:
    turn.model.waits_if_cancelled = False
    await settle()
    turn.task.cancel()
    await settle()
    assert (turn.task.cancelled(), turn.lost) == (True, [])


@pytest.mark.parametrize("error", [asyncio.CancelledError(), activity_error(ApplicationError("cancelled"))])
async def test_of_parts_that_run_together_all_end_before_the_first_one_is_raised(
    error: BaseException, fake_sdk: FakeSdk
) -> None:
    ends: list[str] = []
    fails = asyncio.Event()
    ended = asyncio.Event()

    async def failing() -> None:
        await fails.wait()
        raise error

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            await ended.wait()
            ends.append("ended")
            raise

    together = asyncio.create_task(run_together(failing(), other()))
    await settle()
    assert ends == []
    fails.set()
    await settle()
    assert (ends, together.done()) == (["cancelled"], False)
    ended.set()
    await settle()
    assert ends == ["cancelled", "ended"]
    with pytest.raises(type(error)):
        await together


async def test_parts_that_are_cancelled_together_are_cancelled_once(fake_sdk: FakeSdk) -> None:
    cancelled: list[int] = []

    async def part() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await settle()
            cancelled.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]
            raise

    together = asyncio.create_task(run_together(part(), part()))
    await settle()
    together.cancel()
    for _ in range(3):
        await settle()
    assert (cancelled, together.cancelled()) == ([1, 1], True)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_who_was_cancelled_is_stopped_though_a_result_was_taken_first(*, cancelled: bool) -> None:
    async def part() -> str:
        with suppress(asyncio.CancelledError):  # a result came in with it
            await asyncio.Event().wait() if cancelled else None
        stop_if_cancelled()
        return "went on"

    task = asyncio.create_task(part())
    await settle()
    if cancelled:
        task.cancel()
        await settle()
    assert (task.cancelled() or task.result()) == (True if cancelled else "went on")


@pytest.mark.parametrize("ends", ["arrived", "failed", "cancelled"])
async def test_a_signal_that_nobody_waits_for_is_no_error_of_asyncios(ends: str, fake_sdk: FakeSdk) -> None:
    """Which the fixture would see."""

    async def signal() -> None:
        if ends == "failed":
            raise ApplicationError("it is over")
        if ends == "cancelled":
            raise asyncio.CancelledError

    cancellation.begin_signal(signal())
    await settle()
