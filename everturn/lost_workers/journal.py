"""Says on disk what a worker runs, so that others on the same machine can hand it back at once when the worker dies.

Temporal notices a lost worker by its silence, which takes seconds. The kernel knows at once, and frees the lock on the
worker's journal, which names the activities that were running. Another worker finds the free journal, be it one that
starts or one that runs already. It fails these activities in the dead worker's place, so that Temporal runs them again.

What is in the folder is not trusted: only files that a worker of this user made are read or removed, and nothing in
one of them can stop a worker, or fail what a living one runs.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import secrets
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from pydantic_core import from_json, to_json
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everturn import names
from everturn.logs import get_logger
from everturn.system.private_files import NotPrivate, PrivateFolder, identity_of

_log = get_logger("everturn.worker")

MAX_BYTES = 1024 * 1024
"""A longer journal is written anew, with only what still runs."""

MAX_READ_BYTES: Final = 8 * MAX_BYTES
"""A longer file is not a journal."""

MAX_HEADER_BYTES: Final = 8 * 1024

CANCEL_REQUESTED = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED

STALE_SECONDS = 24 * 3600.0
"""When a worker has been dead for a day, Temporal has long noticed what it lost, and its journal is only litter."""

LOOK_SECONDS = 0.5
"""Between two looks at the other workers' journals."""

SETTLED_SECONDS: Final = 2.0
"""Only if a folder's last change is older than this does its time show whether it has changed again."""

RPC_TIMEOUT = timedelta(seconds=5)

RPCS_AT_ONCE: Final = 50

_NAME: Final = re.compile(r"everturn-[0-9]{1,10}-[0-9a-f]{16}\.jsonl")
_KIND: Final = {"journal": "everturn 1"}
"""In each header, beside the worker's scope and the inode number of the file: so a copy of a journal is recognised."""

Task = dict[str, str]
"""token, conversation, run, activity; and `begun`, if it was: what never began has taken no effect."""

_TASK_FIELDS: Final = ("token", "conversation", "run", "activity")


class _NoJournal(Exception):
    """The file is not as a worker writes it. The message says why."""


def default_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"everturn-{os.getuid()}" / "journals"


