"""User code that hangs, blocks, dies or lies: what comes of it, and what goes on beside it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from everturn import tool
from everturn.heartbeats.heartbeat import Heartbeat
from everturn.tools import user_code
from everturn.tools.arguments import InvalidArguments
from everturn.tools.context import ToolContext
from everturn.tools.results import MAX_ITEMS, safe_error_text, to_parts
from everturn.tools.user_code import NoThread, Threads, TookTooLong
from tests.support.bounds import Bounds, as_code
from tests.support.waiting import eventually

CONTEXT = ToolContext()
SOON = 0.05


class Neither(BaseException):
    """No Exception, and none of Python's own."""


def raising(error: BaseException) -> Callable[[], Any]:
    def throw() -> None:
        raise error

    return throw


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(60)


async def cancels_itself_and_returns() -> str:
    task = asyncio.current_task()
    assert task
    task.cancel()
    return "done"


ENDS = [
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(2),
    GeneratorExit(),
    StopIteration(),
    StopAsyncIteration(),
    Neither(),
    BaseExceptionGroup("several", [KeyboardInterrupt()]),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
async def test_whatever_it_raises_comes_out_as_an_exception(error: BaseException, is_async: bool) -> None:
    async def throw() -> None:
        raise error

    with pytest.raises(Exception) as raised:
        await user_code.call(throw if is_async else raising(error), seconds=30)
    said = "sys.exit(2)" if isinstance(error, SystemExit) else type(error).__name__
    assert said in repr(raised.value)


@pytest.mark.parametrize("function", [cancels_itself, cancels_itself_and_returns])
async def test_a_task_that_cancels_itself_is_not_the_callers(function: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="raised CancelledError"):
        await user_code.call(function, seconds=30)
    task = asyncio.current_task()
    assert task
    assert not task.cancelling()


async def test_what_blocks_is_left_behind_after_its_time(stuck: Callable[[], Any]) -> None:
    with pytest.raises(TookTooLong):
        await user_code.call(stuck, seconds=SOON)


async def test_what_refuses_to_be_cancelled_is_left_behind_and_the_loop_can_close(
    bounds: Bounds,
) -> None:
    bounds(clean_up_seconds=SOON)
    over = False

    async def refuses() -> None:
        while not over:
            try:
                await asyncio.sleep(SOON / 5)
            except asyncio.CancelledError:
                continue

    with pytest.raises(TookTooLong):
        await user_code.call(refuses, seconds=SOON)
    left_behind = user_code._cancelled
    assert left_behind
    assert not left_behind & asyncio.all_tasks(), "asyncio.run would wait for it"
    over = True
    await eventually(lambda: not user_code._cancelled)


@pytest.mark.parametrize("how", ["its time", "a cancellation"])
async def test_what_ends_in_time_to_clean_up_keeps_its_result(how: str) -> None:
    begun = asyncio.Event()

    async def cleans_up() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "cleaned up"
        return "slept"

    running = asyncio.create_task(user_code.call(cleans_up, seconds=SOON if how == "its time" else None))
    await begun.wait()
    if how == "a cancellation":
        running.cancel()
    assert await running == "cleaned up"


async def test_a_cancellation_of_the_callers_is_one() -> None:
    begun = asyncio.Event()

    async def sleeps() -> None:
        begun.set()
        await asyncio.sleep(60)

    running = asyncio.create_task(user_code.call(sleeps, seconds=None))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_threads_that_are_stuck_are_no_wait_for_others(stuck: Callable[[], Any]) -> None:
    threads = Threads(most=3)

    async def one_is_stuck() -> None:
        begun = threading.Event()

        def never_ends() -> None:
            begun.set()
            stuck()

        while not begun.is_set():  # on a busy machine, it may be called off before its thread begins
            with pytest.raises(TookTooLong):
                await user_code.call(never_ends, seconds=SOON, threads=threads)

    for _ in range(2):
        await one_is_stuck()
    for number in range(20):  # all of them in the one that is left
        assert await user_code.call(lambda number=number: number, seconds=30, threads=threads) == number
    await one_is_stuck()
    with pytest.raises(NoThread, match="stuck"):
        await user_code.call(lambda: "never", seconds=30, threads=threads)
    threads.shutdown()


async def test_idle_threads_end_with_their_pool() -> None:
    threads = Threads()
    names = {await user_code.call(threading.current_thread, seconds=30, threads=threads) for _ in range(3)}
    threads.shutdown()
    await eventually(lambda: not any(thread.is_alive() for thread in names))


def test_a_process_ends_though_threads_and_tasks_are_stuck() -> None:
    program = f"""
import asyncio, threading
from everturn.tools.tool import user_code
{as_code(clean_up_seconds=0.05)}
async def refuses():
    while True:
        try: await asyncio.sleep(60)
        except asyncio.CancelledError: pass
async def main():
    for function in (threading.Event().wait, refuses):
        try: await user_code.call(function, seconds=0.05)
        except user_code.TookTooLong: print("left", flush=True)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["left", "left"]), done.stderr
    assert "Task was destroyed" not in done.stderr


# ---------------------------------------------------------------- what it returns


@dataclass
class Page:
    rows: Any


class Model(BaseModel):
    rows: Any


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (itertools.count(), "100,000 items"),
        (map(str, itertools.count()), "100,000 items"),
        ({"rows": itertools.count()}, "100,000 items"),
        ([{"rows": itertools.repeat(1)}], "100,000 items"),
        (Page(itertools.count()), "may never end"),
        (Model(rows=[itertools.count()]), "may never end"),
        ({1: Page({2: itertools.count()})}, "may never end"),
    ],
)
def test_what_never_ends_is_refused_before_it_fills_the_memory(value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        to_parts(value)


def test_an_iterator_that_ends_is_a_list() -> None:
    for value in ((n for n in range(3)), iter([0, 1, 2]), map(int, "012")):
        assert to_parts(value)[0].text == "[0,1,2]"  # type: ignore[union-attr]
    assert len(to_parts(list(range(MAX_ITEMS + 5)))) == 1, "a list has ended, however long it is"


async def test_an_exception_whose_words_never_end_is_known_by_its_name(
    stuck: Callable[[], Any], bounds: Bounds
) -> None:
    bounds(error_seconds=SOON)

    class Silent(Exception):
        def __str__(self) -> str:
            return str(stuck())

    class Rude(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert await safe_error_text(Silent()) == "Silent"
    assert await safe_error_text(Rude()) == "Rude"


class Speechless:
    def __repr__(self) -> str:
        raise KeyError("no words")


async def test_progress_is_taken_as_it_is_now_and_whatever_it_is_it_can_be_sent() -> None:
    beat = Heartbeat(b"", asyncio.get_running_loop())
    done = {"pages": [1]}
    beat.report_progress(done)
    done["pages"].append(2)
    assert beat.progress == {"pages": [1]}
    for progress, said in [(itertools.count(), "count(0)"), (Speechless(), "Speechless"), ("x" * 100_000, '"xxx')]:
        beat.report_progress(progress)
        assert beat.progress.startswith(said)
        assert len(beat.progress) <= 1000


# ---------------------------------------------------------------- predicates and validators


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_predicate_that_raises_anything_asks_a_person(error: BaseException, is_async: bool) -> None:
    async def later(_: dict[str, Any]) -> bool:
        raise error

    def at_once(_: dict[str, Any]) -> bool:
        raise error

    @tool(needs_approval=later if is_async else at_once)
    def refund(cents: int) -> str: ...

    assert await refund.needs_decision({"cents": 1}) is True


async def test_a_predicate_that_hangs_asks_a_person(stuck: Callable[[], Any], bounds: Bounds) -> None:
    bounds(quick_seconds=SOON)

    @tool(needs_approval=lambda _: stuck())
    def refund(cents: int) -> str: ...

    class Unsure:
        def __bool__(self) -> bool:
            return bool(stuck())

    @tool(needs_approval=lambda _: Unsure())  # type: ignore[arg-type, return-value]
    def credit(cents: int) -> str: ...

    assert await refund.needs_decision({"cents": 1}) is True
    assert await credit.needs_decision({"cents": 1}) is True


@pytest.mark.parametrize("how", ["hangs", "exits"])
async def test_a_validator_that_hangs_or_exits_refuses_the_arguments(
    how: str, stuck: Callable[[], Any], bounds: Bounds
) -> None:
    bounds(quick_seconds=SOON)

    class Order(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def exists(cls, number: int) -> int:
            if how == "exits":
                raise SystemExit(1)
            stuck()
            return number

    @tool
    def refund(order: Order) -> str: ...

    with pytest.raises(InvalidArguments, match="could not be checked"):
        await refund.checked({"number": 1})


async def test_a_tool_has_not_begun_while_another_blocks_the_loop_before_it() -> None:
    """What the journal says has begun may have taken effect: a person is asked if its worker is killed."""
    begun, begun_by_then = list[str](), list[list[str]]()

    async def pay(order: str) -> str:
        begun_by_then.append([*begun])  # a worker that is killed in here leaves no more than that
        return f"paid {order}"

    runs = (
        tool(pay).run({"order": order}, CONTEXT, on_begin=partial(begun.append, order)) for order in ("81", "82", "83")
    )
    await asyncio.gather(*runs)
    assert begun_by_then == [["81"], ["81", "82"], ["81", "82", "83"]]
