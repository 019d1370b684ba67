"""What a worker has in hand, on disk: so that others on the same machine can hand it back at once when it dies.

Temporal notices a lost worker by its silence, which takes seconds. The kernel knows at once, and frees the lock on its
journal, which names the activities that were running. A worker that starts, or that runs beside it, finds that, and
fails them for it, to be run again.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Self

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everturn.logs import get_logger

_log = get_logger("everturn.worker")

MAX_BYTES = 1024 * 1024
"""A journal that gets longer is written anew, with what is in hand."""

STALE_SECONDS = 24 * 3600.0
"""Temporal has long noticed what a worker lost that has been dead for a day: its journal is only litter by then."""

LOOK_SECONDS = 0.5
"""Between two looks at the other workers' journals."""

RPC_TIMEOUT = timedelta(seconds=5)

Task = dict[str, str]
"""token, conversation, run, activity."""


def default_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"everturn-{os.getuid()}" / "journals"


class Journal:
    """One file for each worker, locked as long as the worker lives. The kernel keeps what a killed process wrote."""

    def __init__(self, folder: Path, *, scope: dict[str, str]) -> None:
        self._folder = folder
        self._scope = scope
        """Server, namespace and task queue: only a worker of the same ones is a successor."""
        self._file: IO[str] | None = None
        self._held: dict[str, Task] = {}
        self._passed: set[str] = set()
        """Names of journals that are none of ours; looking at them again and again would cost more than turns do."""

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = tempfile.mkstemp(prefix=f"{os.getpid()}-", suffix=".jsonl", dir=self._folder)[1]
            self._file = Path(name).open("w", buffering=1, encoding="utf-8")
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._passed.add(Path(name).name)
            self._write(self._scope)
        except OSError as error:
            # A read-only disk costs seconds after a crash, and nothing else.
            _log.info("journal.off", folder=str(self._folder), error=str(error))
            self._file = None
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        file, self._file = self._file, None
        if file:
            # Before its lock goes: it would look like that of a dead worker.
            Path(file.name).unlink(missing_ok=True)
            with suppress(OSError):  # what a full disk did not take
                file.close()

    @contextmanager
    def holding(self, task: Task) -> Iterator[None]:
        """Says on disk that this worker runs the task, until the block is left."""
        self._held[task["token"]] = task
        self._write(task)
        try:
            yield
        finally:
            del self._held[task["token"]]
            self._write({"done": task["token"]})

    def _write(self, line: dict[str, str]) -> None:
        if self._file is None:
            return
        try:
            if self._file.tell() > MAX_BYTES:
                self._file.seek(0)
                self._file.truncate()
                for held in (self._scope, *self._held.values()):
                    self._file.write(json.dumps(held) + "\n")
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            # A full disk must not fail a tool, least of all one that has run.
            _log.warning("journal.off", folder=str(self._folder), error=str(error))
            self._end()

    async def watch(self, client: Client) -> None:
        """Hands back what workers beside this one had in hand when they died. Never returns."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.hand_back(client)

    async def hand_back(self, client: Client) -> int:
        """Fails what dead workers had in hand, and returns how many tasks that were."""
        tasks = await asyncio.to_thread(lambda: list(self._orphans()))  # the disk may be slow
        await asyncio.gather(*(_hand_back(client, task) for task in tasks))
        if tasks:
            _log.info("worker.handed_back", activities=len(tasks))
        return len(tasks)

    def _orphans(self) -> Iterator[Task]:
        with suppress(OSError):  # somebody clears the folder, or hides it
            for file in self._folder.iterdir():
                if file.name not in self._passed:
                    yield from self._read_dead(file)

    def _read_dead(self, file: Path) -> list[Task]:
        """The open tasks of a journal whose worker is dead, which is then removed. None of one who lives.

        A journal for other servers or queues is left to their workers, until it is stale."""
        try:
            with file.open(encoding="utf-8") as journal:
                scope = _scope_of(journal.readline())
                ours = scope == self._scope
                if scope and not ours:
                    self._passed.add(file.name)
                if not ours and os.fstat(journal.fileno()).st_mtime > time.time() - STALE_SECONDS:
                    return []
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                journal.seek(0)
                tasks = _open_tasks(journal)
                file.unlink()
                return tasks if ours else []
        except OSError:
            return []  # its worker lives, or somebody else was quicker


def task_of(info: Any) -> Task:
    return {
        "token": b64encode(info.task_token).decode(),
        "conversation": info.workflow_id,
        "run": info.workflow_run_id,
        "activity": info.activity_type,
    }


def _scope_of(line: str) -> dict[str, str]:
    """Of a journal's first line; empty where that is not written yet."""
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {}


def _open_tasks(journal: IO[str]) -> list[Task]:
    tasks: dict[str, Task] = {}
    for text in journal:
        try:
            line = json.loads(text)
        except ValueError:
            continue  # the last line of a killed process may be half a line
        if "done" in line:
            tasks.pop(line["done"], None)
        elif "token" in line:
            tasks[line["token"]] = line
    return list(tasks.values())


async def _hand_back(client: Client, task: Task) -> None:
    lost = ApplicationError(
        "its worker was lost while it ran", type="WorkerLost", next_retry_delay=timedelta(milliseconds=1)
    )
    handle = client.get_async_activity_handle(task_token=b64decode(task["token"]))
    try:
        await release(client, task["conversation"], task["run"])
        await handle.fail(lost)
    except (RPCError, AsyncActivityCancelledError) as error:
        # Temporal noticed before us, or the conversation is over.
        _log.debug("worker.not_handed_back", activity=task["activity"], error=str(error))


async def release(client: Client, conversation: str, run: str) -> None:
    """Lets any worker take the conversation's next step, which would wait for its dead worker's own queue first.
    Raises RPCError."""
    await client.workflow_service.reset_sticky_task_queue(
        ResetStickyTaskQueueRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=conversation, run_id=run),
        ),
        timeout=RPC_TIMEOUT,
    )
