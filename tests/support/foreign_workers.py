"""Workers of Temporal's other SDKs, in processes of their own. Nothing in them knows of everturn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from everturn import Client
from tests.support.waiting import eventually


class ForeignWorker:
    """A worker's process, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    async def listen(self) -> None:
        assert self.process.stdout
        while line := await self.process.stdout.readline():
            self.said += line.decode()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def foreign_worker(
    client: Client, command: Sequence[str], folder: Path, *, queue: str, name: str
) -> AsyncIterator[ForeignWorker]:
    """Starts `command ADDRESS QUEUE NAME` in the folder, and waits until it says that it is ready."""
    address = client.temporal.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(
        *command, address, queue, name,
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    running = ForeignWorker(process)
    listening = asyncio.create_task(running.listen())
    try:
        await eventually(lambda: "is ready" in running.said or process.returncode is not None, what="it is ready")
        assert process.returncode is None, running.said
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening
