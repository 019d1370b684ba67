"""Clients in processes of their own, which can be killed: `python -m tests.crash.crowd ADDRESS QUEUE SEED PREFIX`.

A process holds any number of people. It reads the tickets of those who come, `TICKET STORY` on a line of stdin, and of
those who leave, `-TICKET`; and writes a line of JSON when somebody's part is over.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from everturn import Client
from everturn.errors import Unreachable
from tests.crash.people import RETRY_SECONDS, People
from tests.crash.stories import Story
from tests.crash.workers import ROOT


class Vanished(Exception):
    """The client process was killed."""


class ClientProcess:
    """One of them, as the harness has it."""

    def __init__(self, people: People, process: Process) -> None:
        self._people = people
        """Where what they were told is noted."""
        self._process = process
        self._tickets = count(1)
        self._parts: dict[int, asyncio.Future[None]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, people: People, *, prefix: str, log: Path) -> ClientProcess:
        address = people.client.temporal.service_client.config.target_host
        command = [sys.executable, "-m", "tests.crash.crowd", address, people.client.task_queue]
        command += [str(people.seed), prefix]
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=errors)
        return cls(people, process)

    async def live(self, story: Story) -> None:
        """`People.live` over there. Raises Vanished where the process is killed."""
        if self._reading.done():
            raise Vanished  # killed, and its successor is not there yet
        ticket = next(self._tickets)
        self._parts[ticket] = part = asyncio.get_running_loop().create_future()
        self._write(f"{ticket} {story.number}")
        try:
            await part
        except asyncio.CancelledError:
            self._write(f"-{ticket}")
            raise
        finally:
            self._parts.pop(ticket, None)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(f"{line}\n".encode())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with suppress(ValueError):  # half a line of a killed process
                self._take(json.loads(line))
        for part in self._parts.values():
            if not part.done():
                part.set_exception(Vanished())

    def _take(self, said: dict[str, Any]) -> None:
        self._people.told.update(said["told"])
        self._people.rough.update(said["rough"])
        part = self._parts.get(said["ticket"])
        if part is None or part.done():
            return
        if said["error"]:
            part.set_exception(RuntimeError(said["error"]))
        else:
            part.set_result(None)


# ---------------------------------------------------------------- over there


async def main(address: str, queue: str, seed: int, prefix: str) -> None:
    people = People(await _connected(address, queue), seed)
    here: dict[int, asyncio.Task[None]] = {}
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        ticket, *number = map(int, line.split())
        if number:
            story = Story.make(seed, number[0], prefix)
            here[ticket] = asyncio.create_task(people.live(story))
            here[ticket].add_done_callback(lambda part, ticket=ticket: _say(people, ticket, part))
        elif -ticket in here:
            here.pop(-ticket).cancel()


async def _connected(address: str, queue: str) -> Client:
    while True:
        try:
            return await Client.connect(address, task_queue=queue, by="people")
        except Unreachable:
            await asyncio.sleep(RETRY_SECONDS)


def _say(people: People, ticket: int, part: asyncio.Task[None]) -> None:
    error = "" if part.cancelled() or not part.exception() else f"{type(part.exception()).__name__}: {part.exception()}"
    said = {"ticket": ticket, "error": error, "told": dict(people.told), "rough": dict(people.rough)}
    people.told.clear()
    people.rough.clear()
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
