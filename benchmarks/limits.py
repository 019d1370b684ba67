"""`python -m benchmarks limits`: a fleet on a provider that takes 5 requests a second, and says Retry-After 20.

200 conversations of 3 turns, with 1, 4 and 8 workers, each a process of its own that knows nothing of the limit.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import report
from benchmarks.rig import RESULTS, ROOT, spawn, stop
from everturn import Client
from everturn.client.conversation import Conversation
from everturn.client.pollers import find_pollers
from everturn.devserver import DevServer, find_binary

FLEETS = (1, 4, 8)
SLOTS = 64
"""Of all workers together. A turn waits where its conversation is, so the rest had better wait in the queue."""
TURNS = 3
LONGEST_SECONDS = 900.0


@dataclass(frozen=True)
class Measured:
    workers: int
    seconds: float
    """From the first call to the last."""
    used: float
    """Of what the provider would have taken in that time."""
    refused: float
    """Answers of 429 for each reply."""
    median_wait: float
    """Seconds from a turn's scheduling to its end."""
    p99_wait: float
    stalled: int

    def row(self) -> str:
        cells = [
            str(self.workers),
            f"{self.seconds:.0f} s",
            f"{self.used:.1%}",
            f"{100 * self.refused:.1f}",
            f"{self.median_wait:.1f} s",
            f"{self.p99_wait:.1f} s",
            f"{self.p99_wait / self.median_wait:.2f}",
            str(self.stalled),
        ]
        return f"| {' | '.join(cells)} |"


HEAD = """| workers | took | of the rate | 429s for 100 replies | median of a turn | p99 | p99 / median | stalled |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


async def measure(
    workers: int, *, conversations: int = 200, rate: float = 5.0, retry_after: float = 20.0, slots: int = SLOTS
) -> Measured:
    """Raises TimeoutError after LONGEST_SECONDS."""
    RESULTS.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack, asyncio.timeout(LONGEST_SECONDS):
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = await stack.enter_async_context(DevServer())
        asked = folder / "asked"
        model = spawn(
            sys.executable,
            "-m",
            "everturn.testing",
            str(ROOT / "benchmarks/limited_script.py"),
            log=RESULTS / "limited-model.log",
            stdout=subprocess.PIPE,
            MODEL_RATE=str(rate),
            MODEL_RETRY_AFTER=str(retry_after),
            MODEL_LOG=str(asked),
        )
        stack.callback(stop, model)
        assert model.stdout is not None
        base_url = (await asyncio.to_thread(model.stdout.readline)).decode().strip()
        command = (sys.executable, "-m", "benchmarks.limited_worker", server.address, str(slots // workers))
        for number in range(workers):
            log = RESULTS / f"limited-{number}.log"
            stack.callback(stop, spawn(*command, log=log, SCRIPTED_BASE_URL=base_url))
        client = await Client.connect(server.address, task_queue="limited")
        while len({poller.identity for poller in await find_pollers(client.temporal, client.task_queue)}) < workers:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        held = await asyncio.gather(*(client.start("limited", "Go") for _ in range(conversations)))
        stalled = sum(await asyncio.gather(*map(_stalls, held)))
        turns = [seconds for one in held for seconds in await _turns(client, one)]
        calls = [(float(at), taken == "1") for at, taken in map(str.split, asked.read_text().splitlines())]
    taken = [at for at, was in calls if was]
    seconds = taken[-1] - calls[0][0]
    turns.sort()
    return Measured(
        workers=workers,
        seconds=seconds,
        used=len(taken) / rate / seconds,
        refused=(len(calls) - len(taken)) / len(taken),
        median_wait=median(turns),
        p99_wait=turns[int(0.99 * (len(turns) - 1))],
        stalled=stalled,
    )


async def _stalls(conversation: Conversation) -> bool:
    outcome = await conversation.outcome()
    return outcome.status != "completed" or outcome.turns != TURNS


async def _turns(client: Client, conversation: Conversation) -> list[float]:
    """How long each of its turns took, waiting included."""
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    begun: dict[int, float] = {}
    took = []
    for event in history.events:
        at = event.event_time.ToNanoseconds() / 1e9
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name == "call_model":
            begun[event.event_id] = at
        ended = event.activity_task_completed_event_attributes.scheduled_event_id
        if ended in begun:
            took.append(at - begun.pop(ended))
    return took


async def main(fleets: Sequence[int] = FLEETS, *, record: bool = False) -> None:
    facts = report.machine(await find_binary())
    rows = []
    print(HEAD, flush=True)
    for workers in fleets:
        rows.append((await measure(workers)).row())
        print(rows[-1], flush=True)
    if record:
        report.record("limits", facts, "### Providers' limits", "\n".join([HEAD, *rows]), __doc__ or "")
        print(f"Recorded in {report.RECORD}")
