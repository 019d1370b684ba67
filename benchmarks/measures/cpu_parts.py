"""Where the CPU of a short turn goes in a worker, part by part: everturn beside the floor with the same HTTP hop.

py-spy looks at both workers 250 times a second while each holds its conversations in turn, and counts who has Python's
lock, also if the machine has put that thread aside. What Temporal's core does in threads of its own is in the total and
in no part. It has to be allowed to look at other processes: root, or `kernel.yama.ptrace_scope` 0. So it is run by its
name alone, and not with all the others.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.contestants import EVERTURN, FLOOR_HTTP
from benchmarks.measures import Column, Measured, Plan
from benchmarks.measures.latency import WARM_UPS, one_conversation
from benchmarks.rig import RESULTS, Rig, Worker

LOOKS_A_SECOND = 250
ROUNDS_FOR_EACH = 9
"""Of the plan's rounds: the parts are small, and a look every 4 ms sees few of them."""
CONTESTANTS = (FLOOR_HTTP, EVERTURN)


@dataclass(frozen=True)
class Part:
    name: str
    frames: str
    """A regular expression for the frames of a stack that belongs to it, if it belongs to none before."""
    buys: str


PARTS = (
    Part("log lines", r"structlog/|logging/__init__", "two lines for each turn and call, in one form, without keys"),
    Part(
        "the workflow's tasks",
        r"temporalio/worker/_workflow|workflow_sandbox|_run_step|bridge/_visitor|complete_workflow_activation",
        "approvals, rules, limits, messages in between, continue-as-new: the floor's loop has none",
    ),
    Part("httpx", r"httpx/|httpcore/|AsyncClient", "the same exchange"),
    Part("the request is made", r"prepare_request", "four protocols from one transcript; the floor's is in httpx"),
    Part("the reply is read", r"_read_reply", "read as it is written: text for who watches, and bounds on its size"),
    Part(
        "what stands before a model's call",
        r"model_call|_reply_of_model|within_limit",
        "rate limits, keys, retries, time limits",
    ),
    Part("calls are planned", r"plan_calls|_plan_reply", "arguments are checked, rules are asked: in the turn itself"),
    Part(
        "the prefix is remembered",
        r"prefix_cache",
        "a history that does not grow with the square of the turns",
    ),
    Part("the rest of a turn", r"ModelTurns", "hooks, guardrails, instructions, costs, sizes in bytes"),
    Part("the tool's call", r"ToolCalls", "what it may take, what it returned or raised, its context"),
    Part(
        "a call is handed over",
        r"lost_workers|heartbeats|complete_activity_task|poll_activity_task",
        "the journal: what never began runs again without a person, what is lost is taken over in 5 s",
    ),
    Part("payloads", r"converter|pydantic|records\.py", "records that are checked, and that any language can read"),
    Part("the SDK's activities", r"worker/_activity\.py", "the same"),
    Part("the event loop", r"asyncio|selectors|concurrent|threading", "the same"),
)
OTHER, TOTAL = "the rest", "in all, with Temporal's core"


async def measure(rig: Rig, plan: Plan) -> Measured:
    await asyncio.to_thread(peers.make)  # py-spy is in their environment
    rounds = plan.rounds * ROUNDS_FOR_EACH
    cpu_ms: defaultdict[str, float] = defaultdict(float)
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(rig.worker(contestant)) for contestant in CONTESTANTS]
        for number in range(WARM_UPS):
            for worker in workers:
                await one_conversation(rig, worker, number, turns=plan.turns)
        async with AsyncExitStack() as watched:
            stacks = [await watched.enter_async_context(_stacks_of(worker)) for worker in workers]
            for number in range(rounds):
                for worker in workers[:: 1 if number % 2 else -1]:
                    sample = await one_conversation(rig, worker, number, turns=plan.turns)
                    cpu_ms[worker.contestant.name] += sample.worker_cpu_ms / rounds
    look_ms = 1000 / LOOKS_A_SECOND / (rounds * plan.turns)
    parts = [_ms_by_part(path, look_ms) for path in stacks]
    rows = {part.name: _row(*(ms[part.name] for ms in parts), buys=part.buys) for part in PARTS}
    rows[OTHER] = _row(*(ms[OTHER] for ms in parts))
    rows[TOTAL] = _row(*(cpu_ms[contestant.name] for contestant in CONTESTANTS))
    columns = [
        *(Column(contestant.name, f"{contestant.name}, ms", ".2f", better=None) for contestant in CONTESTANTS),
        Column("more", "more, ms", "+.2f", better=None),
        Column("buys", "what it buys", "s", better=None),
    ]
    title = f"The CPU of a short turn, by its parts ({rounds} conversations of {plan.turns} turns)"
    return Measured(title, columns, rows)


def _row(floor_ms: float, own_ms: float, *, buys: str = "") -> dict[str, float | str]:
    return {FLOOR_HTTP.name: floor_ms, EVERTURN.name: own_ms, "more": own_ms - floor_ms, "buys": buys}


@asynccontextmanager
async def _stacks_of(worker: Worker) -> AsyncIterator[Path]:
    """The file that has them when the block is over: one line for each stack, with how often it was seen."""
    path = RESULTS / f"stacks-{worker.contestant.name}.txt"
    command = [str(Path(peers.PYTHON).with_name("py-spy")), "record", "--pid", str(worker.process.pid)]
    command += ["--rate", str(LOOKS_A_SECOND), "--duration", "3600", "--format", "raw", "--output", str(path)]
    command += ["--gil", "--nonblocking"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield path
    finally:
        process.send_signal(signal.SIGINT)
        _, error = await process.communicate()
    if not path.exists():
        raise RuntimeError(
            f"py-spy could not look at the worker of {worker.contestant.name!r}: {error.decode()[-500:]}"
        )


def _ms_by_part(path: Path, look_ms: float) -> defaultdict[str, float]:
    """Of a turn."""
    ms: defaultdict[str, float] = defaultdict(float)
    for line in path.read_text().splitlines():
        frames, _, looks = line.rpartition(" ")
        ms[_part_of(frames)] += int(looks) * look_ms
    return ms


def _part_of(frames: str) -> str:
    return next((part.name for part in PARTS if re.search(part.frames, frames)), OTHER)
