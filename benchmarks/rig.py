"""The processes of a benchmark: a Temporal server in memory, the scripted model, and a worker for each contestant."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from temporalio.client import Client

from benchmarks.contestants import Contestant, Handle
from everturn.devserver import DevServer

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LONGEST_START_SECONDS = 20.0
LONGEST_STOP_SECONDS = 5.0


@dataclass(eq=False)
class Rig:
    client: Client
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    async def start(self, contestant: Contestant, *, turns: int) -> Handle:
        return await contestant.start(self.client, contestant, f"{contestant.name}-{uuid4().hex[:8]}", turns)

    def cpu_seconds(self, contestant: Contestant) -> float:
        """User and system time of its worker so far, all threads, in steps of 10 ms. NaN where there is no /proc."""
        return cpu_seconds(self.workers[contestant.name].pid)

    def check(self, contestant: Contestant) -> None:
        if (status := self.workers[contestant.name].poll()) is not None:
            log = log_of(contestant.name)
            last = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise RuntimeError(f"The worker of {contestant.name!r} ended with {status}. {log} ends so:\n{last}")


@asynccontextmanager
async def rig(contestants: Iterable[Contestant]) -> AsyncIterator[Rig]:
    RESULTS.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(DevServer())
        model = _spawn(stack, "model", sys.executable, "-m", "everturn.testing", str(ROOT / "benchmarks/script.py"))
        assert model.stdout is not None
        async with asyncio.timeout(LONGEST_START_SECONDS):
            base_url = (await asyncio.to_thread(model.stdout.readline)).decode().strip()
        running = Rig(await Client.connect(server.address))
        for one in contestants:
            command = (one.python, "-m", "benchmarks.host", one.name, server.address)
            running.workers[one.name] = _spawn(stack, one.name, *command, SCRIPTED_BASE_URL=base_url)
        yield running


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def log_of(name: str) -> Path:
    return RESULTS / f"{name}.log"


def _spawn(stack: AsyncExitStack, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
    # No TEMPORAL_ or EVERTURN_ variable of the person who runs this: the workers belong to our own server.
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TEMPORAL_", "EVERTURN_"))}
    with log_of(name).open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**clean, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if name == "model" else log,
            stderr=log,
        )
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(LONGEST_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
