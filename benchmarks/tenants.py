"""`python -m benchmarks tenants`: how long a small tenant waits behind a large one.

A worker with room for 20 activities; 300 conversations of A, of 3 turns of 2 s; then five of B. B alone; B behind A, if
nobody says whose they are; and if both are started with `tenant=`, which is then the fairness key.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import report
from benchmarks.rig import RESULTS, ROOT, spawn, stop
from everturn import Client
from everturn.devserver import FAIR, DevServer, find_binary

LARGE, SMALL = 300, 5
SLOTS = 20
SLOWEST_SECONDS = 3.8
"""Of a reply: 2 s in the mean, as the quickest takes 0.2."""
LONGEST_SECONDS = 600.0

HEAD = """| | five conversations of B took, median | quickest | slowest |
| --- | ---: | ---: | ---: |"""


async def measure(*, beside: bool, tenants: bool) -> list[float]:
    """Seconds from the start to the outcome of each conversation of B, shortest first."""
    RESULTS.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack, asyncio.timeout(LONGEST_SECONDS):
        asked = Path(stack.enter_context(TemporaryDirectory())) / "asked"
        server = await stack.enter_async_context(DevServer(dynamic_config=FAIR))
        model = spawn(
            sys.executable,
            "-m",
            "everturn.testing",
            str(ROOT / "benchmarks/limited_script.py"),
            log=RESULTS / "tenants-model.log",
            stdout=subprocess.PIPE,
            MODEL_RATE="1000000",
            MODEL_RETRY_AFTER="0",
            MODEL_SLOWEST=str(SLOWEST_SECONDS),
            MODEL_LOG=str(asked),
        )
        stack.callback(stop, model)
        assert model.stdout is not None
        base_url = (await asyncio.to_thread(model.stdout.readline)).decode().strip()
        command = (sys.executable, "-m", "benchmarks.limited_worker", server.address, str(SLOTS))
        stack.callback(stop, spawn(*command, log=RESULTS / "tenants-worker.log", SCRIPTED_BASE_URL=base_url))
        client = await Client.connect(server.address, task_queue="limited")
        if beside:
            await asyncio.gather(
                *(client.start("limited", "Go", tenant="a" if tenants else None) for _ in range(LARGE))
            )
            while len(asked.read_text().splitlines()) < 2 * SLOTS:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.1)
        return sorted(await asyncio.gather(*(_took(client, "b" if tenants else None) for _ in range(SMALL))))


async def _took(client: Client, tenant: str | None) -> float:
    began = time.monotonic()
    conversation = await client.start("limited", "Go", tenant=tenant)
    outcome = await conversation.outcome()
    assert outcome.status == "completed"
    return time.monotonic() - began


async def main(*, record: bool = False) -> None:
    facts = report.machine(await find_binary())
    rows = []
    print(HEAD, flush=True)
    for name, beside, tenants in (
        ("alone", False, False),
        ("behind 300 of A", True, False),
        ("behind 300 of A, both with `tenant=`", True, True),
    ):
        took = await measure(beside=beside, tenants=tenants)
        rows.append(f"| {name} | {median(took):.0f} s | {took[0]:.0f} s | {took[-1]:.0f} s |")
        print(rows[-1], flush=True)
    if record:
        report.record(
            "tenants", facts, "### A small tenant behind a large one", "\n".join([HEAD, *rows]), __doc__ or ""
        )
        print(f"Recorded in {report.RECORD}")
