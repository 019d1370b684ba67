"""A conversation of 2,000 turns whose worker is killed every 100: the transcript is that of one undisturbed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from benchmarks import work
from benchmarks.contestants import EVERTURN
from benchmarks.histories import attempts, runs_of
from benchmarks.long.checks import Report, requests_of, transcript_of
from benchmarks.rig import Rig, Worker, check_result, rig
from everturn.records import Message

TURNS, EVERY = 2_000, 100
HOLDS = 2 * EVERY
"""Every second kill comes while the model is certainly being asked: it takes minutes there, the first time."""

LONGEST_SECONDS = 1_500.0


async def run(folder: Path) -> Report:
    report = Report(f"{TURNS:,} turns, the worker killed every {EVERY}, half of the times in a model call")
    log = folder / "model.log"
    log.touch()
    async with rig(db_filename=folder / "killed.db", model_log=log, model_holds=HOLDS) as running:
        handle = await running.start(EVERTURN, turns=TURNS)
        started = time.perf_counter()
        async with asyncio.timeout(LONGEST_SECONDS), AsyncExitStack() as stack:
            result = asyncio.create_task(handle.result())
            kills, peak = await _kill_all_along(running, stack, log, result)
            check_result(handle, await result)
        report.tell("seconds", time.perf_counter() - started, ".0f")
        report.tell("kills", len(kills))
        requests = [*requests_of(log.read_text())]
        pauses = [min(at for at, _ in requests if at > killed) - killed for killed in kills]
        report.tell("seconds from a kill to the next model call, median", median(pauses), ".1f")
        report.tell("the longest", max(pauses), ".1f")
        report.most("worker's peak memory, MB", peak, 400, ".0f")
        transcript = await transcript_of(running, handle.id)
        report.same("the transcript is as it should be", transcript == _undisturbed(), True)
        # An attempt that completed is in the history; a request beyond the attempts that led there was one too many.
        completed = attempts(await runs_of(running.client, handle.id), "call_model")
        asked = Counter(turn for _, turn in requests)
        again = sum(asked[turn] > attempt for turn, attempt in enumerate(completed))
        report.same("model calls in the history", len(completed), TURNS + 1)
        report.same("completed model calls that were made again", again, 0)
        report.tell("model calls that a kill broke off", sum(asked.values()) - len(completed))
    return report


async def _kill_all_along(
    running: Rig, stack: AsyncExitStack, log: Path, result: asyncio.Task[object]
) -> tuple[list[float], float]:
    """When workers were killed, and the largest peak of their memory in MB."""
    kills: list[float] = []
    worker, peak, next_kill = await _another(running, stack), 0.0, EVERY
    while not result.done():
        await asyncio.sleep(0.02)
        worker.check()
        turn = _last_turn(log)
        if turn >= next_kill and turn < TURNS:
            peak = max(peak, worker.peak_rss_mb())
            worker.kill()
            kills.append(time.time())
            next_kill += EVERY
            worker = await _another(running, stack)
    return kills, max(peak, worker.peak_rss_mb())


def _last_turn(log: Path) -> int:
    return int((log.read_bytes()[-40:].split() or [b"0"])[-1])


async def _another(running: Rig, stack: AsyncExitStack) -> Worker:
    return await stack.enter_async_context(running.worker(EVERTURN, warm=False))


def _undisturbed() -> list[str]:
    """The transcript that the script leads to, as JSON."""
    from everturn.records import Text, ToolCall, ToolResult

    messages = [Message.user(work.opening(TURNS))]
    for turn in range(TURNS):
        call = ToolCall(call_id=f"call_{turn}_0", name="lookup", arguments={"number": turn})
        content = (Text(text=work.looked_up(turn)),)
        result = ToolResult(call_id=call.call_id, name=call.name, content=content)
        messages += [Message(role="assistant", parts=(call,)), Message(role="tool", parts=(result,))]
    messages.append(Message(role="assistant", parts=(Text(text=work.LAST_WORDS),)))
    return [message.model_dump_json() for message in messages]