class Journal:
    """One file for each worker, locked as long as the worker lives. The kernel keeps what a killed process wrote."""

    def __init__(
        self, folder: Path, *, scope: dict[str, str], holds_conversations: bool = True, max_bytes: int = MAX_BYTES
    ) -> None:
        """`holds_conversations`: workers of this scope run conversations, too, and not activities alone."""
        self._path = folder
        self._holds_conversations = holds_conversations
        self._scope = scope
        """Server, namespace and task queue: only a worker of the same ones is a successor."""
        self._folder: PrivateFolder | None = None
        self._descriptor: int | None = None
        self._size = self._header_size = 0
        self._max_bytes = max_bytes
        self._name = ""
        self._identity = (0, 0)
        self._header: dict[str, str] = {}
        self._held: dict[str, Task] = {}
        self._lock = threading.Lock()
        """Activities arrive on one thread, and begin and end on another."""
        self._passed: set[str] = set()
        """Names of files that are not ours; to look at them again and again would cost more than turns do."""
        self._listed: frozenset[str] = frozenset()
        self._listed_at = 0.0
        """When the folder changed; `_listed` holds its names since then."""

    def __enter__(self) -> Self:
        try:
            if self._path == default_folder():
                PrivateFolder(self._path.parent).close()
            self._folder = PrivateFolder(self._path)
            self._create_file(self._folder)
        except NotPrivate as error:
            cure = "chmod go-w, or give Worker(journals=) a folder that only this user can write to"
            _log.warning("journal.off", reason=str(error), effect="a crash is noticed seconds later", cure=cure)
        except OSError as error:
            # A read-only disk costs seconds after a crash, and nothing else.
            _log.info("journal.off", folder=str(self._path), error=str(error))
            self._remove_file()
        return self

    def _create_file(self, folder: PrivateFolder) -> None:
        name = f"everturn-{os.getpid()}-{secrets.token_hex(8)}.jsonl"
        descriptor = folder.create(name)
        self._name = name
        self._identity = identity_of(os.fstat(descriptor))
        self._header = _make_header(self._scope, self._identity[1])
        self._descriptor = descriptor
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # before its first line: others pass over an empty file
        self._size = self._header_size = _write_lines(descriptor, [self._header], offset=0)

    def __exit__(self, *_: object) -> None:
        self._remove_file()
        if self._folder:
            self._folder.close()
        self._folder = None

    def _remove_file(self) -> None:
        descriptor = self._descriptor
        self._descriptor = None
        if descriptor is not None and self._folder:
            with suppress(OSError):
                # Before its lock goes: without the lock, it would look like that of a dead worker.
                self._folder.remove(self._name, self._identity)
            with suppress(OSError):  # what a full disk did not take
                os.close(descriptor)

    @contextmanager
    def holding_task(self, task: Task) -> Iterator[None]:
        """Says on disk that this worker runs the task, until the block is left."""
        self.take_task(task)
        self.begin_task(task["token"])
        try:
            yield
        finally:
            self.drop_task(task["token"])

    def take_task(self, task: Task) -> None:
        """Says on disk that this worker has the task. May be called from any thread, and again for the same task."""
        with self._lock:
            if task["token"] not in self._held:
                self._held[task["token"]] = task
                self._write_line(task)

    def begin_task(self, token: str) -> None:
        """Says on disk that the task begins: from then on it may have taken effect."""
        with self._lock:
            if token in self._held and "begun" not in self._held[token]:
                self._held[token] = {**self._held[token], "begun": "yes"}
                self._write_line({"begun": token})

    def drop_task(self, token: str) -> None:
        """The worker no longer has the task, if it had it."""
        with self._lock:
            if self._held.pop(token, None):
                self._write_line({"done": token})

    def _write_line(self, line: dict[str, str]) -> None:
        if self._descriptor is None:
            return
        try:
            if not self._held:  # nothing runs now, and nobody needs the old lines
                os.ftruncate(self._descriptor, self._header_size)
                self._size = self._header_size
            elif self._size > self._max_bytes:
                self._write_anew(self._descriptor)
            else:
                self._size += _write_lines(self._descriptor, [line], offset=self._size)
        except OSError as error:
            # A full disk must not fail a tool, least of all one that has run.
            _log.warning("journal.off", folder=str(self._path), error=str(error))
            self._remove_file()

    def _write_anew(self, descriptor: int) -> None:
        # Written over the old lines, then cut: who reads it meanwhile, or after a kill, finds all that is running.
        self._size = _write_lines(descriptor, [self._header, *self._held.values()], offset=0)
        os.ftruncate(descriptor, self._size)

    # ------------------------------------------------------------ the journals of others

    async def watch_others(self, client: Client) -> None:
        """Hands back what other workers of this machine were running when they died. Never returns."""
        while True:
            await self.hand_back(client)
            await asyncio.sleep(LOOK_SECONDS)

    async def hand_back(self, client: Client) -> int:
        """Fails the open tasks of dead workers, and returns how many there were."""
        try:
            tasks = await asyncio.to_thread(lambda: list(self._orphaned_tasks()))  # the disk may be slow
            some = asyncio.Semaphore(RPCS_AT_ONCE)
            free = self._holds_conversations
            await asyncio.gather(*(_hand_back(client, task, some, free=free) for task in tasks))
        except Exception as error:  # noqa: BLE001 - without it, heartbeats do the same, seconds later
            _log.warning("journal.not_read", folder=str(self._path), error=f"{type(error).__name__}: {error}")
            return 0
        if tasks:
            _log.info("worker.handed_back", activities=len(tasks))
        return len(tasks)

    def _orphaned_tasks(self) -> Iterator[Task]:
        """The open tasks of dead workers, except those that a living worker says it runs."""
        if self._folder is None:
            return
        names = self._names_of_others(self._folder)
        self._passed &= names  # files that are gone need not be remembered
        dead_tasks = [task for name in names - self._passed for task in self._found_in(name, self._read_dead)]
        if dead_tasks:
            # The living are read after the dead, and whatever their scope is: one server may have two names.
            living = {
                task["token"]
                for name in self._names_of_others(self._folder)
                for task in self._found_in(name, self._read_living)
            }
            living |= set(self._held)
            yield from (task for task in dead_tasks if task["token"] not in living)

    def _names_of_others(self, folder: PrivateFolder) -> frozenset[str]:
        """The names of the others' journals. The folder is listed only if it has changed: it may hold hundreds."""
        try:
            changed_at = folder.changed_at()
            if changed_at != self._listed_at:
                self._listed = frozenset(name for name in folder.names() if _NAME.fullmatch(name))
                # The folder's clock ticks some times a second: a change within the same tick would never be seen.
                self._listed_at = 0.0
                if changed_at < time.time() - SETTLED_SECONDS:
                    self._listed_at = changed_at
        except OSError:  # somebody clears the folder, or hides it
            return frozenset()
        return self._listed - {self._name}

    def _found_in(self, name: str, read: Callable[[PrivateFolder, str], list[Task]]) -> list[Task]:
        """What `read` finds in a file; nothing if there is anything wrong with it."""
        if self._folder is None:
            return []
        try:
            return read(self._folder, name)
        except OSError:
            return []  # its worker lives, or somebody else was quicker
        except (_NoJournal, NotPrivate) as error:
            if name not in self._passed:
                _log.warning("journal.ignored", file=name, reason=str(error))
            self._passed.add(name)
            return []

    def _read_dead(self, folder: PrivateFolder, name: str) -> list[Task]:
        """The open tasks of a journal whose worker is dead, which is then removed. Raises OSError if it lives.

        A journal for other servers or queues is left to their workers, until it is stale."""
        with folder.reading(name) as descriptor:
            status = os.fstat(descriptor)
            if not status.st_size:
                return []  # it is just being made
            ours = _header_of(descriptor) == _make_header(self._scope, status.st_ino)
            if not ours and status.st_mtime > time.time() - STALE_SECONDS:
                self._passed.add(name)
                return []
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            tasks = _tasks_in(descriptor) if ours else []
            folder.remove(name, identity_of(status))
            return tasks

    def _read_living(self, folder: PrivateFolder, name: str) -> list[Task]:
        """The open tasks of a journal whose worker may live: what is here now."""
        with folder.reading(name) as descriptor:
            return _tasks_in(descriptor)


