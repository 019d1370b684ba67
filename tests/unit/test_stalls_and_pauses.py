"""A conversation that is stalled or paused waits for `resume`, and says how long it did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everturn import names
from everturn.calls.unreadable_inputs import MOST_NAMED, STALLED_BY_SIGNALS
from everturn.tracing import WaitSpan
from everturn.workflows.message_dispatch import LostSignal
from everturn.workflows.stalls_and_pauses import StallsAndPauses
from tests.support.fake_sdk import FakeSdk, ReplyParts, settle


class Held:
    def __init__(self, reply: ReplyParts) -> None:
        self.reply = reply
        self.state = reply.state
        self.stalls: StallsAndPauses = reply.commands.stalls_and_pauses

    async def stall(self, cause: str = "no worker") -> asyncio.Task[None]:
        task = asyncio.create_task(self.stalls.wait_while_stalled(cause, "start one"))
        await settle()
        return task

    async def send(self, command: str, **payload: Any) -> None:
        await self.reply.send(command, **payload)

    @property
    def spans(self) -> list[WaitSpan]:
        trace = self.reply.tracing.of_turn()
        assert trace
        return [*trace.waits]


@pytest.fixture
async def held(reply: ReplyParts, fake_sdk: FakeSdk) -> Held:
    reply.state.answering = True
    return Held(reply)


async def test_a_stalled_conversation_waits_until_somebody_resumes_it(held: Held) -> None:
    changes = held.reply.changes
    task = await held.stall()
    assert held.state.stall
    assert (held.state.stall.cause, held.state.stall.cure, held.stalls.is_held) == ("no worker", "start one", True)
    assert held.reply.changes > changes
    held.reply.sdk.time += 60
    await held.send(names.RESUME, by="ann")
    assert task.done()
    assert not held.stalls.is_held
    (span,) = held.spans
    assert (span.reason, span.since, span.until, span.verdict, span.by) == (
        "stalled",
        1_000.0,
        1_060.0,
        names.RESUME,
        "ann",
    )


async def test_several_calls_that_wait_for_one_resume_are_one_wait(held: Held) -> None:
    tasks = [await held.stall("one"), await held.stall("two")]
    await held.send(names.RESUME)
    assert all(task.done() for task in tasks)
    assert len(held.spans) == 1


async def test_a_stall_that_is_cancelled_was_ended_by_nobody(held: Held) -> None:
    held.stalls.ended_by = names.RESUME, "ann"  # of an earlier one
    task = await held.stall()
    task.cancel()
    await settle()
    assert not held.stalls.is_held
    assert [(span.verdict, span.by) for span in held.spans] == [("", "")]


async def test_a_resume_that_comes_together_with_its_stall_counts_for_this_one_only(held: Held) -> None:
    held.reply.commands.handlers.take_signal(names.RESUME, ({"by": "ann"},))
    held.reply.commands.handlers.take_signal(names.RESUME, ({"by": "bob"},))
    assert (await held.stall()).done()
    assert held.stalls.ended_by == (names.RESUME, "ann")
    second = await held.stall()
    assert not second.done()


async def test_a_resume_of_an_earlier_workflow_task_does_not_count(held: Held) -> None:
    held.reply.commands.handlers.take_signal(names.RESUME, ({},))
    held.reply.sdk.time += 1
    assert not (await held.stall()).done()


async def test_a_paused_conversation_waits_and_shows_it(held: Held) -> None:
    await held.stalls.wait_while_paused()
    assert held.spans == []
    await held.send(names.PAUSE)
    changes = held.reply.changes
    task = asyncio.create_task(held.stalls.wait_while_paused())
    await settle()
    assert (task.done(), held.stalls.is_held, held.reply.changes) == (False, True, changes + 1)
    await held.send(names.RESUME, by="bob")
    assert task.done()
    assert [(span.reason, span.by) for span in held.spans] == [("paused", "bob")]


async def test_a_stall_beside_a_pause_is_another_wait(held: Held) -> None:
    await held.send(names.PAUSE)
    pause = asyncio.create_task(held.stalls.wait_while_paused())
    stall = await held.stall()
    await held.send(names.RESUME, only_stalled=True)
    assert (stall.done(), pause.done(), held.stalls.is_held) == (True, False, True)


def lost(count: int, *, problem: str = "no key") -> list[LostSignal]:
    return [LostSignal(number, f"signal-{number}", problem if number == 2 else "") for number in range(1, count + 1)]


async def test_signals_that_can_not_be_read_stall_the_conversation_some_at_a_time(held: Held) -> None:
    held.reply.commands.handlers.lost = lost(MOST_NAMED + 1)
    task = asyncio.create_task(held.stalls.stall_if_signals_were_lost())
    await settle()
    numbers = ",".join(map(str, range(1, MOST_NAMED + 1)))
    assert held.reply.sdk.markers == [f"{STALLED_BY_SIGNALS}{numbers}"]
    assert held.state.stall
    assert all(text in held.state.stall.cause for text in ("signal-1", f"signal-{MOST_NAMED}", "no key"))
    assert f"signal-{MOST_NAMED + 1}" not in held.state.stall.cause
    await held.send(names.RESUME)
    assert held.state.stall
    assert f"signal-{MOST_NAMED + 1}" in held.state.stall.cause
    assert held.reply.sdk.markers[1:] == [f"{STALLED_BY_SIGNALS}{MOST_NAMED + 1}"]
    await held.send(names.RESUME)
    assert task.done()
    assert held.state.name != "stalled"


async def test_signals_that_were_lost_hold_up_no_conversation_that_is_closed(held: Held) -> None:
    held.reply.commands.handlers.lost = lost(1)
    held.state.closing = True
    await held.stalls.wait_while_paused()
    assert held.reply.sdk.markers == []
