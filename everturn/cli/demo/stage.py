"""The demo's stage: a folder, a Temporal server, a model's server, and workers that are real processes."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from everturn.devserver import GUARD
from everturn.errors import EverturnError, InvalidFile
from everturn.models import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from everturn.client.client import Client

AGENT: Final = "bookkeeper.py"
MODEL: Final = "bookkeeper_model.py"
INVOICES: Final = "invoices"
SCRIPTED: Final = "scripted:bookkeeper"


@dataclass
class Stage:
    folder: Path
    """The temporary folder: invoices, effects, database and logs."""
    client: Client
    ui_url: str | None
    model: str
    environment: dict[str, str]
    guard: subprocess.Popen[bytes]
    log: IO[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def is_scripted(self) -> bool:
        return self.model == SCRIPTED

    @property
    def books(self) -> Path:
        return self.folder / INVOICES

    def read_rows(self, name: str) -> list[list[str]]:
        """The complete lines of a file that the tools write, as they are on the disk: the tools' effects."""
        path = self.books / name
        if not path.exists():
            return []
        written = path.read_text()
        return list(csv.reader(line for line in written.splitlines(keepends=True) if line.endswith("\n")))

    def start_worker(self) -> int:
        """Starts a worker as anybody would: `everturn worker`, in a process of its own. Returns its process id."""
        worker = subprocess.Popen(
            [sys.executable, "-m", "everturn", "worker"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            # Not in the terminal's process group: Ctrl-C is for us, and we stop the workers.
            process_group=self.guard.pid,
        )
        self.workers.append(worker)
        return worker.pid

    def kill_worker(self) -> int:
        """Kills the worker with SIGKILL, so it can't clean up. Returns the exit status: -9 if SIGKILL ended it."""
        self.workers[-1].send_signal(signal.SIGKILL)
        return self.workers[-1].wait()

    def check_worker(self) -> None:
        """Raises EverturnError if the worker has ended by itself: nobody would continue the conversation."""
        if (status := self.workers[-1].poll()) is not None:
            raise EverturnError(f"The worker ended by itself, status {status}. Its last words: {self.last_words()}")

    def last_words(self) -> str:
        lines = Path(self.log.name).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "none"


@asynccontextmanager
async def set_up_stage() -> AsyncIterator[Stage]:
    """Sets everything up in a temporary folder, and removes everything at the end."""
    examples = examples_folder()
    if examples is None:
        raise InvalidFile("The demo's example files are not installed.", cure="Run it from a checkout: make demo.")
    model = os.environ.get("MODEL") or SCRIPTED
    if model.startswith("scripted:"):
        model = SCRIPTED  # the demo's own script, and not one that a tutorial may have left in the environment
    else:
        _check_model(model)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(_temporary_folder())
        shutil.copytree(examples / INVOICES, folder / INVOICES)
        environment = _worker_environment(folder, examples, model=model)
        guard = stack.enter_context(_ended_with_us())
        if model == SCRIPTED:
            environment["SCRIPTED_BASE_URL"] = _start_model(examples / MODEL, guard)
        client, ui_url = await _connect_client(stack, folder, environment)
        log = stack.enter_context((folder / "worker.log").open("ab"))
        set_up = Stage(folder, client, ui_url, model, environment, guard, log)
        stack.callback(_stop_workers, set_up)
        yield set_up


async def _connect_client(
    stack: AsyncExitStack, folder: Path, environment: dict[str, str]
) -> tuple[Client, str | None]:
    from everturn.client.client import Client
    from everturn.devserver import connect_or_start

    endpoint = await stack.enter_async_context(connect_or_start(db_filename=folder / "temporal.db"))
    # On an existing Temporal server, a task queue of our own: other workers must not get our work, nor we theirs.
    queue = f"everturn-demo-{os.getpid()}"
    environment["EVERTURN_TASK_QUEUE"] = queue
    if endpoint.server:
        environment["TEMPORAL_ADDRESS"] = endpoint.address
    return await Client.connect(task_queue=queue, **endpoint.options), endpoint.ui_url


def _check_model(model: str) -> None:
    from everturn.providers.catalog import resolve_endpoint

    resolve_endpoint(Model(model))


def _worker_environment(folder: Path, examples: Path, *, model: str) -> dict[str, str]:
    return {
        **os.environ,
        "BOOKS_DIR": str(folder / INVOICES),
        "EVERTURN_AGENTS": str(examples / AGENT),
        "MODEL": model,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="everturn-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended_with_us() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(GUARD, stdin=subprocess.PIPE, process_group=0) as guard:
        try:
            yield guard
        finally:
            with suppress(ProcessLookupError):
                os.killpg(guard.pid, signal.SIGKILL)


def _start_model(script: Path, guard: subprocess.Popen[bytes]) -> str:
    """Starts the scripted model as a server of its own. Returns its address."""
    server = subprocess.Popen(
        [sys.executable, "-m", "everturn.testing", str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        process_group=guard.pid,
    )
    assert server.stdout is not None
    address = server.stdout.readline().decode().strip()
    if not address:
        raise EverturnError(
            f"The scripted model's server did not start: {script} ended with status {server.wait()}.",
            cure=f"Its own words are above. `python -m everturn.testing {script}` shows them alone.",
        )
    return address


def _stop_workers(set_up: Stage) -> None:
    for worker in set_up.workers:
        worker.terminate()
    for worker in set_up.workers:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(timeout=5)


def examples_folder() -> Path | None:
    """The folder of the examples: in the checkout, or in the installed wheel. None if there is none."""
    package = Path(__file__).parents[2]
    folders = (package.parent / "examples", package / "examples")
    return next((folder for folder in folders if (folder / AGENT).is_file()), None)
