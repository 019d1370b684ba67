"""The processes of a benchmark: a Temporal server, the scripted model, and workers of the contestants."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client

from benchmarks import work
from benchmarks.contestants import Contestant, Handle
from everturn.devserver import DevServer

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LONGEST_START_SECONDS = 30.0
LONGEST_STOP_SECONDS = 5.0


@dataclass(eq=False)
class Worker:
    contestant: Contestant
    process: subprocess.Popen[bytes]
    log: Path

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def peak_rss_mb(self) -> float:
        return status_mb(self.process.pid, "VmHWM")

    def check(self) -> None:
        if (status := self.process.poll()) is not None:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise RuntimeError(f"The worker of {self.contestant.name!r} ended with {status}. {self.log} ends:\n{last}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(eq=False)
class Rig:
    client: Client
    server_pid: int
    model_pid: int
    base_url: str
    metrics_url: str
    """Of the server's own metrics."""

    async def start(
        self, contestant: Contestant, *, turns: int, slow: str = "", name: str = "", unlike: str = "", calls: int = 1
    ) -> Handle:
        conversation_id = name or f"{contestant.name}-{uuid4().hex[:8]}"
        said = work.opening(turns, slow=slow, unlike=unlike, calls=calls)
        return await contestant.start(self.client, contestant, conversation_id, said)

    async def hold(self, contestant: Contestant, *, turns: int, calls: int = 1, seconds: float = 60.0) -> Handle:
        """A whole conversation: raises TimeoutError, and RuntimeError where the contestant did not do its work."""
        async with asyncio.timeout(seconds):
            handle = await self.start(contestant, turns=turns, calls=calls)
            check_result(handle, await handle.result())
        return handle

    @asynccontextmanager
    async def worker(self, contestant: Contestant, *, warm: bool = True, **environment: str) -> AsyncIterator[Worker]:
        """A worker process of its own, with more variables in its environment; with `warm`, it has held a conversation
        before the block begins."""
        log = RESULTS / f"{contestant.name}.log"
        command = (
            contestant.python,
            "-m",
            "benchmarks.host",
            contestant.name,
            self.client.service_client.config.target_host,
        )
        process = spawn(*command, log=log, SCRIPTED_BASE_URL=self.base_url, **environment)
        worker = Worker(contestant, process, log)
        try:
            if warm:
                await self._warm(worker)
            yield worker
        finally:
            stop(process)

    async def _warm(self, worker: Worker) -> None:
        try:
            await self.hold(worker.contestant, turns=2, seconds=LONGEST_START_SECONDS)
        except TimeoutError:
            worker.check()
            raise


@asynccontextmanager
async def rig(
    *,
    db_filename: Path | None = None,
    model_log: Path | None = None,
    model_holds: int = 0,
    model_takes: float = 0.0,
    dynamic_config: Mapping[str, str] | None = None,
) -> AsyncIterator[Rig]:
    """`model_log`, `model_holds`, `model_takes`: as script.py says."""
    RESULTS.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            DevServer(db_filename=db_filename, metrics_port=0, dynamic_config=dynamic_config)
        )
        more = {"MODEL_LOG": str(model_log)} if model_log else {}
        more |= {"MODEL_HOLDS": str(model_holds)} if model_holds else {}
        more |= {"MODEL_TAKES": str(model_takes)} if model_takes else {}
        script = str(ROOT / "benchmarks/script.py")
        log = RESULTS / "model.log"
        model = spawn(sys.executable, "-m", "everturn.testing", script, log=log, stdout=subprocess.PIPE, **more)
        stack.callback(stop, model)
        assert model.stdout is not None
        assert server._process is not None
        async with asyncio.timeout(LONGEST_START_SECONDS):
            base_url = (await asyncio.to_thread(model.stdout.readline)).decode().strip()
        client, metrics = await Client.connect(server.address), f"http://127.0.0.1:{server.metrics_port}/metrics"
        yield Rig(client, server._process.pid, model.pid, base_url, metrics)


def check_result(handle: Handle, result: Any) -> None:
    text = result["text"] if isinstance(result, dict) else result
    if text != work.LAST_WORDS:
        raise RuntimeError(f"{handle.id} did not do its work: it ended with {result!r:.300}")


def cpu_seconds(pid: int) -> float:
    """User and system time so far, all threads, in steps of 10 ms. NaN where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds() -> float:
    """Of everything that runs on this machine, so far. NaN where there is no /proc."""
    try:
        user, nice, system, _, _, irq, softirq = Path("/proc/stat").read_text().split(maxsplit=8)[1:8]
    except FileNotFoundError:
        return float("nan")
    return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")


def status_mb(pid: int, field: str) -> float:
    """VmHWM (the peak of the resident memory) or VmRSS. NaN where there is no /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return float("nan")
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), float("nan"))


def spawn(*command: str, log: Path, stdout: int | None = None, **environment: str) -> subprocess.Popen[bytes]:
    # No TEMPORAL_ or EVERTURN_ variable of the person who runs this: the workers belong to our own server.
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TEMPORAL_", "EVERTURN_"))}
    clean["PYTHONDONTWRITEBYTECODE"] = ""  # modules are compiled once, as pip does when it installs them
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**clean, **environment},
            stdin=subprocess.PIPE,
            stdout=stdout or file,
            stderr=file,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(LONGEST_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
