"""`python -m benchmarks evals`: recorded conversations rerun against a candidate that pays twice and skips a look-up.

200 recorded conversations with 2,000 calls. The process that reruns them is killed twice in the middle (SIGKILL), and
run again until it is done: both mistakes are found in all, each tool writes down when it runs, and none does. Then once
more without kills, for the CPU that a rerun takes.

A rerun of ten calls is five workflow tasks and four model turns; its calls are answered by a hook in the turn's
activity and cost no event. What bounds it, of 90 to 116 ms: Temporal's core (its threads) takes 28 %, the turns 27 %,
both histories' reading 17 %, the workflow 9 %; the rest is asking for the end of each, and comparing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.evals_candidate import conversation_id, make_agent
from benchmarks.rig import RESULTS, ROOT, cpu_seconds, spawn, stop
from everturn import Client, Worker
from everturn.devserver import DevServer, find_binary

KILLS = 2
LONGEST_SECONDS = 900.0
ENDED = "WorkflowId STARTS_WITH 'rerun:' AND ExecutionStatus != 'Running'"

HEAD = """| | conversations | calls recorded | killed | pays twice | skips a look-up | tools run | asked again |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""

SPEED = """| | seconds | conversations/s | per s of CPU of the rerun | per s of CPU, with server and model |
| --- | ---: | ---: | ---: | ---: |"""


class Bench:
    """The server, the model and the log of tools of one run."""

    def __init__(self, stack: AsyncExitStack, server: DevServer, folder: Path, conversations: int) -> None:
        self.server = server
        self.conversations = conversations
        self.ran = folder / "ran"
        self.ran.touch()
        self._stack = stack
        self.model = spawn(
            sys.executable,
            "-m",
            "everturn.testing",
            str(ROOT / "benchmarks/evals_script.py"),
            log=RESULTS / "evals-model.log",
            stdout=subprocess.PIPE,
            MODEL_LOG=str(folder / "asked"),
        )
        stack.callback(stop, self.model)
        self.asked = folder / "asked"
        self.base_url = ""

    async def start(self) -> None:
        assert self.model.stdout is not None
        self.base_url = (await asyncio.to_thread(self.model.stdout.readline)).decode().strip()

    def spawn_rerun(self, candidate: str) -> subprocess.Popen[bytes]:
        """The command of a person who runs it."""
        process = spawn(
            *(
                sys.executable,
                "-m",
                "benchmarks.evals_candidate",
                self.server.address,
                candidate,
                str(self.conversations),
            ),
            log=RESULTS / "evals-rerun.log",
            stdout=subprocess.PIPE,
            SCRIPTED_BASE_URL=self.base_url,
            EVALS_RAN=str(self.ran),
        )
        self._stack.callback(stop, process)
        return process

    def lines(self, path: Path) -> int:
        return len(path.read_text().splitlines())


async def record_conversations(bench: Bench, client: Client) -> None:
    agent = make_agent("recorded", bench.base_url, bench.ran)
    slots = asyncio.Semaphore(16)

    async def run_one(number: int) -> None:
        async with slots:
            outcome = await client.run(agent, f"Pay order {number}.", id=conversation_id(number))
            assert outcome.status == "completed", outcome

    async with Worker(client, agents=[agent]):
        await asyncio.gather(*map(run_one, range(bench.conversations)))


async def rerun_with_kills(bench: Bench, client: Client) -> tuple[dict[str, Any], int]:
    """What the last process printed, and how many were killed in the middle."""
    killed = 0
    for number in range(1, KILLS + 1):
        process = bench.spawn_rerun("careless")
        wanted = bench.conversations * number // (KILLS + 1)
        while (await client.temporal.count_workflows(ENDED)).count < wanted:
            assert process.poll() is None, "it was done before it was killed"
            await asyncio.sleep(0.1)
        process.kill()
        process.wait()
        killed += 1
    return await finish(bench.spawn_rerun("careless")), killed


async def finish(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    printed = await asyncio.to_thread(process.stdout.read)
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])  # after the log
    return told


async def main(*, conversations: int, record: bool = False) -> None:
    RESULTS.mkdir(exist_ok=True)
    facts = report.machine(await find_binary())
    async with AsyncExitStack() as stack, asyncio.timeout(LONGEST_SECONDS):
        folder = Path(stack.enter_context(TemporaryDirectory()))
        bench = Bench(stack, await stack.enter_async_context(DevServer()), folder, conversations)
        await bench.start()
        client = await Client.connect(bench.server.address, task_queue="evals")
        await record_conversations(bench, client)
        ran, asked = bench.lines(bench.ran), bench.lines(bench.asked)
        told, killed = await rerun_with_kills(bench, client)
        asked_again = bench.lines(bench.asked) - asked - told["replies"]
        harm = bench.lines(bench.ran) - ran
        cells = [told["reruns"], ran, killed, told["pays_twice"], told["skips"], harm, asked_again]
        found = f"{HEAD}\n| careless | {' | '.join(map(str, cells))} |"
        print(found, flush=True)
        speed = await measure_speed(bench)
        print(speed)
        assert told["pays_twice"] == told["skips"] == conversations
        assert harm == 0
        assert bench.lines(bench.ran) == ran
    if record:
        report.record("evals", facts, "### Reruns that are killed", found, "### Reruns a second", speed, __doc__ or "")
        print(f"Recorded in {report.RECORD}")


async def measure_speed(bench: Bench) -> str:
    assert bench.server._process
    others = (bench.server._process.pid, bench.model.pid)
    before = sum(map(cpu_seconds, others))
    began = time.monotonic()
    told = await finish(bench.spawn_rerun("thorough"))
    seconds = time.monotonic() - began
    spent = sum(map(cpu_seconds, others)) - before
    rates = [seconds, bench.conversations / seconds, bench.conversations / told["cpu_seconds"]]
    rates.append(bench.conversations / (told["cpu_seconds"] + spent))
    return f"{SPEED}\n| {told['verdicts']} | {' | '.join(f'{rate:.1f}' for rate in rates)} |"