def forget_conversations(conversations: Collection[str], folder: Path | None = None) -> tuple[int, int]:
    """Removes the journals of dead workers in which only these conversations have open tasks. Returns how many those
    were, and how many others name one of the conversations: they hold only its id and the names of activities."""
    removed = remaining = 0
    try:
        opened = PrivateFolder(default_folder() if folder is None else folder)
    except (NotPrivate, OSError):
        return 0, 0
    with opened:
        for name in opened.names():
            with suppress(OSError, NotPrivate, _NoJournal), opened.reading(name) as descriptor:
                if not _NAME.fullmatch(name) or not _names_any_of(descriptor, conversations):
                    continue
                remaining += 1
                if all(task["conversation"] in conversations for task in _tasks_in(descriptor)):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    opened.remove(name, identity_of(os.fstat(descriptor)))
                    removed += 1
                    remaining -= 1
    return removed, remaining


def _names_any_of(descriptor: int, conversations: Collection[str]) -> bool:
    """Whether a line of the journal names one of these, be it open or done. Raises _NoJournal."""
    _header_of(descriptor)
    lines = os.pread(descriptor, MAX_READ_BYTES, 0).split(b"\n")
    return any((_parse_line(line) or {}).get("conversation") in conversations for line in lines)


def token_of(task_token: bytes) -> str:
    return b64encode(task_token).decode()


def task_of(task_token: bytes, *, conversation_id: str, run_id: str, activity: str) -> Task:
    return {"token": token_of(task_token), "conversation": conversation_id, "run": run_id, "activity": activity}


def _write_lines(descriptor: int, lines: list[dict[str, str]], *, offset: int) -> int:
    """Writes the lines, and returns how many bytes they took. Raises OSError."""
    content = b"".join([to_json(line) + b"\n" for line in lines])
    if os.pwrite(descriptor, content, offset) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return len(content)


