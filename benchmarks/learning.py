"""`python -m benchmarks learning`: the same three tasks with everturn and with pydantic-ai and pydantic-evals, each as
its own pages say it.

20 recorded refunds (for pydantic-evals: 20 cases written by hand) against a prompt that forgets the look-up; 5 % of 200
answers of production, judged by a model; 500 turns in a batch. A reply of the model takes 0.5 s, a batch 5 s.

Each program runs once as it is, and once more on data of its own with a SIGKILL in the middle: after half of its
requests, or while its batch is with the provider. Then it is run again. "Asked in vain": requests of the killed run
whose answers were lost, and that were asked, and paid, again. The lines are the program's, without blank ones.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.rig import RESULTS, ROOT, spawn, stop
from everturn import Client, Worker, names
from everturn.devserver import DevServer, find_binary
from everturn.evaluations.sampling import sample_number
from everturn.testing import ScriptedModel, call, slow
from tests.support.batch_server import Batch, BatchServer, Json, Vendor
from tests.support.waiting import eventually

REPLY_SECONDS = 0.5
BATCH_SECONDS = 5.0
REFUNDS = 20
ANSWERS = 200
TURNS = 500
LONGEST_SECONDS = 1_500.0
TASKS = {
    "regression": f"find a regression in a prompt ({REFUNDS} refunds)",
    "production": f"judge 5 % of production ({ANSWERS} answers)",
    "batch": f"batch {TURNS} turns",
}
EVALUATIONS = f"WorkflowType = '{names.EVALUATION}' AND ExecutionStatus = 'Completed'"

HEAD = """| task | with | lines | seconds | killed and run again: seconds | asked in vain | what came of it |
| --- | --- | ---: | ---: | ---: | ---: | --- |"""


class SlowBatches(BatchServer):
    """A batch is over after BATCH_SECONDS."""

    def begin(self, vendor: Vendor, name: str, requests: dict[str, Json]) -> Batch | None:
        batch = super().begin(vendor, name, requests)
        threading.Timer(BATCH_SECONDS, self.finish).start()
        return batch


@dataclass
class Model:
    """Counts its requests, by the model's name."""

    requests: Counter[str] = field(default_factory=Counter)

    def script(self, messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
        self.requests[body["model"]] += 1
        return slow(_reply_to(messages, body["model"]), seconds=REPLY_SECONDS)


def _reply_to(messages: list[dict[str, Any]], model: str) -> Any:
    if model != "clerk":
        return {"judge": "yes"}.get(model, "Gladly.")
    done = sum(message["role"] == "assistant" for message in messages)
    order = str(messages).partition("Refund order ")[2].partition(".")[0]
    steps: list[Any] = [call("refund", {"order": order}), "It is refunded."]
    if "Look the order up" in str(messages):
        steps.insert(0, call("look_up", {"order": order}))
    return steps[done]


class Bench:
    """The servers of one run of a program."""

    def __init__(self, stack: AsyncExitStack, server: DevServer, task: str, library: str) -> None:
        self.server = server
        self.task = task
        self.library = library
        self.model = Model()
        self.scripted = ScriptedModel(self.model.script).start()
        stack.callback(self.scripted.stop)
        self.batches = stack.enter_context(SlowBatches(lambda _: "fine"))
        self.refunds = Path(stack.enter_context(TemporaryDirectory())) / "refunds"
        self._stack = stack
        self._environment = {
            "TEMPORAL_ADDRESS": server.address,
            "MODEL_URL": self.scripted.base_url,
            "BATCH_URL": self.batches.base_url,
            "REFUNDS": str(self.refunds),
            "ANTHROPIC_API_KEY": "none",
        }

    def spawn_program(self) -> subprocess.Popen[bytes]:
        process = spawn(
            *(sys.executable, "-m", f"benchmarks.tasks.{self.task}_{self.library}"),
            log=RESULTS / f"learning-{self.task}-{self.library}.log",
            stdout=subprocess.PIPE,
            **self._environment,
        )
        self._stack.callback(stop, process)
        return process

    @property
    def requests(self) -> int:
        return self.model.requests.total() + self.batches.paid

    @property
    def in_the_middle(self) -> bool:
        """Whether half of the work is done, or the batch is with the provider."""
        half = {"regression": REFUNDS, "production": ANSWERS // 2, "batch": TURNS}
        return self.requests >= half[self.task]

    def count_refunds(self) -> int:
        return len(self.refunds.read_text().splitlines()) if self.refunds.exists() else 0

    async def record_refunds(self, client: Client) -> None:
        """What production was like, with the old prompt."""
        os.environ.update(self._environment)
        from benchmarks.tasks.regression_everturn import clerk, model

        object.__setattr__(model, "base_url", self.scripted.base_url)
        async with Worker(client, agents=[clerk]):
            await asyncio.gather(*(client.run(clerk, f"Refund order {number}.") for number in range(REFUNDS)))
        self.model.requests.clear()
        self.refunds.unlink()


@dataclass(frozen=True)
class Ran:
    seconds: float
    requests: int
    printed: str
    refunds: int
    judged: int


async def run_program(task: str, library: str, *, kill: bool) -> Ran:
    """A program that may be killed in the middle, and is run again then."""
    async with AsyncExitStack() as stack:
        bench = Bench(stack, await stack.enter_async_context(DevServer()), task, library)
        client = await Client.connect(bench.server.address)
        if (task, library) == ("regression", "everturn"):
            await bench.record_refunds(client)
        began = time.monotonic()
        process = bench.spawn_program()
        if kill:
            await eventually(lambda: bench.in_the_middle)
            assert process.poll() is None, f"{task} with {library} was done before it was killed"
            process.kill()
            await asyncio.to_thread(process.wait)
            process = bench.spawn_program()
        if (task, library) == ("production", "everturn"):
            printed = await asyncio.to_thread(last_line, process, up_to="answered")
            await wait_for_evaluations(client)
            process.terminate()
            await asyncio.to_thread(process.wait)
        else:
            printed = await asyncio.to_thread(last_line, process)
            assert await asyncio.to_thread(process.wait) == 0, f"{task} with {library} failed: see {RESULTS}"
        seconds = time.monotonic() - began
        return Ran(seconds, bench.requests, printed, bench.count_refunds(), bench.model.requests["judge"])


def last_line(process: subprocess.Popen[bytes], *, up_to: str = "") -> str:
    """What a program prints last: Temporal's SDK logs to the same place."""
    assert process.stdout is not None
    line = ""
    for written in process.stdout:
        line = written.decode().strip()
        if up_to and line == up_to:
            break
    return line


async def wait_for_evaluations(client: Client) -> None:
    """Until each answer that the sample has is judged."""
    sampled = 0
    async for row in client.temporal.list_workflows(f"WorkflowType = '{names.CONVERSATION}'"):
        assert row.close_time
        sampled += sample_number(row.id, row.close_time.timestamp()) < 0.05

    async def all_judged() -> bool:
        return (await client.temporal.count_workflows(EVALUATIONS)).count >= sampled

    await eventually(all_judged)


def lines_of(task: str, library: str) -> int:
    program = (ROOT / f"benchmarks/tasks/{task}_{library}.py").read_text()
    return sum(bool(line.strip()) for line in program.splitlines())


def outcome_of(task: str, plain: Ran, killed: Ran) -> str:
    if task == "regression":
        return f"{killed.printed}; refunds that really ran: {plain.refunds}, killed: {killed.refunds}"
    if task == "production":
        return f"judged: {plain.judged}, killed: {killed.judged}"
    return f"{killed.printed} answers"


async def main(*, record: bool = False) -> None:
    RESULTS.mkdir(exist_ok=True)
    facts = report.machine(await find_binary())
    facts |= {package: version(package) for package in ("pydantic-ai-slim", "pydantic-evals")}
    rows = [HEAD]
    async with asyncio.timeout(LONGEST_SECONDS):
        for task, title in TASKS.items():
            for library in ("everturn", "pydantic"):
                plain = await run_program(task, library, kill=False)
                killed = await run_program(task, library, kill=True)
                vain = killed.requests - plain.requests
                if task == "production":  # how many are judged is a matter of chance
                    vain -= killed.judged - plain.judged
                cells = [title, library, lines_of(task, library), f"{plain.seconds:.1f}", f"{killed.seconds:.1f}", vain]
                rows.append(f"| {' | '.join(map(str, (*cells, outcome_of(task, plain, killed))))} |")
                print(rows[-1], flush=True)
    table = "\n".join(rows)
    print(table)
    if record:
        report.record("learning", facts, "### Three tasks, killed in the middle", table, __doc__ or "")
        print(f"Recorded in {report.RECORD}")