def _make_header(scope: dict[str, str], file_number: int) -> dict[str, str]:
    return {**_KIND, **scope, "file": str(file_number)}


def _header_of(descriptor: int) -> dict[str, str]:
    """The header of the file. Raises _NoJournal if it has none, or a copied one."""
    first, ended, _ = os.pread(descriptor, MAX_HEADER_BYTES, 0).partition(b"\n")
    header = None
    if ended:
        header = _parse_line(first)
    if header is None or any(header.get(name) != value for name, value in _KIND.items()):
        raise _NoJournal("it does not start like a journal")
    if header.get("file") != str(os.fstat(descriptor).st_ino):
        raise _NoJournal("it is a copy of a journal")
    return header


def _tasks_in(descriptor: int) -> list[Task]:
    """The tasks that were begun and not ended. Raises _NoJournal if the file is too long."""
    content = b""
    while len(content) <= MAX_READ_BYTES and (more := os.pread(descriptor, MAX_BYTES, len(content))):
        content += more
    if len(content) > MAX_READ_BYTES:
        raise _NoJournal(f"it is longer than {MAX_READ_BYTES:,} bytes")
    tasks: dict[str, Task] = {}
    for line in content.split(b"\n"):
        fields = _parse_line(line) or {}  # the last line of a killed process may be half a line
        if done := fields.get("done"):
            tasks.pop(done, None)
        elif (begun := fields.get("begun")) in tasks:
            tasks[begun]["begun"] = "yes"
        elif all(fields.get(name) for name in _TASK_FIELDS) and _is_base64(fields["token"]):
            tasks[fields["token"]] = fields
    return list(tasks.values())


def _parse_line(line: bytes) -> dict[str, str] | None:
    """The JSON object of texts in a line; None if it is anything else."""
    try:
        value = from_json(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        return None
    return value


def _is_base64(token: str) -> bool:
    try:
        return bool(b64decode(token, validate=True))
    except ValueError:
        return False


async def _hand_back(client: Client, task: Task, some: asyncio.Semaphore, *, free: bool) -> None:
    """`free`: the dead worker may have held the task's conversation, too."""
    handle = client.get_async_activity_handle(task_token=b64decode(task["token"]))
    try:
        async with some:
            if free:
                await release_conversation(client, task["conversation"], task["run"])
            last_words = await _last_words(client, task)
            kind = names.NEVER_STARTED
            cause = "its worker was lost before it began"
            if "begun" in task:
                kind = names.WORKER_LOST
                cause = "its worker was lost while it ran"
            lost = ApplicationError(cause, *last_words, type=kind, next_retry_delay=timedelta(milliseconds=1))
            await handle.fail(lost, rpc_timeout=RPC_TIMEOUT)
    except (RPCError, AsyncActivityCancelledError) as error:
        # Temporal noticed before us, or the conversation is over.
        _log.debug("worker.not_handed_back", activity=task["activity"], error=str(error))


async def _last_words(client: Client, task: Task) -> list[dict[str, Any]]:
    """What a cancelled model turn had said, for which its conversation waits. Temporal forgets the heartbeats when the
    activity ends, so they are read before. Raises RPCError."""
    if task["activity"] != names.CALL_MODEL:
        return []
    handle = client.get_workflow_handle(task["conversation"], run_id=task["run"])
    described = await handle.describe(rpc_timeout=RPC_TIMEOUT)
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name == names.CALL_MODEL and pending.state == CANCEL_REQUESTED:
            with suppress(Exception):  # codecs raise all kinds
                details = await client.data_converter.decode(pending.heartbeat_details.payloads)
                if len(details) > 1:
                    return [{"said": details[1]}]
    return []


async def release_conversation(client: Client, conversation_id: str, run_id: str) -> None:
    """Lets any worker take the conversation's next workflow task, which would otherwise wait for the dead worker first.
    Raises RPCError."""
    await client.workflow_service.reset_sticky_task_queue(
        ResetStickyTaskQueueRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=conversation_id, run_id=run_id),
        ),
        retry=True,
        timeout=RPC_TIMEOUT,
    )
